import subprocess
import sys

import pytest
import torch

from torchcno.arithmetic import arithmetic

newer = pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="of newer versions of PyTorch"
)


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
from torchcno.arithmetic import arithmetic

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


@newer
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


FOLLOWING = """
import torch
from torchcno.arithmetic import arithmetic

torch.backends.fp32_precision = "tf32"
with arithmetic("32"):
    pass
torch.backends.fp32_precision = "ieee"
assert torch.backends.cuda.matmul.fp32_precision == "ieee"
assert torch.backends.cudnn.conv.fp32_precision == "ieee"
"""


@newer
def test_what_follows_the_switch_for_everything_follows_it_afterwards():
    subprocess.run([sys.executable, "-c", FOLLOWING], check=True)
