"""The command `cno`: one verb a job, one file a verb, and the only place that prints."""

import difflib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module

from torchcno.version import __version__

# A verb is the function of this name in the module of this name. Its signature is its options and
# its docstring its help; the modules import torch inside the functions, so that help is quick.
VERBS = (
    *("problems", "generate", "train", "resume", "search", "evaluate", "predict", "export"),
    *("audit", "playground", "study", "report", "bench", "demo"),
)

MISSED, BAD_INPUT, DIVERGED, INTERRUPTED = 1, 2, 3, 130


class Stop(Exception):  # noqa: N818
    """A verb's end before its time, with its exit code and what to tell the user."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


USAGE = """\
usage: cno VERB ...

Learn solution operators of partial differential equations (PDEs).

New here? `cno demo` shows all of it in a few minutes. Then train on your file:

  cno train --data mine.nc --inputs a --outputs u --out runs/mine
  cno evaluate runs/mine --picture samples.png
  cno predict runs/mine new.nc --out predictions.nc

{verbs}

`cno VERB --help` explains a verb, with examples.

options:
  --version  print the version
  --debug    show the traceback of an error

Tab completion for bash (or zsh, fish, tcsh), from the next terminal on:

  cno --tyro-write-completion bash \\
    ~/.local/share/bash-completion/completions/cno
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code: 0, 2 for bad input, 3 for divergence, 130 for Ctrl-C."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"] or ["--help"]
    # Threads that wait for one another by spinning stall where cores are shared: a training step of
    # 0.4 s takes 3.5 s. OpenMP reads this when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        # Where in the source a warning came from says nothing to who runs a command.
        warnings.formatwarning = lambda message, *_, **__: f"cno: {message}\n"
        return run(words) or 0
    except SystemExit as exit_:  # help was shown, or what is wrong with an option
        return int(exit_.code or 0)
    except BaseException as error:
        answer = describe_error(error)
        if debug or answer is None:
            raise
    if answer.message:
        print(f"cno {words[0]}: {answer.message}", file=sys.stderr)
    return answer.code


def describe_error(error: BaseException) -> Stop | None:
    """What to tell the user of an `error` that they can do something about; None of others."""
    if isinstance(error, Stop):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Stop(INTERRUPTED, "interrupted; the same command goes on from what is saved.")
    if isinstance(error, OSError) and error.filename is not None:  # as the system says it
        return Stop(BAD_INPUT, f"{error.filename}: {error.strerror}; {remedy_of(error)}")
    if isinstance(error, ValueError | OSError):
        return Stop(BAD_INPUT, str(error))
    # torch has a type for GPUs only.
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if named or "DefaultCPUAllocator" in str(error):
        remedy = (
            "use smaller batches (--train.batch_size, --batch-size), a smaller network or a "
            "coarser grid."
        )
        return Stop(BAD_INPUT, f"out of memory; {remedy}")
    return None


def remedy_of(error: OSError) -> str:
    """What to do about an error of the file system."""
    if isinstance(error, FileNotFoundError):
        return "give the name of what is there."
    from torchcno.disk import REMEDIES

    return REMEDIES.get(error.errno or 0, "choose another file or folder") + "."


def run(words: Sequence[str]) -> int | None:
    """Do what `words` ask for."""
    if words[0] in ("-h", "--help", "help"):
        summaries = {verb: str(find_verb(verb).__doc__).partition("\n")[0] for verb in VERBS}
        verbs = "\n".join(f"  {verb:<10} {summary}" for verb, summary in summaries.items())
        print(USAGE.format(verbs=verbs), end="")
    elif words[0] == "--version":
        print(f"torchcno {__version__}")
    elif words[0] in VERBS:
        from torchcno.cli.arguments import call

        return call(words)
    elif words[0].startswith("--tyro-"):
        from torchcno.cli.arguments import write_completion

        write_completion(words)
    else:
        near = difflib.get_close_matches(words[0], VERBS, n=1)
        hint = f"did you mean `cno {near[0]}`? " if near else ""
        raise ValueError(f"unknown verb {words[0]!r}; {hint}`cno --help` lists them.")
    return None


def find_verb(name: str) -> Callable[..., int | None]:
    """The function of a verb."""
    verb: Callable[..., int | None] = getattr(import_module(f"torchcno.cli.{name}"), name)
    return verb
