"""Work shared out among processes of this machine, one core each."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import ModuleType

import torch


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def can_start_processes(kind: type) -> bool:
    """Whether another process can be started from here, and can import this class there."""
    module = sys.modules.get(kind.__module__)  # none: of a script that was read and executed
    found = getattr(module, kind.__qualname__, None)  # none: of a function
    is_importable = kind.__module__ != "__main__" and found is kind
    return is_importable and not multiprocessing.current_process().daemon


@contextmanager
def safe_path() -> Iterator[None]:
    """Processes started inside import nothing that lies in the current folder by chance or design.

    It comes first where they look for modules: a `pickle.py` there would be executed.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


@safe_path()
def call_in_processes(
    function: Callable[[range], None],
    chunks: Sequence[range],
    workers: int,
    report: Callable[[range], None],
) -> None:
    """Call `function` with every chunk in `workers` processes, one core each."""
    pool = ProcessPoolExecutor(
        min(workers, max(1, len(chunks))),
        mp_context=multiprocessing.get_context("spawn"),  # a fork would inherit torch's threads
        initializer=begin_worker,
    )
    others = set(multiprocessing.active_children())
    with pool:
        try:
            with on_their_own():
                futures = {pool.submit(function, chunk): chunk for chunk in chunks}
            for future in as_completed(futures):
                future.result()
                report(futures[future])
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a process that made samples died, perhaps for want of memory; finished samples "
                "are kept. Make the others with fewer: cno generate … --workers 1"
            ) from error
        except BaseException:
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()  # not to wait for samples that nobody wants any more
            raise


def begin_worker() -> None:
    """Keep to one core, and end with the process that started this one, however that ends."""
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def on_their_own() -> Iterator[None]:
    """Processes started inside neither run the user's script again nor hear their interrupt.

    A started process imports the main module of the one that started it: a script that loads data
    in its first line, with no `if __name__ == "__main__"`, would begin anew in every worker.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        sys.modules["__main__"] = main
