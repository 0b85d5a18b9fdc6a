"""Where the time of a training step goes on a CUDA device: the CNO of a paper's row, many ways.

    python benchmarks/gpu_step.py [--out gpu_step.json] [--seconds 150] [--tune 100]

Prints a table of milliseconds a step (forward, backward, AdamW; the median over replays) and writes
it as JSON, with the kernels of the fastest way in TF32. A way that fails leaves its error there.
`--tune` times the fused activation alone over the ways to cut it, for `kernels.BLOCKS`.
"""

import argparse
import contextlib
import itertools
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from torchcno.models.cno import CNO, CNOConfig
from torchcno.operators import kernels
from torchcno.operators.filters import Nearest, WindowedSinc
from torchcno.operators.resampling import activation_matrices
from torchcno.training.losses import LOSSES
from torchcno.training.step import Step, eager_step, graphed_step


@dataclass(frozen=True)
class Way:
    """One way to run the same step."""

    activation: str = "fused"  # fused | dense | nearest: no filters at all
    graph: bool = True
    compiled: bool = False
    channels_last: bool = False
    precision: str = "tf32"  # tf32 | bf16
    search: bool = False  # cuDNN measures its algorithms

    def __str__(self) -> str:
        parts = [self.activation, "graph" if self.graph else "eager", self.precision]
        parts += ["channels-last"] * self.channels_last
        parts += ["compiled"] * self.compiled
        parts += ["cudnn-search"] * self.search
        return " ".join(parts)


LAST = Way(channels_last=True)
# The most telling first: what does not fit into the time is left out from the end.
WAYS = (
    Way(),
    LAST,
    Way("dense"),
    Way("nearest"),
    replace(LAST, search=True),
    Way(search=True),
    replace(LAST, precision="bf16"),
    replace(LAST, activation="nearest", search=True),
    Way("dense", graph=False),
    Way(graph=False),
    replace(LAST, compiled=True, search=True),
    replace(LAST, precision="bf16", search=True),
    replace(LAST, activation="nearest", precision="bf16", search=True),
    Way(compiled=True, search=True),
    replace(LAST, activation="nearest", compiled=True, search=True),
    replace(LAST, precision="bf16", compiled=True, search=True),
)

# Activations of the 64² network with d_e = 32: channels, points in, points out.
SHAPES = ((64, 64, 64), (32, 64, 32), (64, 32, 32), (16, 32, 64), (128, 16, 16), (128, 8, 8))


class Autocast(nn.Module):
    """The network in mixed precision."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """In bfloat16 where that is safe, the result in float32."""
        with torch.autocast("cuda", torch.bfloat16):
            y: Tensor = self.network(x)
        return y.float()


def build(way: Way, problem: str, batch: int) -> tuple[Step, Tensor, Tensor]:
    """The step, and a batch of noise for it."""
    config = CNOConfig(**CNO.PAPER[problem])
    if way.activation == "nearest":
        config = replace(config, filter=Nearest())
    torch.manual_seed(0)
    layout = torch.channels_last if way.channels_last else torch.contiguous_format
    network: nn.Module = CNO(config).cuda().to(memory_format=layout).train()
    if way.precision == "bf16":
        network = Autocast(network)
    rate = torch.tensor(1e-3, device="cuda")
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, capturable=True, fused=True)
    model = torch.compile(network, dynamic=False) if way.compiled else network
    make = graphed_step if way.graph else eager_step
    inputs, targets = torch.rand(2, batch, 1, *config.size, device="cuda")
    return make(model, optimizer, LOSSES["relative-l1"]), inputs, targets


@contextlib.contextmanager
def settings(way: Way) -> Iterator[None]:
    """Torch's global switches as this way wants them."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = way.search
    torch._dynamo.reset()
    dense = patch.object(kernels, "is_supported", lambda *arguments: False)
    with dense if way.activation == "dense" else contextlib.nullcontext():
        yield


def milliseconds(call: Callable[[], Any], repeats: int) -> float:
    """The median time of a call on the device, after a few to warm up."""
    for _ in range(5):
        call()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in marks:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in marks)


