import errno
import fcntl
import json
import os
import socket
import time
from threading import Thread

import pytest

from torchcno import locks
from torchcno.locks import locked


@pytest.fixture
def no_flock(monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(locks, "LOOK", 0.01)


@pytest.fixture(params=[True, False], ids=["flock", "no flock"])
def either_way(request):
    if not request.param:
        request.getfixturevalue("no_flock")


def test_one_at_a_time(either_way, tmp_path):
    order = []

    def work(name):
        with locked(tmp_path):
            order.append(name)
            time.sleep(0.05)
            order.append(name)

    threads = [Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [order[i] == order[i + 1] for i in range(0, 8, 2)] == [True] * 4
    with (
        locked(tmp_path),
        pytest.raises(ValueError, match="another process is at work in"),
        locked(tmp_path, wait=False),
    ):
        pass


def test_a_link_in_place_of_the_lock_is_not_followed(either_way, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name in (".lock", ".lock-owner"):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / name).symlink_to(precious)
    with pytest.raises(OSError, match=r"\.lock cannot be written: it is a symbolic link"):
        locked(tmp_path / "run").__enter__()
    assert precious.read_text() == "precious"


def test_a_file_system_without_locks_is_told_of(no_flock, tmp_path, caplog):
    with locked(tmp_path):
        assert (tmp_path / ".lock-owner").exists()
    assert "this file system has no locks (No locks available)" in caplog.text
    assert not (tmp_path / ".lock-owner").exists()


def test_the_lock_of_a_process_that_is_gone_is_taken_over(no_flock, tmp_path):
    dead = os.fork()
    if dead == 0:
        os._exit(0)
    os.waitpid(dead, 0)
    owner = {"host": socket.gethostname(), "process": dead, "token": "x"}
    (tmp_path / ".lock-owner").write_text(json.dumps(owner))
    with locked(tmp_path, wait=False):
        pass


def test_another_machines_lock_is_taken_over_when_it_is_no_longer_kept_up(no_flock, tmp_path):
    path = tmp_path / ".lock-owner"
    path.write_text(json.dumps({"host": "another", "process": 1, "token": "x"}))
    with pytest.raises(ValueError, match="another process is at work"), locked(tmp_path, False):
        pass
    old = time.time() - locks.FORFEIT - 1
    os.utime(path, (old, old))
    with locked(tmp_path, wait=False):
        pass


def test_a_lock_is_kept_up_while_its_owner_works(no_flock, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "BEAT", 0.01)
    with locked(tmp_path):
        path = tmp_path / ".lock-owner"
        os.utime(path, (0, 0))
        time.sleep(0.3)
        assert time.time() - path.stat().st_mtime < 60
