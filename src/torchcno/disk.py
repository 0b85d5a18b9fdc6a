"""Files that are whole or not there, verified when they are read.

A file is written beside its name, flushed to the disk and moved into place. What a crash, a kill or
a full disk leaves under the name is the whole old file or the whole new one.

A folder may have a file `checksums.jsonl`: what is written there is noted in it, and what is read
there is compared with it. Names in a folder that are symbolic links are not followed to write.
"""

import errno
import hashlib
import io
import json
import logging
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from torchcno.rows import seal, unseal

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHECKSUMS = "checksums.jsonl"
# Bytes of a file: more than any that torchcno writes.
MOST_TEXT, MOST_ARRAYS = 64 * 2**20, 4 * 2**30
BOMB = 100  # how often its own size a file may claim to hold

# What to do about an error of the file system, by its number.
REMEDIES = {
    errno.ENOSPC: "the disk is full; make space, and do the same again",
    errno.EDQUOT: "your share of the disk is used up; make space, and do the same again",
    errno.EFBIG: "the system allows no file of that size; raise the limit (ulimit -f)",
    errno.EIO: "the disk failed; copy what can be read to another one",
    errno.EROFS: "the disk is read-only; choose a folder on another one",
    errno.EACCES: "you have no permission; change it, or choose another folder",
    errno.EPERM: "the system does not allow it; choose another folder",
    errno.ELOOP: "it is a symbolic link, which is not followed; remove it",
    errno.ENOENT: "there can be no such file or folder; choose another folder",
    errno.ENOTDIR: "a part of the path is a file; choose another folder",
    errno.EISDIR: "it is a folder; give another name",
    errno.EEXIST: "there is a file of that name; choose another folder",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n)",
    errno.ESTALE: "the network disk lost it; do the same again",
    errno.ETIMEDOUT: "the network disk does not answer; do the same again when it is back",
}

_logger = logging.getLogger(__name__)
_said: set[str] = set()


class DiskError(OSError):
    """The file system refused; the message names the file and what to do."""

    def __str__(self) -> str:
        return str(self.strerror)


def explain(error: OSError, path: Path | str, done: str = "written") -> str:
    """Why the file at `path` was not `done`, and what to do."""
    remedy = REMEDIES.get(error.errno or 0)
    why = f"{error.strerror or error}; choose another folder" if remedy is None else remedy
    return f"{path} cannot be {done}: {why}."


@contextmanager
def explained(path: Path, done: str = "written") -> Iterator[None]:
    """Errors of the file system in words that say what to do."""
    try:
        yield
    except OSError as error:
        if isinstance(error, DiskError) or error.errno is None:  # in words already
            raise
        raise DiskError(error.errno, explain(error, path, done)) from error


def say_once(text: str) -> None:
    """A word to whoever watches, the first time only."""
    if text not in _said:
        _said.add(text)
        _logger.warning(text)


def make_folder(path: Path) -> None:
    """The folder at `path`, with those above it; their names outlive a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    with explained(path, "made"):
        path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        flush_folder(folder.parent)


def make_own_folder(path: Path) -> None:
    """`make_folder` of a folder inside one of ours: a link to another place is refused."""
    refuse_link(path)
    make_folder(path)


def refuse_link(path: Path) -> None:
    """Refuse a name in one of our folders that leads out of it."""
    if path.is_symlink():
        raise DiskError(errno.ELOOP, explain(OSError(errno.ELOOP, ""), path))


def open_own(path: Path | str, flags: int) -> int:
    """A descriptor of a file to be written, never of one that a symbolic link points to."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of `content`."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def create(path: Path, content: bytes) -> None:
    """A new file; an error where there is one of that name."""
    descriptor = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_all(descriptor, content)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes) -> None:
    """Put `content` under `path`, or leave what is there."""
    make_folder(path.parent)
    with replacing(path) as temporary:
        create(temporary, content)


