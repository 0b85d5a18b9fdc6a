"""How fast a network learns from fields on a disk, against the same fields in memory.

    python benchmarks/streaming.py --out results/bench-streaming-cpu.json

A set is written in each format and learnt from in memory, and from the disk with a window of an
eighth of it. Ways take turns within one run, and the fastest turn counts.
`read alone` is what the disk supplies where nobody learns: a network slower than that waits for
nothing.
Files lie in the operating system's cache, unless it is cleared between the runs.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import torch
import xarray

from torchcno import CNO, PRESETS, CNOConfig, Fields, train_on
from torchcno.data.normalization import Normalization
from torchcno.data.opening import open_stored
from torchcno.training import Pairs
from torchcno.training.hardware import Hardware, device_name
from torchcno.training.streaming import StreamedPairs

HOW = {"inputs": "a", "outputs": "u", "layout": "periodic", "dimension": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=512, help="in the training set")
    parser.add_argument("--points", type=int, default=32, help="per axis")
    parser.add_argument("--width", type=int, default=8, help="of the CNO")
    parser.add_argument("--turns", type=int, default=8, help="of every way")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, help="JSON file of the numbers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, Path(folder))
    print(f"{'from':10} {'samples learnt per second':>26} {'of memory':>10} {'read alone':>12}")
    for name, speed in found["samples_per_second"].items():
        read = found["read_per_second"].get(name, "")
        print(f"{name:10} {speed:26.0f} {found['of_memory'][name]:10.2f} {read:>12}")
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


def measure(options: argparse.Namespace, folder: Path) -> dict:
    files = write_files(folder, options.samples + 32, options.points)
    sets = {"memory": Fields.open(files["hdf5"], **HOW)}
    sets |= {name: open_stored(path, **HOW) for name, path in files.items()}
    speeds: dict[str, list[float]] = {name: [] for name in sets}
    for turn in range(options.turns):
        for name, fields in sets.items():
            speeds[name].append(learn(fields, options, folder / f"{name}-{turn}"))
    found = {name: max(some) for name, some in speeds.items()}  # others use the machine, too
    alone = {name: supply(sets[name], options) for name in files}
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {
        "device": device_name(device if options.device == "auto" else torch.device(options.device)),
        "samples": options.samples,
        "points": [options.points] * 2,
        "network": {"model": "cno", "width": options.width, "levels": 2},
        "window": max(32, options.samples // 8),
        "turns": options.turns,
        "samples_per_second": {name: round(speed, 1) for name, speed in found.items()},
        "read_per_second": {name: round(speed) for name, speed in alone.items()},
        "of_memory": {name: round(speed / found["memory"], 3) for name, speed in found.items()},
    }


def write_files(folder: Path, n: int, points: int) -> dict[str, Path]:
    """The same fields in every format."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((n, points, points), dtype=np.float32)
    both = {"a": a, "u": (a + np.roll(a, 1, -1)) / 2}
    files = {"hdf5": folder / "f.h5", "netcdf": folder / "f.nc"}
    with h5py.File(files["hdf5"], "w") as file:
        file.update(both)
    axes = ("sample", "y", "x")
    dataset = xarray.Dataset({name: (axes, values) for name, values in both.items()})
    chunks = (16, points, points)
    dataset.to_netcdf(
        files["netcdf"], engine="h5netcdf", encoding={k: {"chunksizes": chunks} for k in both}
    )
    try:
        dataset.to_zarr(
            folder / "f.zarr", consolidated=False, encoding={k: {"chunks": chunks} for k in both}
        )
        files["zarr"] = folder / "f.zarr"
    except ImportError:
        print("zarr is not installed, and is left out")
    return files


def learn(fields, options: argparse.Namespace, out: Path) -> float:
    """Samples per second of the faster of two epochs, of which the first warms up."""
    torch.manual_seed(0)
    size = (options.points,) * 2
    model = CNO(
        CNOConfig(size=size, levels=2, width=options.width, neck_blocks=1, skip_blocks=1,
                  lift_width=options.width, layout="periodic", boundary="periodic")
    )  # fmt: skip
    train, val = fields.split(options.samples, 32)
    recipe = replace(
        PRESETS["paper"],
        epochs=3,
        batch_size=32,
        evaluate_every=3,
        window=max(32, options.samples // 8),
    )
    seconds: list[float] = []
    train_on(
        model, train, val, out, recipe=recipe, hardware=Hardware(accelerator=options.device),
        on_epoch=lambda epoch: seconds.append(epoch.seconds),
    )  # fmt: skip
    return options.samples // 32 * 32 / min(seconds[1:])


def supply(fields, options: argparse.Namespace) -> float:
    """Samples per second that come from the disk where nobody learns from them."""
    scaling = Normalization.fit(fields, "symmetric")

    def scale(stored, numbers):
        some = stored.read(numbers)
        return Pairs(scaling.normalize_inputs(some.inputs), scaling.normalize_outputs(some.outputs))

    pairs = StreamedPairs(fields, scale, max(32, options.samples // 8)).first(options.samples)
    steps = options.samples // 32
    start = time.perf_counter()
    pairs.draw(torch.Generator().manual_seed(0), steps, 32)
    for step in range(steps):
        pairs.load(step)
    return steps * 32 / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
