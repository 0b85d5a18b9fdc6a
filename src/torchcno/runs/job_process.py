"""A process of its own for every job: what it does to memory, a GPU or itself stays with it.

The two ends of its standard streams: `run_in_process` starts the process, hands it the request as a
line of JSON and reads the answer as another; `main` is the process. Its standard error is `log.txt`
in the job's folder. It does not outlive the one that started it, so that whoever takes the job over
does not find it at work.

The side of `run_in_process` imports the standard library and `disk`, which does so too: the
processes of a cluster that only wait for jobs stay small.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from torchcno.disk import create, explained, open_own

Request = Mapping[str, Any]  # see `jobs.Job.request`
Answer = dict[str, Any]  # "state", and "error" where there is one

# -P: nothing is imported that lies in the current folder under the name of a module.
COMMAND = [sys.executable, "-P", "-m", "torchcno.runs.job_process"]
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
ATTEMPTS = 3  # for processes that die without a word: for want of memory, mostly
LOOK = 0.2  # seconds between two looks at a process
PATIENCE = 60.0  # seconds for a process to save its state when it is asked to stop
# By these Fabric takes a process for one of many that torchrun or Slurm started to train together.
# Whoever starts jobs may be one of many, as a worker of a cluster is; a job is by itself.
LAUNCH = (
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"),
    *("SLURM_PROCID", "SLURM_NTASKS"),
)


def run_in_process(request: Request, environment: Mapping[str, str] | None = None) -> Answer:
    """Bring a job to its end, whatever part of it is done already.

    The states: "finished"; "stopped", by `request_stop`, also by one that came before this began;
    "diverged"; "failed", with the error.
    """
    folder = Path(request["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(ATTEMPTS):
        with explained(folder / "log.txt"):
            descriptor = open_own(folder / "log.txt", APPEND)
        with open(descriptor, "a") as log:
            code, answer = _attempt(request, log, environment or {})
        if answer is not None:
            return answer
        if stop_file(folder).exists():  # and it was not training: all that it had is saved
            return {"state": "stopped", "error": "stopped before or after training."}
    ending = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
    return {
        "state": "failed",
        "error": f"its process ended {ATTEMPTS} times without a word, at last {ending}; "
        f"see {folder / 'log.txt'}, and run fewer jobs at a time if memory ran out.",
    }


def request_stop(folder: Path) -> None:
    """Ask the job in `folder` to stop, wherever it is at work, and save its state."""
    folder.mkdir(parents=True, exist_ok=True)  # the job may be about to make it
    with suppress(FileExistsError):
        create(stop_file(folder), b"")


def stop_file(folder: Path) -> Path:
    """A file, since the folder is what all machines have in common."""
    return folder / "stop"


def _attempt(
    request: Request, log: IO[str], environment: Mapping[str, str]
) -> tuple[int, Answer | None]:
    """Exit code and answer of one process; no answer from one that died."""
    inherited = {name: value for name, value in os.environ.items() if name not in LAUNCH}
    process = subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**inherited, **environment},
        process_group=0,  # Ctrl-C reaches the one who waits, who then asks this one to stop
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return process.wait(), None
        _wait(process, stop_file(Path(request["folder"])))
        line = process.stdout.readline()
    return process.wait(), json.loads(line) if line.endswith("\n") else None


def _wait(process: subprocess.Popen[str], stop_file: Path) -> None:
    """Wait for the end of `process`; hurry it once `stop_file` is there."""
    while process.poll() is None:
        time.sleep(LOOK)
        if stop_file.exists():
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def main() -> None:
    """The process of one job."""
    # What others print is no answer, be it a library in C or a process that this one starts.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    from torchcno.runs.jobs import run_request  # torch and all: only here

    print(json.dumps(run_request(request)), file=answers, flush=True)


def _end_with_the_parent() -> None:
    """End this process, and those it started, when the other end of the stream is gone."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