def measure(way: Way, problem: str, batch: int) -> dict[str, Any]:
    """Milliseconds a step, seconds to the first one, and the memory it takes."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with settings(way):
        began = time.perf_counter()
        step, inputs, targets = build(way, problem, batch)
        step(inputs, targets)
        torch.cuda.synchronize()
        first = time.perf_counter() - began
        return {
            "milliseconds": milliseconds(lambda: step(inputs, targets), 40 if way.graph else 15),
            "first_step_seconds": first,
            "peak_gigabytes": torch.cuda.max_memory_reserved() / 1e9,
        }


GROUPS = {  # a kernel is of the first group with a part of its name
    "activation": ("forward_2d", "backward_2d"),
    "layout": ("nchwToNhwc", "nhwcToNchw", "transpose", "Transpose"),
    "batch norm": ("batch_norm", "bn_", "BatchNorm", "batchnorm"),
    "optimiser": ("FusedAdam", "fused_adam", "multi_tensor"),
    "convolution": ("conv", "cudnn", "gemm", "xmma", "cutlass", "implicit", "wgrad", "dgrad"),
    "copy and fill": ("Memcpy", "Memset", "copy", "fill"),
}


def profile(way: Way, problem: str, batch: int, steps: int = 5) -> dict[str, Any]:
    """Microseconds a step of every kernel, and of groups of them."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with settings(way):
        step, inputs, targets = build(way, problem, batch)
        for _ in range(3):
            step(inputs, targets)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=activities) as trace:
            for _ in range(steps):
                step(inputs, targets)
            torch.cuda.synchronize()
    rows = [
        {"kernel": e.key[:160], "calls": e.count / steps, "us": e.self_device_time_total / steps}
        for e in trace.key_averages()
        if e.self_device_time_total > 0
    ]
    rows.sort(key=lambda row: -row["us"])
    groups: dict[str, dict[str, float]] = defaultdict(lambda: {"calls": 0.0, "us": 0.0})
    for row in rows:
        names = (g for g, parts in GROUPS.items() if any(p in row["kernel"] for p in parts))
        group = groups[next(names, "elementwise and other")]
        group["calls"] += row["calls"]
        group["us"] += row["us"]
    return {"way": str(way), "groups": dict(groups), "kernels": rows[:40]}


def candidates(n_in: int, n_out: int) -> Iterator[kernels.Blocks]:
    """Ways to cut an activation that leave registers and shared memory for it."""
    edge = kernels._block(max(n_in, n_out))
    planes = {16: (4, 8), 32: (1, 2, 4), 64: (1, 2, 4)}[edge]
    for p, rows, columns, warps in itertools.product(planes, (16, 32), (16, 32, 64), (4, 8)):
        tall = p * rows  # rows of the products over columns
        if 32 <= tall <= 128 and 8 <= tall * columns // (32 * warps) <= 32:
            yield kernels.Blocks(p, rows, columns, warps)


@dataclass(frozen=True)
class Trial:
    """One activation, cut one way."""

    shape: tuple[int, int, int]
    channels_last: bool
    backward: bool
    blocks: kernels.Blocks

    def call(self, batch: int) -> Callable[[], Any]:
        """A launch of it."""
        channels, n_in, n_out = self.shape
        up, down = activation_matrices(n_in, n_out, 2.0, WindowedSinc(), "zero")
        ups, downs = [up.float().cuda()] * 2, [down.float().cuda()] * 2
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        x = torch.randn(batch, channels, n_in, n_in, device="cuda").to(memory_format=layout)
        dy = torch.randn(batch, channels, n_out, n_out, device="cuda").to(memory_format=layout)
        bias = torch.randn(channels, device="cuda")
        if self.backward:
            return lambda: kernels.launch_backward(dy, x, bias, ups, downs, "leaky_relu")
        return lambda: kernels.launch_forward(x, bias, ups, downs, "leaky_relu")

    def table(self) -> dict[Any, Any]:
        """`kernels.BLOCKS` with these blocks everywhere."""
        return dict.fromkeys(kernels.BLOCKS, (self.blocks, self.blocks))


def compile_trial(trial: Trial) -> str:
    """Fill the cache on disk; the error where there is one."""
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        with patch.object(kernels, "BLOCKS", trial.table()):
            trial.call(1)()
            torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return ""


def tune(batch: int, seconds: float) -> list[dict[str, Any]]:
    """Microseconds of the activation alone for every shape, layout, direction and cut."""
    began = time.perf_counter()
    trials = [
        Trial(shape, channels_last, backward, blocks)
        for shape in SHAPES
        for channels_last in (True, False)
        for backward in (False, True)
        for blocks in candidates(*shape[1:])
    ]
    torch.backends.cuda.matmul.allow_tf32 = True
    with ProcessPoolExecutor(14, mp_context=get_context("spawn")) as pool:
        errors = list(pool.map(compile_trial, trials, chunksize=4))
    rows: list[dict[str, Any]] = []
    for trial, error in zip(trials, errors, strict=True):
        row = {**asdict(trial), "error": error}
        if not error and time.perf_counter() - began < seconds:
            with patch.object(kernels, "BLOCKS", trial.table()):
                row["microseconds"] = 1e3 * replayed(trial.call(batch))
        rows.append(row)
    return rows


