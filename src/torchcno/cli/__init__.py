"""The command `cno`: one verb a job, one file a verb, and the only place that prints."""

import difflib
import os
import sys
from argparse import ArgumentError
from collections.abc import Sequence
from importlib import import_module

# A verb is the module of its name, which has `main(arguments)`; imported only when it is asked for.
VERBS = {
    "problems": "list the problems, or draw one",
    "generate": "make data files: inputs and the solver's outputs",
    "train": "train a model on a problem",
    "resume": "go on with an interrupted run",
    "search": "choose a configuration: train many, keep the best on validation",
    "evaluate": "errors of a trained run, in and out of distribution, at any resolution",
    "predict": "apply a trained run to a file of inputs",
    "export": "a trained run in half precision, to be shared",
    "audit": "aliasing of trained runs, end to end and layer by layer",
    "study": "run a table or figure of the paper, experiment by experiment",
    "report": "one page of all results beside the paper's",
    "bench": "speed and memory, side by side",
    "demo": "the tour: make data, train, evaluate and draw, in four minutes on two cores",
}

MISSED, BAD_INPUT, DIVERGED, INTERRUPTED = 1, 2, 3, 130


class Stop(Exception):  # noqa: N818
    """A verb's end before its time, with its exit code and what to tell the user."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def usage() -> str:
    """What `cno` prints when it is asked for nothing."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {summary}" for verb, summary in VERBS.items())
    return (
        "usage: cno VERB ...\n\n"
        "Learn solution operators of PDEs with Convolutional Neural Operators.\n\n"
        f"{verbs}\n\n"
        "`cno VERB --help` explains a verb. A first session:\n\n"
        "  cno demo\n"
        "  cno train poisson cno --out runs/p1 --train.epochs 100\n"
        "  cno evaluate runs/p1 --resolutions 32,64,128\n\n"
        "options:\n"
        "  --version  print the version\n"
        "  --debug    show the traceback of an error\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code: 0, 2 for bad input, 3 for divergence, 130 for Ctrl-C."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage(), end="")
        return 0
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"torchcno {version('torchcno')}")
        return 0
    # Threads that wait for one another by spinning stall where cores are shared: a training step of
    # 0.4 s takes 3.5 s. OpenMP reads this when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    verb, *rest = arguments
    try:
        if verb not in VERBS:
            near = difflib.get_close_matches(verb, VERBS, n=1)
            hint = f"did you mean `cno {near[0]}`? " if near else ""
            raise ValueError(f"unknown verb {verb!r}; {hint}`cno --help` lists them.")
        code: int | None = import_module(f"torchcno.cli.{verb}").main(rest)
        return code or 0
    except SystemExit as exit_:  # argparse, having printed its help
        return int(exit_.code or 0)
    except (MemoryError, RuntimeError) as error:
        if debug or not is_out_of_memory(error):
            raise
        print(
            f"cno {verb}: out of memory ({error}); use smaller batches (--train.batch_size, "
            "--batch-size), a smaller network or a coarser grid.",
            file=sys.stderr,
        )
        return BAD_INPUT
    except (ArgumentError, ValueError, OSError, Stop, KeyboardInterrupt) as error:
        if debug:
            raise
        message = str(error) or "interrupted; the same command begins again where it can."
        print(f"cno {verb}: {message}", file=sys.stderr)
        if isinstance(error, KeyboardInterrupt):
            return INTERRUPTED
        return error.code if isinstance(error, Stop) else BAD_INPUT


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, of a GPU or of this machine: on a CPU torch has no type for that."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "DefaultCPUAllocator" in str(error)
