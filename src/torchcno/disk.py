"""Files that are whole or not there, and folders for one process at a time.

A file is written beside its name, flushed to the disk and moved into place. What a crash, a kill or
a full disk leaves under the name is the whole old file or the whole new one.
"""

import errno
import fcntl
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray


def write_atomically(path: Path, content: bytes) -> None:
    """Put `content` under `path`, or leave what is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what is to lie under `path`: it is moved there once the body has ended well.

    The name is new each time: two who write the same file, on two machines even, do not mix.
    """
    temporary = path.with_name(f"{path.name}.{uuid4().hex}.part")
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            message = f"the disk is full, and {path} is not written; make space and try again."
            raise OSError(errno.ENOSPC, message) from error
        raise
    _flush(path.parent)  # the new name, too, has to outlive a power cut


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_arrays(arrays: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Put arrays under `path`, a compressed .npz, or leave what is there."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged or no JSON file ({error}); bring back a whole copy of it."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object.")
    return content


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """An object as a JSON file, never half of it."""
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """One process at a time in `folder`; the next waits and finds the work done, or is refused.

    A cluster that loses sight of a worker gives its job to another, even if the first still works.
    Whoever does not wait is let in where the file system knows no locks.
    """
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"another process is at work in {folder}; wait for it, or choose another folder."
            ) from error
        except OSError:
            if wait:
                raise
        yield
