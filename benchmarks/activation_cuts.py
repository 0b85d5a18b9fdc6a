"""The fused activation on a CUDA device: planes whole against row by row, over cuts.

    python benchmarks/activation_cuts.py [--out FILE.json] [--boundary zero] [--shapes 64,64,64 ...]
    python benchmarks/activation_cuts.py --list

Shapes are (channels, size in, size out) of the navier-stokes CNO, batch 32, TF32, channels first.
Every candidate is compiled first, in parallel processes; Triton finds the results in its cache. The
JSON grows row by row. `--list` prints how each candidate shares out the work, without a device.
"""

import argparse
import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcno.data.generate import available_cores
from torchcno.operators import WindowedSinc, kernels, streaming
from torchcno.operators.filters import Boundary
from torchcno.operators.resampling import activation_matrices
from torchcno.operators.streaming import Cut, Plan
from torchcno.training.hardware import arithmetic

BATCH, CALLS, REPLAYS = 32, 5, 4
METHOD = f"microseconds a call: a CUDA graph of {CALLS} calls, the best of {REPLAYS} replays"
# Those of the network's planes that have 32 points an axis or more before and after.
SHAPES = [(64, 64, 64), (16, 64, 64), (32, 64, 32), (16, 32, 64), (32, 32, 32), (64, 32, 32)]
STRIPS = (16, 32, 64)
# (tile, warps); of 64 points there are 138 or 148 fine columns with zeros outside, else 128.
TILES = {"zero": [(64, 4), (64, 8), (96, 8), (160, 8)], "periodic": [(64, 4), (128, 4), (128, 8)]}
PLANS = {"forward": streaming.forward_plan, "backward": streaming.backward_plan}
WHOLE = kernels.LARGEST[2]


@dataclass(frozen=True)
class Candidate:
    """A launch to be timed."""

    shape: tuple[int, int, int]
    direction: str
    boundary: Boundary
    cut: Cut | None = None  # None: planes whole


def matrices(candidate: Candidate, device: str) -> tuple[list[Tensor], list[Tensor]]:
    """U and D of both axes, new every time: plans are remembered by them."""
    up, down = activation_matrices(*candidate.shape[1:], 2, WindowedSinc(), candidate.boundary)
    up, down = up.float().to(device), down.float().to(device)
    return [up, up.clone()], [down, down.clone()]


def choose(cut: Cut | None) -> None:
    """Have `kernels` take planes this way from now on."""
    kernels.LARGEST[2] = 0 if cut else WHOLE
    if cut:
        for cuts in (streaming.FORWARD, streaming.BACKWARD):
            cuts.update({False: cut, True: cut})


def plan(candidate: Candidate) -> Plan:
    """How the work of a candidate with a cut is shared out."""
    choose(candidate.cut)
    plan = PLANS[candidate.direction](*matrices(candidate, "cpu"), kernels.ROUNDINGS["tf32"])
    if plan is None:  # `kernels` would turn to matrix products
        raise ValueError(f"the filters of {candidate} cannot be streamed; leave its shape out.")
    return plan


def launch(candidate: Candidate, batch: int = BATCH) -> Callable[[], Any]:
    """The call, with fields of its own."""
    choose(candidate.cut)
    channels, n_in, n_out = candidate.shape
    ups, downs = matrices(candidate, "cuda")
    x = torch.randn(batch, channels, n_in, n_in, device="cuda")
    dy = torch.randn(batch, channels, n_out, n_out, device="cuda")
    bias = torch.randn(channels, device="cuda")
    if candidate.direction == "forward":
        return lambda: kernels.launch_forward(x, bias, ups, downs, "leaky_relu")
    return lambda: kernels.launch_backward(dy, x, bias, ups, downs, "leaky_relu")


def with_cuts(whole: Candidate) -> list[Candidate]:
    """The same work row by row, by every cut."""
    ways = product(STRIPS, TILES[whole.boundary])
    cuts = [Cut(planes=16, strip=strip, tile=tile, warps=warps) for strip, (tile, warps) in ways]
    return [replace(whole, cut=cut) for cut in cuts if cut.strip <= min(whole.shape[1:])]


def failure(candidate: Candidate) -> str | None:
    """Compile by a launch on one sample; what went wrong, if anything did."""
    try:
        with arithmetic("tf32"):
            launch(candidate, batch=1)()
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
    return round(min(times), 1)


def measure(whole: Candidate, failed: dict[Candidate, str]) -> dict[str, Any]:
    """A row of the report: planes whole, and by every cut that compiles, the fastest first."""

    def timed(candidate: Candidate) -> float:
        with arithmetic("tf32"):
            return microseconds(launch(candidate))

    cuts = {c.cut: timed(c) for c in with_cuts(whole) if c.cut and c not in failed}
    return {
        **dict(zip(("channels", "size_in", "size_out"), whole.shape, strict=True)),
        "direction": whole.direction,
        "boundary": whole.boundary,
        "whole": None if whole in failed else timed(whole),
        "row_by_row": [
            {"strip": cut.strip, "tile": cut.tile, "warps": cut.warps, "microseconds": time}
            for cut, time in sorted(cuts.items(), key=lambda item: item[1])
        ],
    }


def shape(text: str) -> tuple[int, int, int]:
    channels, n_in, n_out = map(int, text.split(","))
    if max(n_in, n_out) > WHOLE:
        raise argparse.ArgumentTypeError(f"{text}: only planes up to {WHOLE}² can be taken whole.")
    return channels, n_in, n_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("activation-cuts.json"))
    parser.add_argument("--boundary", nargs="+", default=list(TILES), choices=TILES)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, type=shape, metavar="C,IN,OUT")
    parser.add_argument("--list", action="store_true", help="print the candidates with cuts")
    given = parser.parse_args()
    wholes = [Candidate(*way) for way in product(given.shapes, PLANS, given.boundary)]
    if given.list:
        for candidate in (c for whole in wholes for c in with_cuts(whole)):
            grid = plan(candidate).grid(BATCH * candidate.shape[0])
            print(*asdict(candidate).values(), grid)
        return

    import triton

    candidates = [c for whole in wholes for c in (whole, *with_cuts(whole))]
    with ProcessPoolExecutor(available_cores(), multiprocessing.get_context("spawn")) as pool:
        outcomes = zip(candidates, pool.map(failure, candidates), strict=True)
        failed = {candidate: why for candidate, why in outcomes if why}
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "batch": BATCH,
        "precision": "tf32",
        "method": METHOD,
        "failed": [f"{candidate}: {why}" for candidate, why in failed.items()],
        "rows": [],
    }
    for whole in wholes:
        report["rows"].append(measure(whole, failed))
        given.out.write_text(json.dumps(report, indent=1) + "\n")
        print(json.dumps(report["rows"][-1]), flush=True)


if __name__ == "__main__":
    main()