def write_noted(path: Path, content: bytes) -> None:
    """`write_atomically`, and note the checksum where the folder keeps them."""
    notes = path.with_name(CHECKSUMS)
    if notes.exists():
        digest = hashlib.sha256(content).hexdigest()
        # First the note: a kill in between leaves the old file, whose note is there, too.
        if digest not in _noted(path):
            append_row(notes, {"file": path.name, "sha256": digest})
        flush_file(notes)
    write_atomically(path, content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what is to lie under `path`: it is moved there once the body has ended well.

    The name is new each time: two who write the same file, on two machines even, do not mix.
    """
    temporary = path.with_name(f"{path.name}.{uuid4().hex}.part")
    with explained(path):
        try:
            yield temporary
            flush_file(temporary)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    flush_folder(path.parent)  # the new name, too, has to outlive a power cut


def sweep(path: Path) -> None:
    """Remove what a kill in mid-write left beside `path`, of whoever alone may write it."""
    for left in path.parent.glob(f"{path.name}.*.part"):
        left.unlink(missing_ok=True)


def append_row(path: Path, row: Mapping[str, Any]) -> int:
    """Add a row to a file of rows; the bytes that it has now."""
    is_new = not path.exists()
    with explained(path):
        descriptor = open_own(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":  # cut short by a full disk
                os.ftruncate(descriptor, os.pread(descriptor, size, 0).rfind(b"\n") + 1)
            write_all(descriptor, seal(row))
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    if is_new:
        flush_folder(path.parent)
    return size


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, but for one that is being written; none where there is no file."""
    return unseal_rows(path, read_bytes(path)) if path.exists() else []


def unseal_rows(path: Path, content: bytes) -> list[dict[str, Any]]:
    """The rows of `content`, read from `path`."""
    try:
        return unseal(content)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; bring back a whole copy of it.") from error


def flush_file(path: Path) -> None:
    """Wait until a file's content is on the disk."""
    with explained(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def flush_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, where the file system can do that."""
    try:
        flush_file(path)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        say_once(
            f"{path}: this file system cannot flush a folder ({why}); a power "
            "cut may undo the last change there."
        )


def keep_checksums(folder: Path) -> None:
    """Note from now on what is written to `folder`, and verify it when it is read."""
    if not (folder / CHECKSUMS).exists():
        with explained(folder / CHECKSUMS):
            os.close(open_own(folder / CHECKSUMS, os.O_WRONLY | os.O_CREAT))
        flush_folder(folder)


def _noted(path: Path) -> set[str]:
    """The digests of what was ever written to `path`, as far as its folder keeps checksums."""
    notes = path.with_name(CHECKSUMS)
    if path.name == CHECKSUMS or not notes.exists():
        return set()
    try:
        rows = unseal(_read(notes, MOST_TEXT))
    except ValueError as error:
        raise ValueError(
            f"{notes} is damaged: {error}; bring back a whole copy of it. Or remove it: then what "
            "is in the folder is read without being verified."
        ) from error
    return {str(row.get("sha256")) for row in rows if row.get("file") == path.name}


def read_bytes(path: Path, most: int = MOST_TEXT) -> bytes:
    """The content of a file, verified where its folder keeps checksums."""
    content = _read(path, most)
    noted = _noted(path)
    if noted and hashlib.sha256(content).hexdigest() not in noted:
        raise ValueError(
            f"{path} is not what was written there: it is damaged, or was changed by hand. Bring "
            f"back a whole copy of it; or remove its lines from {CHECKSUMS} to take it as it is."
        )
    return content


def _read(path: Path, most: int) -> bytes:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(
                f"{path} has {size / 2**20:.1f} MiB, more than any such file of torchcno; bring "
                "back the file that was there."
            )
        with explained(path, "read"):
            return file.read()


@contextmanager
def open_regular(path: Path) -> Iterator[io.BufferedReader]:
    """A file to read; no folder, pipe or device, which may have no end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DiskError(error.errno, explain(error, path, "read")) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path} is no file; bring back the file that was there.")
    with open(descriptor, "rb") as file:
        yield file


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        content = json.loads(read_bytes(path).decode())
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged or no JSON file; bring back a whole copy of it."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object; bring back a whole copy of it.")
    return content


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """An object as a JSON file, never half of it."""
    write_noted(path, (json.dumps(content, indent=2) + "\n").encode())


def write_arrays(arrays: "Mapping[str, NDArray[Any]]", path: Path) -> None:
    """Put arrays under `path`, a compressed .npz, or leave what is there."""
    import numpy as np

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_noted(path, buffer.getvalue())


def read_arrays(path: Path) -> "dict[str, NDArray[Any]]":
    """The arrays of a .npz file."""
    import numpy as np

    content = read_bytes(path, most=MOST_ARRAYS)
    with _naming_damage(path), zipfile.ZipFile(io.BytesIO(content)) as archive:
        claimed = sum(part.file_size for part in archive.infolist())
    refuse_bomb(path, len(content), claimed)
    with _naming_damage(path), np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


@contextmanager
def _naming_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a broken archive makes its reader raise anything
        raise ValueError(
            f"{path} is damaged or no .npz file ({error}); bring back a whole copy of it."
        ) from error


def refuse_bomb(path: Path, size: int, claimed: int) -> None:
    """Refuse a file of `size` bytes that claims to hold far more, before memory is asked for."""
    if claimed > BOMB * size + 2**20:
        raise ValueError(
            f"{path} has {size} bytes and claims to hold {claimed / 1e9:.3g} GB; it is damaged. "
            "Bring back a whole copy of it."
        )
