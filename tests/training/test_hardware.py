import os
import platform
import subprocess
import sys

import pytest

from torchcno.training.hardware import LAUNCHED, Hardware, is_first_process, launch


def test_one_process_is_the_first_of_one():
    fabric = launch(Hardware("cpu"))
    assert (fabric.device.type, fabric.world_size, fabric.is_global_zero) == ("cpu", 1, True)


def test_tasks_that_are_not_the_runs_are_refused_with_the_remedy(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NAME", "cno")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    with pytest.raises(ValueError, match=r"one task a device .* for one device: srun --ntasks=1"):
        launch(Hardware("cpu"))


TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
SLURM = {
    "SLURM_JOB_ID": "1",
    "SLURM_JOB_NAME": "train",
    "SLURM_NODELIST": "a,b",
    "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2",
}


@pytest.mark.parametrize(
    ("environment", "nodes", "is_first"),
    [
        ({}, 1, True),
        ({"LOCAL_RANK": "1"}, 1, False),  # started by Fabric
        ({"RANK": "3"}, 1, True),  # of something else: two processes begin here
        ({"RANK": "0", "LOCAL_RANK": "1"}, 1, False),
        ({"NODE_RANK": "0"}, 2, True),
        ({"NODE_RANK": "1"}, 2, False),
        ({"NODE_RANK": "1", "LOCAL_RANK": "0"}, 2, False),
        ({**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0", "SLURM_PROCID": "1"}, 2, True),
        ({**TORCHRUN, "RANK": "2", "LOCAL_RANK": "0"}, 2, False),
        ({**SLURM, "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"}, 2, True),
        ({**SLURM, "SLURM_PROCID": "2", "SLURM_NODEID": "1", "SLURM_LOCALID": "0"}, 2, False),
        # An interactive shell of Slurm's is no task of a run.
        ({**SLURM, "SLURM_JOB_NAME": "bash", "SLURM_PROCID": "1"}, 1, True),
    ],
)
def test_one_process_of_several_is_the_first(environment, nodes, is_first, monkeypatch):
    for name in os.environ:
        if name.startswith("SLURM") or name in {"RANK", "NODE_RANK", "GROUP_RANK", "LOCAL_RANK"}:
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_first_process(Hardware("cpu", devices=2, nodes=nodes)) is is_first


FAULTS = """
import resource, torch
from torchcno.training.hardware import reuse_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

reuse_memory()
before = faults()
for step in range(40):
    torch.ones(1 << 24)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of the C library of GNU")
def test_memory_is_asked_for_once():
    script = [sys.executable, "-c", FAULTS]
    result = subprocess.run(script, check=True, capture_output=True, text=True)
    # A tensor of 64 MiB has 16384 small pages. The first few find small blocks in their way and
    # take new memory; left alone, all 40 do.
    assert int(result.stdout) < 20 * 16384


def test_numbers_of_devices_and_nodes_are_checked(monkeypatch):
    with pytest.raises(ValueError, match="devices is 0; use 1 or more"):
        Hardware(devices=0)
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="by srun or torchrun"):
        launch(Hardware(accelerator="cpu", nodes=2))
