"""Where a run takes place."""

import atexit
import ctypes
import gc
import os
import platform
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchcno.selection import Options, option
from torchcno.training.recipe import Recipe

T = TypeVar("T")

# One of these is set where something or someone started a process on every node.
LAUNCHED = {"SLURM_JOB_ID", "RANK", "NODE_RANK", "MASTER_ADDR"}


@dataclass(frozen=True)
class Hardware(Options):
    """The devices of a run. Under torchrun `devices` and `nodes` are those of the launch."""

    accelerator: str = option(
        "auto", "auto is CUDA where there is a device", choices=("auto", "cpu", "cuda")
    )
    devices: int = option(1, "devices per node", least=1)
    nodes: int = option(1, "nodes of the run", least=1)
    strategy: str = option(
        "ddp",
        "several devices: ddp copies the weights, fsdp divides them",
        choices=("ddp", "fsdp"),
    )


@runtime_checkable
class Processes(Protocol):
    """The processes of a run, of which this is one: `OneProcess`, or Lightning's Fabric."""

    @property
    def device(self) -> torch.device: ...  # noqa: D102
    @property
    def world_size(self) -> int: ...  # noqa: D102
    @property
    def global_rank(self) -> int: ...  # noqa: D102
    @property
    def is_global_zero(self) -> bool: ...  # noqa: D102
    def barrier(self) -> None: ...  # noqa: D102
    def broadcast(self, obj: T) -> T: ...  # noqa: D102
    def all_reduce(self, data: Tensor, *, reduce_op: str) -> Any: ...  # noqa: D102
    def setup(self, module: nn.Module, *optimizers: Optimizer) -> Any: ...  # noqa: D102


class OneProcess:
    """A process that trains alone. Fabric takes longer to import than some runs take to train."""

    world_size, global_rank, is_global_zero = 1, 0, True

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def barrier(self) -> None:
        """Wait for the others: there are none."""

    def broadcast(self, obj: T) -> T:
        """What the first process has."""
        return obj

    def all_reduce(self, data: Tensor, *, reduce_op: str) -> Tensor:
        """The sum or mean over processes."""
        return data

    def setup(self, module: nn.Module, *optimizers: Optimizer) -> Any:
        """The network and its optimisers, as all processes train them."""
        return module, *optimizers


def launch(hardware: Hardware) -> Processes:
    """The processes of a run: this one, or several that divide each batch.

    Several are started here, unless torchrun or Slurm started them already.
    """
    if extent(hardware) == (1, 1) and not {*LAUNCHED, "SLURM_NTASKS"} & os.environ.keys():
        return OneProcess(pick_device(hardware.accelerator))
    fabric = _fabric(hardware)
    fabric.launch()
    if fabric.world_size > 1:
        atexit.register(_take_leave)
    return fabric


def is_first_process(hardware: Hardware) -> bool:
    """Whether this process writes the run's files: not so for the others of a data-parallel run.

    The rank of a run by itself is of something else: of the dask worker that a site started as one
    of many tasks, say.
    """
    return extent(hardware) == (1, 1) or _fabric(hardware).is_global_zero


def _fabric(hardware: Hardware) -> Any:
    """This process among those of a run, as the environment says which it is."""
    devices, nodes = extent(hardware)
    if nodes > 1 and not LAUNCHED & os.environ.keys():
        raise ValueError(
            f"{nodes} nodes, and nothing has started this process on each of them: it would wait "
            "for the others. Start it by srun or torchrun; docs/scaling.md shows how."
        )
    try:
        from lightning_fabric import Fabric
    except ImportError:  # the same package, as `lightning` carries it
        from lightning.fabric import Fabric  # type: ignore[import-not-found, no-redef]
    try:
        return Fabric(
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


def extent(hardware: Hardware) -> tuple[int, int]:
    """Devices a node, and nodes."""
    if not torch.distributed.is_torchelastic_launched():
        return hardware.devices, hardware.nodes
    devices = int(os.environ["LOCAL_WORLD_SIZE"])
    return devices, int(os.environ["WORLD_SIZE"]) // devices


def pick_device(name: str) -> torch.device:
    """The device of that name; "auto" is CUDA where there is a device."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {name!r}; use auto, cpu or cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("torch sees no CUDA device here; use the device cpu.")
    return torch.device(name)


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
        gc.collect()  # networks that are wrapped for several processes hold on to the threads
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
