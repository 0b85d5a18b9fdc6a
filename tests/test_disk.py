import errno
import os

import numpy as np
import pytest

from torchcno import disk
from torchcno.disk import (
    append_row,
    keep_checksums,
    make_own_folder,
    read_arrays,
    read_json,
    read_rows,
    replacing,
    write_arrays,
    write_atomically,
    write_json,
    write_noted,
)


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
        pytest.raises(OSError, match=r"file cannot be written: the disk is full; make space"),
        replacing(path),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS]
)
def test_every_error_names_the_file_and_the_remedy(tmp_path, monkeypatch, number):
    def fail(descriptor, content):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.write", fail)
    for write in (lambda p: write_atomically(p, b"new"), lambda p: append_row(p, {"epoch": 1})):
        with pytest.raises(OSError, match=r"file cannot be written: .*; \w+") as error:
            write(tmp_path / "file")
        assert error.value.errno == number


def test_a_folder_that_cannot_be_flushed_is_noted_and_no_hindrance(tmp_path, monkeypatch, caplog):
    fsync = os.fsync

    def refuse_folders(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", refuse_folders)
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert "cannot flush a folder" in caplog.text


def test_any_flipped_bit_is_found(tmp_path):
    """In a file that is noted, in the notes, and in rows, whatever bit it is."""
    keep_checksums(tmp_path)
    content = {"errors": {"test": 0.1 + 0.2}}
    write_json(content, tmp_path / "result.json")
    rows = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": None}]
    for row in rows:
        append_row(tmp_path / "metrics.jsonl", row)
    for name in ("result.json", "metrics.jsonl", disk.CHECKSUMS):
        path = tmp_path / name
        whole = path.read_bytes()
        for bit in range(8 * len(whole)):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"is damaged|is not what was written"):
                read_json(tmp_path / "result.json"), read_rows(tmp_path / "metrics.jsonl")
        path.write_bytes(whole)
    assert read_json(tmp_path / "result.json") == content
    assert read_rows(tmp_path / "metrics.jsonl") == rows


def test_a_row_that_is_being_written_is_left_out_and_then_overwritten(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append_row(path, {"epoch": 1})
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole + whole[:cut])
        assert read_rows(path) == [{"epoch": 1}]
    append_row(path, {"epoch": 2})
    assert read_rows(path) == [{"epoch": 1}, {"epoch": 2}]


def test_rows_from_before_there_were_checks_are_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"epoch": 1, "validation_error": null}\n')
    append_row(path, {"epoch": 2})
    assert read_rows(path) == [{"epoch": 1, "validation_error": None}, {"epoch": 2}]


def test_a_kill_between_a_note_and_its_file_leaves_what_was_there(tmp_path, monkeypatch):
    keep_checksums(tmp_path)
    path = tmp_path / "config.yaml"
    write_noted(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_atomically", lambda path, content: None)
        write_noted(path, b"new")
    assert disk.read_bytes(path) == b"old"
    write_noted(path, b"new")
    assert disk.read_bytes(path) == b"new"


def test_nothing_is_written_through_a_link(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (outside / "precious").write_text("precious")
    (folder / "metrics.jsonl").symlink_to(outside / "precious")
    (folder / "result.json").symlink_to(outside / "precious")
    (folder / "checkpoint").symlink_to(outside)
    with pytest.raises(OSError, match=r"metrics\.jsonl cannot be written: it is a symbolic link"):
        append_row(folder / "metrics.jsonl", {"epoch": 1})
    with pytest.raises(OSError, match=r"checkpoint cannot be written: it is a symbolic link"):
        make_own_folder(folder / "checkpoint")
    write_json({}, folder / "result.json")  # in place of the link
    assert not (folder / "result.json").is_symlink()
    assert [path.read_text() for path in outside.iterdir()] == ["precious"]


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(ValueError, match=f"{name} is no file"):
            read_json(tmp_path / name)


def test_a_file_that_claims_too_much_is_refused_before_memory_is_asked_for(tmp_path):
    path = tmp_path / "errors.npz"
    write_arrays({"zeros": np.zeros(2**25)}, path)
    with pytest.raises(ValueError, match=r"errors\.npz has \d+ bytes and claims to hold 0.268 GB"):
        read_arrays(path)
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match=r"config\.json has 1048576.0 MiB"):
        read_json(tmp_path / "config.json")
