"""One training step of our FNO against the one of `neuraloperator`, same size, same run.

    pip install neuraloperator
    python benchmarks/fno_step.py [--problem poisson] [--batch 32] [--device cuda] [--steps 20]

Prints JSON: milliseconds a step (forward, backward, AdamW; the median) and our time over theirs.
The two take turns, step by step, so that whatever else the machine does falls on both.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from torchcno.models import FNO, count_parameters
from torchcno.runs.presets import PAPER


def reference(config: FNO.Config) -> nn.Module:
    """The network of `neuraloperator` with the same layers, widths and modes."""
    from neuralop import models as neuralop

    return neuralop.FNO(
        n_modes=(2 * config.modes, 2 * config.modes - 2),  # it keeps n/2 + 1 of the second axis
        in_channels=config.in_channels,
        out_channels=config.out_channels,
        hidden_channels=config.width,
        n_layers=config.layers,
        lifting_channel_ratio=config.hidden_width / config.width,
        projection_channel_ratio=config.hidden_width / config.width,
        use_channel_mlp=False,
    )


def training_step(model: nn.Module, batch: torch.Tensor) -> Callable[[], None]:
    """A step of AdamW on `batch`."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        (model(batch) - batch).abs().mean().backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None], synchronize: Callable[[], None]) -> float:
    synchronize()
    start = time.perf_counter()
    step()
    synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", default="poisson", choices=PAPER["fno"])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()

    device = torch.device(arguments.device)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    torch.manual_seed(0)
    batch = torch.randn(arguments.batch, 1, arguments.size, arguments.size, device=device)
    # Both without domain padding: the two libraries pad in different ways.
    config = FNO.Config(**{**PAPER["fno"][arguments.problem].network, "pad": 0})
    models = {"torchcno": FNO(config).to(device), "neuraloperator": reference(config).to(device)}
    steps = {name: training_step(model, batch) for name, model in models.items()}

    times: dict[str, list[float]] = {name: [] for name in steps}
    for i in range(arguments.steps + 3):
        for name, step in steps.items():
            elapsed = seconds(step, synchronize)
            if i >= 3:  # the first steps allocate and plan
                times[name].append(elapsed)

    milliseconds = {name: 1e3 * statistics.median(t) for name, t in times.items()}
    result = {
        **vars(arguments),
        "device_name": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "parameters": {name: count_parameters(m).entries for name, m in models.items()},
        "milliseconds_a_step": milliseconds,
        "ratio": milliseconds["torchcno"] / milliseconds["neuraloperator"],
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
