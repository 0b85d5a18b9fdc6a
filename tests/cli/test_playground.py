import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from torchcno.runs.pretrained import pretrained


@contextlib.contextmanager
def playground(*runs):
    """The address of `cno playground` while it runs; Ctrl-C ends it."""
    command = [sys.executable, "-m", "torchcno.cli", "playground", *map(str, runs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield re.findall(r"http://127\.0\.0\.1:\d+/\S+/", process.stdout.readline())[0]
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def read_page(address):
    with urllib.request.urlopen(address, timeout=60) as page:
        text = page.read().decode()
    return json.loads(re.search(r'id="setup">(.*?)</script>', text)[1])


def test_it_serves_until_it_is_interrupted(run_folder):
    with playground(run_folder) as address:
        assert list(read_page(address)["problems"]) == ["poisson"]


def test_without_a_name_all_networks_of_the_package_are_offered():
    with playground() as address:
        setup = read_page(address)
        assert setup["problem"] == "poisson"
        assert setup["problems"].keys() == pretrained().keys()
        other = read_page(f"{address}smooth-transport/")
        assert other["problem"] == "smooth-transport"
        assert other["problems"] == setup["problems"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["poison"], "did you mean 'poisson'?"),
        (["runs/nowhere"], "does not exist"),
        (["--port", "70000"], "--port is 70000"),
        (["poisson", "poisson", "--static", "page.html"], "--static takes one network"),
        (["--static", "page.txt"], "has no ending of .html"),
        (["navier-stokes", "--static", "page.html"], "poisson, wave alone"),
        (["--static", "page.html", "--runtime", "nowhere.tgz"], "nowhere.tgz"),
    ],
)
def test_what_it_cannot_serve_is_refused(cno, words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = cno("playground", *words)
    assert outcome.code == 2
    assert said in outcome.err
    assert not list(tmp_path.iterdir())


def test_a_port_that_is_taken_is_refused(cno, run_folder):
    with socket.create_server(("127.0.0.1", 0)) as other:
        outcome = cno("playground", run_folder, "--port", other.getsockname()[1])
    assert outcome.code == 2
    assert "is not free" in outcome.err


def test_networks_that_come_with_the_package_have_an_easel():
    from torchcno.playground.scenes import EASELS
    from torchcno.problems import PROBLEMS

    plane = {name for name, problem in PROBLEMS.items() if len(problem().extent) == 2}
    assert set(EASELS) <= plane
    assert set(pretrained()) <= set(EASELS)
