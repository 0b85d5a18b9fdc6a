"""Where a run takes place, and in which arithmetic."""

import atexit
import ctypes
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import torch

from torchcno.training.recipe import Precision, Recipe

try:
    from lightning_fabric import Fabric
except ImportError:  # the same package, as `lightning` carries it
    from lightning.fabric import Fabric  # type: ignore[import-not-found, no-redef]

__all__ = [
    "FIELDS",
    "LOSS_FACTORS",
    "Fabric",
    "Hardware",
    "arithmetic",
    "device_name",
    "extent",
    "is_captured",
    "launch",
    "reuse_memory",
]

# What fields are stored as by precision, where that is not float32.
FIELDS: dict[Precision, torch.dtype] = {
    "fp16-mixed": torch.float16,
    "bf16-mixed": torch.bfloat16,
}
# Float16 ends at 65504 and has all its bits from 2^-14 on. The gradient of a relative loss is of
# order 1/mean|v| in the last weights, up to 27 for our problems, and in the n values of a batch of
# order 1/n, in deep layers 2^-9/n. Both fit with this factor: at n = 2^17 the largest seen was
# 2^14.5, and no layer's gradient lost more than 0.3 % (validation/gradient_range.py).
LOSS_FACTORS: dict[Precision, float] = {"fp16-mixed": 2.0**10}
# One of these is set where something or someone started a process on every node.
LAUNCHED = {"SLURM_JOB_ID", "RANK", "NODE_RANK", "MASTER_ADDR"}


@dataclass(frozen=True)
class Hardware:
    """The devices of a run. Under torchrun `devices` and `nodes` are those of the launch."""

    accelerator: Literal["auto", "cpu", "cuda"] = "auto"  # auto: CUDA where there is a device
    devices: int = 1  # a node
    nodes: int = 1
    strategy: Literal["ddp", "fsdp"] = "ddp"  # of several: fsdp divides the weights among them

    def __post_init__(self) -> None:
        for name in ("devices", "nodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; use 1 or more.")


def launch(hardware: Hardware) -> Fabric:
    """The processes of a run: this one, or several that divide each batch.

    Several are started here, unless torchrun or Slurm started them already.
    """
    devices, nodes = extent(hardware)
    if nodes > 1 and not LAUNCHED & os.environ.keys():
        raise ValueError(
            f"{nodes} nodes, and nothing has started this process on each of them: it would wait "
            "for the others. Start it by srun or torchrun; docs/scaling.md shows how."
        )
    try:
        fabric = Fabric(
            accelerator=hardware.accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy="ddp" if devices * nodes > 1 else "auto",
        )
    except RuntimeError as error:  # by what Slurm says of the tasks
        raise ValueError(
            f"{error} Start one task a device (srun --ntasks-per-node), and give --devices and "
            "--nodes to match; for one device: srun --ntasks=1."
        ) from error
    fabric.launch()
    if fabric.world_size > 1:
        atexit.register(_take_leave)
    return fabric


def extent(hardware: Hardware) -> tuple[int, int]:
    """Devices a node, and nodes."""
    if not torch.distributed.is_torchelastic_launched():
        return hardware.devices, hardware.nodes
    devices = int(os.environ["LOCAL_WORLD_SIZE"])
    return devices, int(os.environ["WORLD_SIZE"]) // devices


def device_name(device: torch.device) -> str:
    """The device as its maker calls it, or as near as one comes."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def is_captured(recipe: Recipe, device: torch.device, processes: int) -> bool:
    """Whether a step is one CUDA graph: the fast way, for a process that is alone."""
    return recipe.fast != "off" and device.type == "cuda" and processes == 1


def _take_leave() -> None:
    """End the communication of processes while Python is still there.

    Its threads outlive the last message by a moment. One that then asks for an interpreter which is
    gone aborts a process that had done all its work.
    """
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


# Of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def reuse_memory() -> None:
    """From now on, freed tensors of this process leave their memory to the next ones.

    The C library of GNU returns large blocks to the system at once. Every step then asks for them
    again, and the system clears them page by page: two fifths of an FNO's step.
    Other C libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)  # no block is mapped apart from the heap
        mallopt(_TRIM_THRESHOLD, -1)  # and the heap never shrinks


OF_CUDA = ("cuda.matmul", "cudnn.conv", "cudnn.rnn")  # in `torch.backends`


@contextmanager
def arithmetic(precision: Precision) -> Iterator[None]:
    """Within the context, CUDA multiplies float32 in full ("32") or as TF32 (the others)."""
    tf32, way_back = precision != "32", _way_back()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    for switch in _newer_switches(*OF_CUDA):
        switch.fp32_precision = "tf32" if tf32 else "ieee"
    try:
        yield
    finally:
        for restore in way_back:
            restore()


def _way_back() -> list[Callable[[], None]]:
    """What brings back the arithmetic that is set now.

    PyTorch has two generations of switches, and its compiler reads both. To set an older one sets
    the newer, but to read it is an error where a program has set the newer alone.
    """
    cudnn = torch.backends.cudnn
    way_back: list[Callable[[], None]] = []
    with suppress(RuntimeError):
        matmul = torch.get_float32_matmul_precision()
        way_back.append(partial(torch.set_float32_matmul_precision, matmul))
    with suppress(RuntimeError):
        way_back.append(partial(setattr, cudnn, "allow_tf32", cudnn.allow_tf32))
    for switch in _newer_switches(*OF_CUDA, "mkldnn.matmul"):  # an older one is of both
        way_back.append(partial(setattr, switch, "fp32_precision", switch.fp32_precision))
    return way_back


def _newer_switches(*names: str) -> list[Any]:
    """Those of `torch.backends` with an `fp32_precision` of their own: none before PyTorch 2.9."""
    there = hasattr(torch.backends.cuda.matmul, "fp32_precision")
    return [attrgetter(name)(torch.backends) for name in names] if there else []
