import platform
import subprocess
import sys

import pytest
import torch

from torchcno.training.hardware import LAUNCHED, Hardware, arithmetic, launch


def settings() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("32", ("highest", False)),
        ("tf32", ("high", True)),
        ("fp16-mixed", ("high", True)),
        ("bf16-mixed", ("high", True)),
    ],
)
def test_arithmetic_holds_within_its_context_alone(precision, expected):
    before = settings()
    with arithmetic(precision):
        assert settings() == expected
    assert settings() == before


SWITCHES = """
import sys, torch
from torchcno.training.hardware import arithmetic

def products():
    return [torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision]

exec(sys.argv[1])
before = products()
for precision, expected in (("32", "ieee"), ("tf32", "tf32")):
    with arithmetic(precision):
        assert products() == [expected] * 2
        # What torch.compile reads, too.
        assert torch.get_float32_matmul_precision() == ("highest" if precision == "32" else "high")
        assert torch.backends.cudnn.allow_tf32 == (precision == "tf32")
    assert products() == before, (before, products())
"""


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="of newer versions of PyTorch"
)
@pytest.mark.parametrize(
    "setting",
    [
        "cuda.matmul.fp32_precision = 'tf32'",
        "cudnn.conv.fp32_precision = 'ieee'",
        "fp32_precision = 'tf32'",
    ],
)
def test_arithmetic_gets_on_with_the_newer_switches(setting):
    # In a process of its own: the older switches cannot be read there any more.
    script = [sys.executable, "-c", SWITCHES, f"torch.backends.{setting}"]
    subprocess.run(script, check=True)


def test_one_process_is_the_first_of_one():
    fabric = launch(Hardware("cpu"))
    assert (fabric.device.type, fabric.world_size, fabric.is_global_zero) == ("cpu", 1, True)


def test_tasks_that_are_not_the_runs_are_refused_with_the_remedy(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NAME", "cno")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    with pytest.raises(ValueError, match=r"one task a device .* for one device: srun --ntasks=1"):
        launch(Hardware("cpu"))


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
