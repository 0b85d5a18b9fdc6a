"""The fused activation on a CUDA device, launch by launch: how its programs are best cut.

    python benchmarks/activation_cuts.py [--seconds 240] [--out FILE.json] [--rows] [--precision P]
    python benchmarks/activation_cuts.py --list

The shapes are those of the navier-stokes CNO, batch 32, in the arithmetic of training (`--precision
fp16-mixed`: with fields stored in float16, for which one table has to serve as well). Every cut is
tried on the shape of most work of each entry of `kernels.BLOCKS`; then the fastest, and the one in
use, on all shapes of that entry with either boundary. Prints the table of the cuts that take the
network's activations the least time. `--rows` also times planes row by row, on the first shapes
with either boundary.

Cuts are compiled before, in parallel processes; Triton finds the results in its cache. The JSON
grows as they are timed. Without a device `--list` prints what would be tried.
"""

import argparse
import json
import multiprocessing
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcno.arithmetic import FIELDS, Precision, arithmetic
from torchcno.data.processes import available_cores
from torchcno.operators.activation import Activation
from torchcno.operators.filters import WindowedSinc
from torchcno.operators.fused import choice, kernels, row_plans
from torchcno.operators.fused.kernels import Blocks
from torchcno.operators.fused.row_plans import Cut
from torchcno.operators.resampling import activation_matrices
from torchcno.problems import NavierStokes
from torchcno.runs.presets import build_model

BATCH, CALLS, REPLAYS = 32, 5, 4
METHOD = f"microseconds a call: a CUDA graph of {CALLS} calls, the best of {REPLAYS} replays"
DIRECTIONS = ("forward", "backward")
BOUNDARIES: tuple[str, ...] = ("zero", "periodic")
WRITTEN = 50  # launches from one writing of the report to the next
FASTEST = 2  # cuts that go on to all shapes
REGISTERS = (16, 160)  # float32 numbers that a thread holds of a program's results: least, most
ROWS = 64  # of a product, at least: what four warps of the matrix units take
SHARES = (0.45, 0.6, 0.85, 1.0)  # of the time, when compiling and timing end, in either round
WHOLE = choice.LARGEST[2]
IN_USE = dict(kernels.BLOCKS)
# Row by row: (tile, warps); of 64 points there are 138 or 148 fine columns with zeros outside.
STRIPS = (16, 32, 64)
TILES = {"zero": [(64, 4), (64, 8), (96, 8), (160, 8)], "periodic": [(64, 4), (128, 4), (128, 8)]}

Shape = tuple[int, int, int]  # channels, points an axis before and after


@dataclass(frozen=True)
class Launch:
    """A call of a program to be timed."""

    shape: Shape
    direction: str
    boundary: str
    channels_last: bool
    cut: Blocks | Cut
    precision: Precision = "tf32"

    @property
    def entry(self) -> tuple[int, bool]:
        """Of `kernels.BLOCKS`."""
        return max(16, *self.shape[1:]), self.channels_last

    def as_dict(self) -> dict[str, Any]:
        """What it is to do, without the cut."""
        channels, n_in, n_out = self.shape
        sizes = {"channels": channels, "size_in": n_in, "size_out": n_out}
        return sizes | {k: v for k, v in asdict(self).items() if k not in ("shape", "cut")}


def shapes() -> Counter[Shape]:
    """Those of the network's activations, and how many there are of each."""
    network = build_model("cno", NavierStokes())
    own = [m for m in network.modules() if isinstance(m, Activation)]
    return Counter((len(a.bias), a.size_in[0], a.size_out[0]) for a in own)


def heaviest(of_network: Counter[Shape], edge: int) -> Shape:
    """The shape of most work among those of an entry."""
    own = [s for s in of_network if max(16, *s[1:]) == edge]
    return max(own, key=lambda s: of_network[s] * s[0] * (s[1] ** 2 + s[2] ** 2))


def whole_cuts(edge: int, direction: str) -> list[Blocks]:
    """Cuts of planes whose results neither overflow a program's registers nor leave them idle."""
    products = 1 if direction == "forward" else 2  # on the fine grid
    fine = [points for points in (16, 32, 64) if points <= 2 * edge]
    choices = product((1, 2, 4, 8, 16), fine, fine, (4, 8))
    cuts = [Blocks(*choice) for choice in choices]

    def numbers(cut: Blocks) -> float:
        rows = cut.planes * cut.fine_rows
        results = cut.planes * edge**2 + rows * (edge + products * cut.fine_columns)
        return results / (32 * cut.warps)

    fitting = [
        cut
        for cut in cuts
        if REGISTERS[0] <= numbers(cut) <= REGISTERS[1] and cut.planes * cut.fine_rows >= ROWS
    ]
    # Those that take somewhat more than 128 registers in all may do with 128.
    limited = [replace(cut, registers=128) for cut in fitting if 48 <= numbers(cut) <= 96]
    return fitting + limited


def row_cuts(shape: Shape, boundary: str) -> list[Cut]:
    """Cuts of planes that are taken row by row."""
    ways = product((s for s in STRIPS if s <= min(shape[1:])), TILES[boundary])
    return [Cut(planes=16, strip=strip, tile=tile, warps=warps) for strip, (tile, warps) in ways]


def first_round(of_network: Counter[Shape], rows: bool, precision: Precision) -> list[Launch]:
    """Every cut on one shape an entry, the cuts in use first."""
    columns: list[list[Launch]] = []
    for (edge, last), used in sorted(IN_USE.items(), key=lambda item: -item[0][0]):
        if edge not in {max(16, *shape[1:]) for shape in of_network}:
            continue
        shape = heaviest(of_network, edge)
        for direction, now in zip(DIRECTIONS, used, strict=True):
            cuts = dict.fromkeys([now, *whole_cuts(edge, direction)])
            columns.append([Launch(shape, direction, "zero", last, cut) for cut in cuts])
            for boundary in BOUNDARIES if rows and edge >= 32 else ():
                by_rows = row_cuts(shape, boundary)
                columns.append([Launch(shape, direction, boundary, last, cut) for cut in by_rows])
    # By turns: where the time does not suffice, no entry goes without.
    turns = (launch for turn in zip_longest(*columns) for launch in turn if launch is not None)
    return [replace(launch, precision=precision) for launch in turns]


def second_round(
    of_network: Counter[Shape], times: dict[Launch, float], precision: Precision
) -> Iterator[Launch]:
    """The fastest cuts on all shapes with either boundary."""
    for (edge, last), used in IN_USE.items():
        for direction, now in zip(DIRECTIONS, used, strict=True):
            tried = {
                launch.cut: time_
                for launch, time_ in times.items()
                if (launch.entry, launch.direction) == ((edge, last), direction)
                and isinstance(launch.cut, Blocks)
            }
            if not tried:
                continue
            best = sorted(tried, key=lambda cut: tried[cut])[:FASTEST]
            for cut in dict.fromkeys([*best, now, replace(best[0], stages=3)]):
                for shape in (s for s in of_network if max(16, *s[1:]) == edge):
                    for boundary in BOUNDARIES:
                        yield Launch(shape, direction, boundary, last, cut, precision)


@lru_cache
def exact_matrices(n_in: int, n_out: int, boundary: str) -> tuple[Tensor, Tensor]:
    return activation_matrices(n_in, n_out, 2, WindowedSinc(), boundary)


def prepared(launch: Launch, batch: int = BATCH) -> Callable[[], Any]:
    """The call, with fields of its own; `kernels` cuts all calls so from now on."""
    choice.LARGEST_PREFERRED[2] = WHOLE if isinstance(launch.cut, Blocks) else 0
    if isinstance(launch.cut, Blocks):
        kernels.BLOCKS[launch.entry] = (launch.cut, launch.cut)
    else:
        for cuts in (row_plans.FORWARD, row_plans.BACKWARD):
            cuts.update({False: launch.cut, True: launch.cut})
    channels, n_in, n_out = launch.shape
    layout = torch.channels_last if launch.channels_last else torch.contiguous_format
    dtype = FIELDS.get(launch.precision)
    x, dy = (
        torch.randn(batch, channels, n, n, device="cuda", dtype=dtype).contiguous(
            memory_format=layout
        )
        for n in (n_in, n_out)
    )
    bias = torch.randn(channels, device="cuda")
    # New ones every time: plans are remembered by them.
    up, down = (m.float().cuda() for m in exact_matrices(n_in, n_out, launch.boundary))
    both = [up, up.clone()], [down, down.clone()]
    if launch.direction == "forward":
        return lambda: kernels.launch_forward(x, bias, *both, "leaky_relu")
    return lambda: kernels.launch_backward(dy, x, bias, *both, "leaky_relu")


def failure(launch: Launch) -> str | None:
    """Compile by a call on one sample; what went wrong, if anything did."""
    try:
        with arithmetic("tf32"):
            prepared(launch, batch=1)()
        torch.cuda.synchronize()
    except Exception as error:  # a compiler of many layers: there is no one type of its failures
        return f"{type(error).__name__}: {error}"[:200]
    return None


