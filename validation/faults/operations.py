"""Every operation on a file below a folder passes through here, and may end otherwise.

Python's functions of the file system are replaced in the process of a try. What libraries in C do
themselves (HDF5, SQLite) is not seen.
"""

import errno
import os
import random
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NAMES = ("open", "close", "write", "fsync", "ftruncate", "replace", "unlink", "mkdir")


class Operations:
    """The functions of `os` that change a disk; the methods `before` and `after` hear of each.

    Heard of is what happens below `root`: the name of the function, the path, and what else counts.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.count = str(root), 0
        self.paths: dict[int, str] = {}  # of open descriptors
        self.real: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in NAMES}

    def install(self) -> None:
        """Take the place of the real functions, in this process for good."""
        for name in NAMES:
            setattr(os, name, getattr(self, name))
        os.remove, os.rename = self.unlink, self.replace

    def before(self, name: str, path: str, *more: Any) -> None:
        """What is to happen first; an error keeps the operation from happening."""

    def after(self, name: str, path: str, *more: Any) -> None:
        """What is to happen then."""

    def _do(self, name: str, path: Any, more: Sequence[Any], *words: Any, **named: Any) -> Any:
        if path is None or not str(path).startswith(self.root):
            return self.real[name](*words, **named)
        self.count += 1
        self.before(name, str(path), *more)
        value = self.real[name](*words, **named)
        self.after(name, str(path), *more, value)
        return value

    def open(self, path: Any, flags: int, *more: Any, **named: Any) -> int:
        """Only to write is an operation."""
        is_new = not os.path.lexists(path)
        told = path if flags & WRITING else None
        descriptor: int = self._do("open", told, (is_new,), path, flags, *more, **named)
        self.paths[descriptor] = str(path)
        return descriptor

    def close(self, descriptor: int) -> None:
        """No operation: it brings nothing to the disk."""
        self.paths.pop(descriptor, None)
        self.real["close"](descriptor)

    def write(self, descriptor: int, content: Any) -> int:
        """The content as it is."""
        path = self.paths.get(descriptor)
        written: int = self._do("write", path, (descriptor, content), descriptor, content)
        return written

    def fsync(self, descriptor: int) -> None:
        """Of files and of folders."""
        self._do("fsync", self.paths.get(descriptor), (), descriptor)

    def ftruncate(self, descriptor: int, size: int) -> None:
        """A file cut short."""
        self._do("ftruncate", self.paths.get(descriptor), (), descriptor, size)

    def replace(self, source: Any, target: Any, **named: Any) -> None:
        """A new name in place of an old one."""
        self._do("replace", target, (str(source),), source, target, **named)

    def unlink(self, path: Any, **named: Any) -> None:
        """A name less."""
        self._do("unlink", path, (), path, **named)

    def mkdir(self, path: Any, *more: Any, **named: Any) -> None:
        """A new folder."""
        self._do("mkdir", path, (), path, *more, **named)


def die() -> None:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


class Killing(Operations):
    """Death at an operation; a write is half done by then."""

    def __init__(self, root: Path, at: int) -> None:
        super().__init__(root)
        self.at = at

    def before(self, name: str, path: str, *more: Any) -> None:
        """Die when it is time."""
        if self.count == self.at:
            if name == "write":
                self.real["write"](more[0], more[1][: len(more[1]) // 2])
            die()


# What fails on a full disk is what makes it fuller; a write that fails has written a part.
FAILING: dict[int, tuple[str, ...]] = {
    errno.ENOSPC: ("open", "write", "mkdir"),
    errno.EDQUOT: ("open", "write", "mkdir"),
    errno.EFBIG: ("write",),
    errno.EIO: ("open", "write", "fsync", "replace", "mkdir"),
    errno.EROFS: ("open", "write", "mkdir", "replace", "unlink"),
}


class Failing(Operations):
    """A disk that fails from an operation on."""

    def __init__(self, root: Path, at: int, number: int) -> None:
        super().__init__(root)
        self.at, self.number = at, number

    def before(self, name: str, path: str, *more: Any) -> None:
        """Fail when it is time."""
        if self.count >= self.at and name in FAILING[self.number]:
            if name == "write":
                self.real["write"](more[0], more[1][: len(more[1]) // 3])
            raise OSError(self.number, os.strerror(self.number), path)


class PowerCut(Operations):
    """A power cut at an operation; `into` then has what the disk holds.

    By the letter of what was promised: a file's content is on the disk when it was flushed, names
    are when their folder was. Of names that were not, the first ones may be there; of content that
    was not, a part, or zeros.
    """

    def __init__(self, root: Path, at: int, seed: int, into: Path) -> None:
        super().__init__(root)
        self.at, self.into, self.draw = at, into, random.Random(seed)
        self.names: dict[str, int | None] = {}  # on the disk: a file's number, None: a folder
        self.pending: dict[str, list[tuple[str, int | None, bool]]] = {}  # by folder
        self.flushed: dict[int, bytes] = {}  # contents by number

    def before(self, name: str, path: str, *more: Any) -> None:
        """Cut the power when it is time."""
        if self.count == self.at:
            self.write_out()
            die()

    def after(self, name: str, path: str, *more: Any) -> None:
        """Follow what happened."""
        if name == "open" and more[0]:
            number = os.fstat(more[-1]).st_ino
            self.flushed.pop(number, None)  # of a file before, which is gone
            self.change(path, number)
        elif name == "mkdir":
            self.change(path, None)
        elif name == "unlink":
            self.change(path, None, is_there=False)
        elif name == "replace":
            self.change(path, os.stat(path).st_ino)
            self.change(more[0], None, is_there=False)
        elif name == "fsync" and os.path.isdir(path):
            for change in self.pending.pop(path, []):
                self.apply(*change)
        elif name == "fsync":
            self.flushed[os.stat(path).st_ino] = Path(path).read_bytes()

    def change(self, path: str, number: int | None, is_there: bool = True) -> None:
        """A change of names that is not on the disk yet."""
        self.pending.setdefault(os.path.dirname(path), []).append((path, number, is_there))

    def apply(self, path: str, number: int | None, is_there: bool) -> None:
        """A change of names, on the disk."""
        if is_there:
            self.names[path] = number
        else:
            self.names.pop(path, None)

    def write_out(self) -> None:
        """Write what the disk may hold now."""
        now = {p.stat().st_ino: p for p in Path(self.root).rglob("*") if p.is_file()}
        for changes in self.pending.values():
            for change in changes[: self.draw.randint(0, len(changes))]:
                self.apply(*change)
        for path, number in sorted(self.names.items()):
            target = self.into / os.path.relpath(path, self.root)
            if not target.parent.is_dir() and path != self.root:
                continue  # in a folder that is not there
            if number is None:
                self.real["mkdir"](target)
            else:
                content = now[number].read_bytes() if number in now else b""
                target.write_bytes(self.remains(self.flushed.get(number, b""), content))

    def remains(self, flushed: bytes, content: bytes) -> bytes:
        """What is left of a file that had `content`, of which `flushed` is on the disk."""
        if not content.startswith(flushed):
            return flushed
        more = content[len(flushed) :]
        kept = more[: self.draw.randint(0, len(more))]
        return flushed + self.draw.choice((b"", kept, bytes(len(kept))))


def count_operations(root: Path, work: Callable[[], None]) -> int:
    """How many operations `work` does below `root`."""
    operations = Operations(root)
    operations.install()
    work()
    return operations.count


def clear(folder: Path) -> Path:
    """`folder`, which is not there any more."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder
