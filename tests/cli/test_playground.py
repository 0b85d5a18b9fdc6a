import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from torchcno.runs.pretrained import pretrained


def test_it_serves_until_it_is_interrupted(run_folder):
    command = [sys.executable, "-m", "torchcno.cli", "playground", str(run_folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+/\S+/", process.stdout.readline())
        with urllib.request.urlopen(address, timeout=20) as page:
            assert "Poisson equation" in page.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["poison"], "did you mean 'poisson'?"),
        (["runs/nowhere"], "does not exist"),
        (["poisson", "navier-stokes"], "give runs of one problem"),
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
    assert set(EASELS) == plane
    assert set(pretrained()) <= set(EASELS)
