"""Folders for one process at a time.

By flock where the file system has it, on all machines that see the folder where it is honest about
that. Elsewhere by a file that its owner creates, which fails if there is one, and touches while at
work. A file that is no longer touched, or whose process is gone from this machine, is anyone's.
"""

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from torchcno.disk import create, explained, make_folder, open_own, refuse_link, say_once

BEAT = 10.0  # seconds between two touches of a lock by its owner
FORFEIT = 120.0  # seconds without one after which a lock is anyone's
LOOK = 0.5  # seconds between two looks at another's lock

# What flock answers where the file system has none.
_NO_FLOCK = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """One process at a time in `folder`; the next waits and finds the work done, or is refused.

    A cluster that loses sight of a worker gives its job to another, even if the first still works.
    The folder is made where it is missing, also where who held it before has removed it.
    """
    while True:
        make_folder(folder)
        # Who held it before us may have removed the folder with the lock: then begin again.
        with suppress(FileNotFoundError):
            release = _take(folder, wait)
            break
    try:
        yield
    finally:
        release()


def _take(folder: Path, wait: bool) -> Callable[[], None]:
    """Take the lock of `folder`; how to release it. FileNotFoundError if it is gone by then."""
    path = folder / ".lock"
    try:
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError:
        raise
    except OSError:
        with explained(path):
            raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return lambda: os.close(descriptor)
        raise FileNotFoundError(path)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise _refusal(folder) from error
        if not (isinstance(error, OSError) and error.errno in _NO_FLOCK):
            raise
        say_once(
            f"{folder}: this file system has no locks ({error.strerror}). A file, .lock-owner, "
            "keeps other processes out instead."
        )
    return _take_by_owner(folder, wait)


def _refusal(folder: Path) -> ValueError:
    return ValueError(
        f"another process is at work in {folder}; wait for it, or choose another folder."
    )


def _take_by_owner(folder: Path, wait: bool) -> Callable[[], None]:
    """Take the lock by creating the file that names its owner."""
    path, token = folder / ".lock-owner", uuid4().hex
    owner = {"host": socket.gethostname(), "process": os.getpid(), "token": token}
    refuse_link(path)
    while not _create(path, json.dumps(owner).encode()):
        if _is_forfeit(path):
            _remove(path, _read(path))
        elif not wait:
            raise _refusal(folder)
        else:
            time.sleep(LOOK)
    stop = threading.Event()
    thread = threading.Thread(target=_touch, args=(path, token, stop), daemon=True)
    thread.start()

    def release() -> None:
        stop.set()
        thread.join()
        if _read(path).get("token") == token:
            path.unlink(missing_ok=True)

    return release


def _create(path: Path, content: bytes) -> bool:
    """Create a file; False where there is one."""
    try:
        create(path, content)
    except FileExistsError:
        return False
    return True


def _touch(path: Path, token: str, stop: threading.Event) -> None:
    """Show that the owner is at work, until it stops or another has taken the lock."""
    while not stop.wait(BEAT) and _read(path).get("token") == token:
        with suppress(OSError):
            os.utime(path, follow_symlinks=False)


def _read(path: Path) -> dict[str, object]:
    """What a lock says of its owner; nothing where it is gone."""
    try:
        with open(open_own(path, os.O_RDONLY), encoding="utf-8") as file:
            content = json.loads(file.read(1000))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _is_forfeit(path: Path) -> bool:
    """Whether no one keeps up a lock any more."""
    owner = _read(path)
    process = owner.get("process")
    is_here = owner.get("host") == socket.gethostname()
    if is_here and isinstance(process, int) and not is_alive(process):
        return True
    try:
        return _now(path) - path.lstat().st_mtime > FORFEIT
    except FileNotFoundError:
        return False  # it was just released


def _now(path: Path) -> float:
    """The time by the clock of the file system, which may be another machine's."""
    probe = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        os.close(open_own(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def _remove(path: Path, owner: dict[str, object]) -> None:
    """Remove the lock of `owner`, and put back that of another who was quicker."""
    aside = path.with_name(f"{path.name}.{uuid4().hex}")
    with suppress(FileNotFoundError):
        os.rename(path, aside)
        if _read(aside) == owner:
            aside.unlink()
        else:
            os.rename(aside, path)


def is_alive(process: int) -> bool:
    """Whether this machine has a process of that number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass  # another user's
    return True