def microseconds(call: Callable[[], Any]) -> float:
    """Of one call, by METHOD."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * start.elapsed_time(end) / CALLS)
    return round(min(times), 2)


@dataclass
class Report:
    """What came of the launches, on disk as it comes."""

    out: Path
    began: float
    seconds: float
    of_network: Counter[Shape]
    times: dict[Launch, float]
    failed: dict[Launch, str]

    def until(self, share: float) -> float:
        """Seconds left until this share of the time is spent."""
        return max(0.0, self.began + share * self.seconds - time.monotonic())

    def run(
        self, launches: Sequence[Launch], pool: Executor, compiling: float, timing: float
    ) -> None:
        """Compile until one share of the time is spent, and time what was ready until another."""
        new = [launch for launch in launches if launch not in self.times]
        futures = {pool.submit(failure, launch): launch for launch in new}
        done, late = wait(futures, timeout=self.until(compiling))
        for future in late:
            future.cancel()
        for future in done:
            if why := future.result():
                self.failed[futures[future]] = why
        ready = {futures[future] for future in done} - set(self.failed)
        for launch in (launch for launch in new if launch in ready):
            if not self.until(timing):
                break
            with arithmetic("tf32"):
                self.times[launch] = microseconds(prepared(launch))
            if len(self.times) % WRITTEN == 0:
                self.write()
        print(f"{len(ready)} of {len(new)} compiled, {len(self.times)} timed,", end=" ")
        print(f"{len(self.failed)} failed, {time.monotonic() - self.began:.0f} s", flush=True)
        self.write()

    def write(self) -> None:
        """All that is known, the fastest first for each shape."""
        import triton

        rows = [
            launch.as_dict() | {"cut": asdict(launch.cut), "microseconds": self.times[launch]}
            for launch in self.times
        ]
        work = ("channels", "size_in", "size_out", "direction", "boundary", "channels_last")
        rows.sort(key=lambda row: (*(row[what] for what in work), row["microseconds"]))
        report = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "batch": BATCH,
            "method": METHOD,
            "failed": [f"{launch}: {why}" for launch, why in self.failed.items()],
            "launches": rows,
        }
        self.out.write_text(json.dumps(report, indent=1) + "\n")

    def totals(self, entry: tuple[int, bool], direction: str) -> dict[Blocks, float]:
        """Microseconds of the network's launches of an entry, by cut, mean over boundaries."""
        times: dict[Blocks, dict[Any, float]] = defaultdict(dict)
        for launch, time_ in self.times.items():
            own = (launch.entry, launch.direction) == (entry, direction)
            if own and isinstance(launch.cut, Blocks):
                times[launch.cut][launch.shape, launch.boundary] = time_
        most = max(map(len, times.values()), default=0)
        return {
            cut: sum(self.of_network[shape] * time_ for (shape, _), time_ in of_cut.items()) / 2
            for cut, of_cut in times.items()
            if len(of_cut) == most
        }


def written(cut: Blocks) -> str:
    given = [str(n) for n in (cut.planes, cut.fine_rows, cut.fine_columns, cut.warps)]
    if cut.stages != 2:
        given.append(f"stages={cut.stages}")
    if cut.registers is not None:
        given.append(f"registers={cut.registers}")
    return f"Blocks({', '.join(given)})"


def print_table(report: Report) -> None:
    """The fastest cuts, ready for `kernels.py`, with what they gain."""
    for entry, used in IN_USE.items():
        best, gains = [], []
        for direction, now in zip(DIRECTIONS, used, strict=True):
            totals = report.totals(entry, direction)
            best.append(min(totals, key=lambda cut: totals[cut]) if totals else now)
            gains.append(f"{totals[now]:.0f} -> {totals[best[-1]]:.0f}" if now in totals else "?")
        print(f"    {entry}: ({', '.join(map(written, best))}),  # us a step: {'; '.join(gains)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("activation-cuts.json"))
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--rows", action="store_true", help="planes row by row, too")
    parser.add_argument("--precision", choices=("tf32", *FIELDS), default="tf32")
    parser.add_argument("--list", action="store_true", help="print the launches of the first round")
    given = parser.parse_args()
    of_network = shapes()
    launches = first_round(of_network, given.rows, given.precision)
    if given.list:
        print(*launches, sep="\n")
        return
    report = Report(given.out, time.monotonic(), given.seconds, of_network, {}, {})
    with ProcessPoolExecutor(available_cores(), multiprocessing.get_context("spawn")) as pool:
        report.run(launches, pool, *SHARES[:2])
        second = second_round(of_network, report.times, given.precision)
        report.run(list(second), pool, *SHARES[2:])
    print_table(report)


if __name__ == "__main__":
    main()