def fastest(rows: list[dict[str, Any]]) -> dict[tuple[int, bool], tuple[Any, Any]]:
    """`kernels.BLOCKS` with the cut of the least time over all shapes that share an entry."""
    totals: dict[tuple[int, bool, bool], dict[kernels.Blocks, list[float]]] = {}
    for row in rows:
        if "microseconds" in row:
            edge = kernels._block(max(row["shape"][1:]))
            entry = totals.setdefault((edge, row["channels_last"], row["backward"]), {})
            entry.setdefault(kernels.Blocks(**row["blocks"]), []).append(row["microseconds"])
    table: dict[tuple[int, bool], tuple[Any, Any]] = dict(kernels.BLOCKS)
    for (edge, channels_last, backward), cuts in totals.items():
        shapes = max(len(times) for times in cuts.values())
        ranked = sorted((sum(t), i) for i, t in enumerate(cuts.values()) if len(t) == shapes)
        order = [list(cuts)[i] for _, i in ranked]
        for blocks, (total, _) in list(zip(order, ranked, strict=True))[:4]:
            where = "channels last" if channels_last else "channels first"
            what = "backward" if backward else "forward"
            print(f"{edge:4} {where:15} {what:9} {total:8.1f} us {blocks}", flush=True)
        pair = list(table[edge, channels_last])
        pair[backward] = order[0]
        table[edge, channels_last] = (pair[0], pair[1])
    return table


def replayed(call: Callable[[], Any], launches: int = 10) -> float:
    """Milliseconds a launch inside a graph, where the host has no part in it."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            call()
    return milliseconds(graph.replay, 10) / launches


class Report:
    """The results, on disk after each of them."""

    def __init__(self, path: Path, problem: str, batch: int) -> None:
        self.path, self.problem, self.batch = path, problem, batch
        self.rows: dict[str, Any] = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "problem": problem,
            "batch": batch,
        }
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, section: str, name: str, measured: Callable[[], Any]) -> Any:
        """The result of `measured`, or its error."""
        try:
            row = measured()
        except Exception as error:
            row = {"error": f"{type(error).__name__}: {error}"[:2000]}
            print(f"{section}: {name}: {row['error'][:300]}", flush=True)
        self.rows.setdefault(section, {})[name] = row
        self.path.write_text(json.dumps(self.rows, indent=1))
        return row

    def steps(self, section: str, ways: Iterable[Way], seconds: float) -> dict[Way, float]:
        """Milliseconds of the ways that could be measured in time."""
        began, times = time.perf_counter(), {}
        for way in ways:
            if time.perf_counter() - began > seconds:
                print(f"no time left for: {way}")
                continue
            row = self.add(
                section, str(way), lambda way=way: measure(way, self.problem, self.batch)
            )
            if "milliseconds" in row:
                times[way] = row["milliseconds"]
                first = row["first_step_seconds"]
                print(f"{way!s:50} {times[way]:7.3f} ms, first {first:5.1f} s", flush=True)
        return times

    def kernels(self, section: str, way: Way) -> None:
        """Where the time of this way goes."""
        row = self.add(section, str(way), lambda: profile(way, self.problem, self.batch))
        for name, group in row.get("groups", {}).items():
            print(f"  {name:30} {group['calls']:6.0f} kernels {group['us']:8.1f} us", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", default="navier-stokes", choices=CNO.PAPER)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("gpu_step.json"))
    parser.add_argument("--seconds", type=float, default=150, help="after which no way is begun")
    parser.add_argument("--tune", type=float, default=0, help="seconds for the activation alone")
    arguments = parser.parse_args()
    report = Report(arguments.out, arguments.problem, arguments.batch)
    times = report.steps("steps", WAYS, arguments.seconds)
    fused = [w for w in times if w.activation == "fused" and w.precision == "tf32" and w.graph]
    fused.sort(key=lambda way: times[way])
    for way in fused[:1]:
        report.kernels("kernels", way)
    if arguments.tune:
        rows = report.add("activation", "cuts", lambda: tune(arguments.batch, arguments.tune))
        if isinstance(rows, list):
            with patch.object(kernels, "BLOCKS", fastest(rows)):
                again = [*fused[:2], replace(LAST, precision="bf16", search=True)]
                report.steps("steps with the fastest cuts", again, arguments.seconds)
                for way in fused[:1]:
                    report.kernels("kernels with the fastest cuts", way)


if __name__ == "__main__":
    main()
