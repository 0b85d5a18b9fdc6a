import errno
import os

import pytest

from torchcno.disk import replacing, write_atomically


def test_what_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"new and longer")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_who_reads_the_old_file_goes_on_reading_it(tmp_path):
    path, held = tmp_path / "file", tmp_path / "held"
    write_atomically(path, b"old")
    os.link(path, held)
    write_atomically(path, b"new and longer")
    assert (path.read_bytes(), held.read_bytes()) == (b"new and longer", b"old")


def test_two_who_write_at_a_time_do_not_mix(tmp_path, monkeypatch):
    """The other comes when the first has written, and not yet moved, its file."""
    path, fsync, others = tmp_path / "file", os.fsync, [b"other, and longer"]

    def while_another_writes(descriptor):
        while others:
            write_atomically(path, others.pop())
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", while_another_writes)
    write_atomically(path, b"first")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_named_with_the_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with (
        pytest.raises(OSError, match=r"the disk is full, and .*file is not written"),
        replacing(path),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_text() == "old"
