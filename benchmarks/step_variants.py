"""A training step on a CUDA device with and without some changes, and what they do to its numbers.

    python benchmarks/step_variants.py [--seconds 60] [--out FILE.json]
                                       [--all | --compiled | --beside]

The step is that of the navier-stokes CNO, batch 32, in one CUDA graph, in TF32 unless said.

    float16        whole planes of the activation multiply in float16 with a scale, not in TF32
    normalised     batch norm is part of the activation; `+var_mean`: by other statistics
    fp16-mixed     fields are stored in float16, and convolutions multiply it; bf16-mixed likewise

Milliseconds a step, the variants by turns; and relative distances (L2) of the first prediction and
of all gradients together to those of float64. `--all` takes every pair of layout and boundary with
every pair of changes, in about twice the time; `--compiled` takes torch.compile alone, which needs
about a minute where its cache is empty; `--beside` takes what runs beside each other in the graph:
branches of the network, and the gradients of weights beside those of fields. Kernels are compiled
before, in parallel processes.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

import torchcno.training.step as training_step_module
from torchcno.arithmetic import FIELDS, LOSS_FACTORS, Precision, arithmetic
from torchcno.data.generate import available_cores
from torchcno.evaluation.timing import Stopwatch
from torchcno.models.cno import Block, Perceptron, Residual
from torchcno.operators import convolution, kernels, normalised, streams
from torchcno.operators.layout import laid_out
from torchcno.operators.normalised import normalised_activation
from torchcno.problems import NavierStokes
from torchcno.runs.bench_work import Batch, ByMatrices, Way, Work, training_step
from torchcno.runs.presets import build_model
from torchcno.training.pairs import MixedPrecision

DEVICE = torch.device("cuda")
BATCH, LEAST_ROUNDS = 32, 5


@dataclass(frozen=True)
class Variant:
    """A step, and the changes that it is made with."""

    channels_last: bool = True
    boundary: str = "zero"
    float16: bool = True
    normalised: bool = True
    statistics: str = ""  # "var_mean": by that function of torch
    precision: Precision = "tf32"
    beside: tuple[str, ...] = ("branches", "weights")  # what runs beside the rest
    blocks: bool = True  # of channels: convolutions with one in or out get some zeros
    compiled: bool = False  # the compiler then makes batch norm, `normalised` or not

    @property
    def way(self) -> Way:
        """What `cno bench` calls it."""
        fields = {"boundary": self.boundary}
        return Way(
            channels_first=not self.channels_last,
            precision=self.precision,
            compiled=self.compiled,
            fields=fields,
        )

    def __str__(self) -> str:
        changes = [name for name in ("float16", "normalised") if getattr(self, name)]
        if self.statistics:
            changes.append(self.statistics)
        if self.precision != "tf32":
            changes.append(self.precision)
        if self.compiled:
            changes.append("compiled")
        if self.beside != ("branches", "weights"):
            changes.append(f"{' and '.join(self.beside) or 'nothing'} beside")
        if not self.blocks:
            changes.append("single channels")
        layout = "last" if self.channels_last else "first"
        return f"{self.boundary}, channels {layout}, {'+'.join(changes) or 'neither'}"


def compiled_variants() -> list[Variant]:
    """What torch.compile gains, beside the same without."""
    return [
        Variant(precision=precision, compiled=compiled)
        for precision in ("tf32", "fp16-mixed")
        for compiled in (False, True)
    ]


def variants_beside() -> list[Variant]:
    """What it gains to run parts of a step beside each other, in either layout."""
    both = [
        Variant(channels_last=last, precision=precision)
        for precision in ("tf32", "fp16-mixed")
        for last in (True, False)
    ]
    parts = [Variant(beside=()), Variant(blocks=False), replace(both[2], beside=())]
    return [*both, *parts, Variant(beside=("branches",)), Variant(beside=("weights",))]


def variants(every: bool) -> list[Variant]:
    """The most telling first: where the time does not suffice, the last are left out."""
    both = [(True, True), (False, False)]
    chosen = [Variant(), Variant(precision="fp16-mixed")]
    chosen += [Variant(float16=f, normalised=n) for f, n in [both[1], (True, False), (False, True)]]
    chosen += [Variant(statistics="var_mean"), Variant(precision="bf16-mixed")]
    for last, boundary in [(False, "zero"), (True, "periodic"), (False, "periodic")]:
        if every or last or boundary == "zero":
            pairs = product((True, False), repeat=2) if every else both
            chosen += [Variant(last, boundary, f, n) for f, n in pairs]
    if every:
        chosen.append(Variant(channels_last=False, statistics="var_mean"))
    return chosen


def by_var_mean(x: Tensor, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """`normalised.batch_statistics` by a general reduction."""
    n = x.numel() / x.shape[1]
    variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    norm.num_batches_tracked.add_(1)
    running, new = [norm.running_mean, norm.running_var], [mean, variance * (n / (n - 1))]
    torch._foreach_lerp_(running, new, norm.momentum)
    return mean, variance


@contextmanager
def changed(variant: Variant) -> Iterator[None]:
    """Within the context the library works as the variant says."""
    patches: dict[tuple[Any, str], Any] = {}
    if not variant.float16:
        patches[kernels, "_scaled"] = lambda arithmetic, sigma: arithmetic
    if not variant.normalised:
        patches[normalised, "is_fused"] = lambda *_: False
    if variant.statistics == "var_mean":
        patches[normalised, "batch_statistics"] = by_var_mean
    if not variant.blocks:
        patches[convolution, "in_blocks"] = lambda *x_weight_bias: x_weight_bias
    if "branches" not in variant.beside:
        patches[streams, "is_captured"] = lambda x: False
    if "weights" not in variant.beside:
        patches[training_step_module, "aside"] = nullcontext
    with arithmetic("tf32"), ExitStack() as stack:
        for (module, name), function in patches.items():
            stack.enter_context(mock.patch.object(module, name, function))
        yield


def network(channels_last: bool, boundary: str) -> nn.Module:
    """The same weights for all."""
    torch.manual_seed(0)
    model = build_model("cno", NavierStokes(), boundary=boundary)
    if channels_last:
        laid_out(model)
    return model.to(DEVICE).train()


Layer = tuple[nn.Module, nn.Module, int, int]  # norm, activation, channels and points an axis


@lru_cache
def layers(channels_last: bool, boundary: str) -> list[Layer]:
    """One of each kind that the network has, with what it reads."""
    found = {}
    for module in network(channels_last, boundary).modules():
        if isinstance(module, Block | Residual | Perceptron):
            norm = getattr(module, "norm", None) or getattr(module, "norm1", None)
            activation = module.activation
            channels, size = len(activation.bias), activation.size_in[0]
            key = (channels, size, activation.size_out, norm is None)
            found[key] = (norm or nn.Identity(), activation, channels, size)
    return list(found.values())


def compile_layer(task: tuple[Variant, int]) -> str | None:
    """Run one kind of layer forward and backward; what went wrong, if anything did."""
    variant, index = task
    try:
        with changed(variant):
            norm, activation, channels, size = layers(variant.channels_last, variant.boundary)[
                index
            ]
            layout = torch.channels_last if variant.channels_last else torch.contiguous_format
            dtype = FIELDS.get(variant.precision)
            x = torch.randn(2, channels, size, size, device=DEVICE, dtype=dtype)
            x = x.contiguous(memory_format=layout)
            normalised_activation(x.requires_grad_(), norm, activation).sum().backward()
        torch.cuda.synchronize()
    except Exception as error:  # a compiler of many layers: there is no one type of its failures
        return f"{variant}, layer {index}: {type(error).__name__}: {error}"[:300]
    return None


def numbers(model: nn.Module, dtype: torch.dtype, loss_factor: float = 1.0) -> list[Tensor]:
    """A prediction of inputs of type `dtype`, and all gradients of its mean square."""
    inputs = torch.randn(BATCH, 1, 64, 64, generator=torch.Generator().manual_seed(1))
    prediction = model(inputs.to(DEVICE, dtype))
    loss = loss_factor * prediction.square().mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    together = torch.cat([g.double().flatten() for g in gradients]) / loss_factor
    return [prediction.detach().double(), together]


def truth(variant: Variant) -> list[Tensor]:
    """`numbers` in float64, the activation by its definition."""
    model = network(variant.channels_last, variant.boundary).double()
    for module in model.modules():
        if isinstance(module, Block | Residual | Perceptron):
            module.activation = ByMatrices(module.activation)
    return numbers(model, torch.float64)


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


def prepared(variant: Variant, true: list[Tensor]) -> tuple[Work, dict[str, Any]]:
    """The step, captured, and how far the variant's numbers are from the true ones."""
    with changed(variant):
        model = network(variant.channels_last, variant.boundary)
        trained = MixedPrecision(model, dtype=FIELDS.get(variant.precision))
        found = numbers(trained, torch.float32, LOSS_FACTORS.get(variant.precision, 1.0))
        step = training_step(variant.way, NavierStokes(), Batch(BATCH, 64, DEVICE))
        step()
    errors = {
        f"{what}_distance": distance(a, b)
        for what, a, b in zip(("prediction", "gradient"), found, true, strict=True)
    }
    return step, {"variant": str(variant), **asdict(variant), **errors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--out", type=Path, default=Path("step-variants.json"))
    chosen_by = parser.add_mutually_exclusive_group()
    chosen_by.add_argument("--all", action="store_true")
    chosen_by.add_argument("--compiled", action="store_true", help="with and without torch.compile")
    chosen_by.add_argument("--beside", action="store_true", help="what runs beside what")
    given = parser.parse_args()
    began = time.monotonic()
    chosen = variants(given.all)
    if given.compiled or given.beside:
        chosen = compiled_variants() if given.compiled else variants_beside()

    kinds = range(len(layers(channels_last=True, boundary="zero")))
    with ProcessPoolExecutor(available_cores(), multiprocessing.get_context("spawn")) as pool:
        failed = [why for why in pool.map(compile_layer, product(chosen, kinds)) if why]
    print(*failed, f"compiled in {time.monotonic() - began:.0f} s", sep="\n", flush=True)

    true: dict[str, list[Tensor]] = {}
    watches: dict[Variant, Stopwatch] = {}
    rows: dict[Variant, dict[str, Any]] = {}
    for variant in chosen:
        if time.monotonic() - began > 0.9 * given.seconds and watches:
            print(f"no time for: {variant}")
            continue
        if variant.boundary not in true:
            true[variant.boundary] = truth(variant)
        step, rows[variant] = prepared(variant, true[variant.boundary])
        watches[variant] = Stopwatch(step, DEVICE)

    while len(next(iter(watches.values())).blocks) < LEAST_ROUNDS or (
        time.monotonic() - began < given.seconds
    ):
        for variant, watch in watches.items():
            watch.measure()
            rows[variant]["milliseconds"] = round(1e3 * watch.seconds, 3)
        report = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "batch": BATCH,
            "failed": failed,
            "refused": [str(key) for key in kernels._refused],
            "rows": list(rows.values()),
        }
        given.out.write_text(json.dumps(report, indent=1) + "\n")
    for row in rows.values():
        print(
            f"{row['variant']:55} {row['milliseconds']:7.3f} ms   "
            f"prediction {row['prediction_distance']:.1e}   gradient {row['gradient_distance']:.1e}"
        )
    if kernels._refused:
        print("without a kernel:", *kernels._refused, sep="\n")


if __name__ == "__main__":
    main()
