"""How large are gradients, layer by layer? What float16 holds of them, by the factor on the loss.

    python validation/gradient_range.py [PROBLEM ...] [--steps 0 20] [--trained]

The CNOs of the paper's table learn in float32 on a CPU; `--trained` begins with the weights that
come with the package. Gradients of what a layer returns are of order 1/n in the n values of a
batch. They are given as they are at n = 2^17, 32 samples of 64², those of weights as they are:

    largest        log2 of the largest gradient of a convolution's weight (whatever n is)
    layers         of each layer's output, log2 of the median and of the largest gradient
    lost           by log2 of a factor, the layer that loses most by rounding to float16, ‖δg‖/‖g‖

Writes `results/validation-gradient-range.json`, a state of a network as it is known.
"""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcno import PROBLEMS, build_model, load_pretrained
from torchcno.data.dataset import load
from torchcno.data.normalization import Normalization
from torchcno.operators.activation import Activation
from torchcno.operators.convolution import Convolution
from torchcno.training.losses import relative_l1_loss
from torchcno.training.optimizers import make_optimizer
from torchcno.training.pairs import Pairs
from torchcno.training.step import eager_step

VALUES = 2**17
FACTORS = range(4, 16, 2)  # their logarithms
CPU = torch.device("cpu")


def pairs(name: str, samples: int) -> Pairs:
    fields = load(PROBLEMS[name](), "train", samples=samples)
    constants = Normalization.fit(fields)
    inputs, outputs = constants.normalize_inputs, constants.normalize_outputs
    return Pairs(inputs(fields.inputs), outputs(fields.outputs))


def network(name: str, trained: bool) -> nn.Module:
    torch.manual_seed(0)
    model = load_pretrained(name).network if trained else build_model("cno", PROBLEMS[name]())
    return model.requires_grad_().train()


def gradients(model: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[dict[str, Tensor], float]:
    """|g| of what every layer returns, as at n = VALUES, and the largest |g| of a weight."""
    found: dict[str, Tensor] = {}
    hooks = []
    for name, layer in model.named_modules():
        if isinstance(layer, Convolution | Activation | nn.BatchNorm2d):

            def watch(layer: nn.Module, given: Any, y: Tensor, name: str = name) -> None:
                y.register_hook(lambda g: found.update({name: g.abs().flatten()}))

            hooks.append(layer.register_forward_hook(watch))
    model.zero_grad()
    prediction = model(inputs)
    relative_l1_loss(prediction, targets).backward()
    for hook in hooks:
        hook.remove()
    weights = (weight for name, weight in model.named_parameters() if "convolution" in name)
    largest = max(float(weight.grad.abs().max()) for weight in weights if weight.grad is not None)
    return {name: g * prediction.numel() / VALUES for name, g in found.items()}, largest


def lost(g: Tensor, factor: float) -> float:
    """What rounding to float16 makes of g times the factor."""
    return float(((factor * g).half().double() / factor - g).norm() / g.double().norm())


def measured(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Any]:
    of_layers, largest = gradients(model, inputs, targets)
    worst = {k: max((lost(g, 2.0**k), name) for name, g in of_layers.items()) for k in FACTORS}
    return {
        "largest": rounded(largest),
        "lost": {k: [name, float(f"{error:.2g}")] for k, (error, name) in worst.items()},
        "layers": {
            name: [rounded(float(g.median())), rounded(float(g.max()))]
            for name, g in of_layers.items()
        },
    }


def rounded(value: float) -> float:
    return round(math.log2(value), 1)


def states(name: str, steps: list[int], batch: int, trained: bool) -> Iterator[tuple[int, Any]]:
    """Of a network that learns, after so many steps."""
    data, model = pairs(name, 16 * batch), network(name, trained)
    optimizer = make_optimizer("adamw", model, 1e-4 if trained else 1e-3, 1e-6, CPU)
    step = eager_step(model, optimizer, relative_l1_loss)
    for number in range(max(steps) + 1):
        chosen = torch.randint(len(data), (batch,))
        if number in steps:
            yield number, measured(model, data.inputs[chosen], data.targets[chosen])
        step(data.inputs[chosen], data.targets[chosen])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=["poisson"])
    parser.add_argument("--steps", type=int, nargs="+", default=[0, 20])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--trained", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    path = given.out / "validation-gradient-range.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = json.loads(path.read_text()) if path.exists() else {}
    for name in given.problems:
        for number, row in states(name, given.steps, given.batch, given.trained):
            key = f"{name}, {'trained' if given.trained else 'new'}, after {number} steps"
            rows[key] = row
            lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items())
            path.write_text(f"{{\n{lines}\n}}\n")
            print(f"{key}: largest of a weight 2^{row['largest']}, lost {row['lost']}", flush=True)


if __name__ == "__main__":
    main()
