"""Which layer aliases: the energy that each one folds back into the band of its grid.

A layer S maps samples on n points an axis to samples on m. On a periodic axis let y be the function
that it stands for: S x are the samples of y for the band-limited x, and those of the translate of y
for a translate of x. Sampling folds every mode k + am of y, a ≠ 0, onto its mode k; under a
translation by s steps they turn by e^{−2πi(k + am)s/m}, and turned back they still differ by
e^{−2πias}. The mean over s of what is turned back is therefore free of all that was folded:

    y_s = τ_{−s} S(τ_s x),    ȳ = mean_s y_s,    folded = mean_s ‖y_s − ȳ‖² / mean_s ‖y_s‖²

and by Parseval's identity `folded` is the share of energy that y has beyond the band. Nothing but S
itself is evaluated, on its own grid, so that any layer can be measured, filtered ones included:
there it is what passes through the filters.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from torchcno.evaluation.translation import translated
from torchcno.grids import unit_positions

Layer = Callable[[Tensor], Tensor]

# Translations j g / 8 of the coarser grid's step: a lattice that tells apart the modes that are
# folded once, a ∈ {−1, 0, 1}ᵈ, by a·g ≢ 0 mod 8. Those with a·g ≡ 0 go unseen.
SHIFTS = 8
GENERATOR: dict[int, tuple[int, ...]] = {1: (1,), 2: (1, 3), 3: (1, 2, 4)}

# Functions of one field that alias, in the forward of a module that has further modules inside.
# fmt: off
NONLINEAR = (
    "abs", "celu", "elu", "exp", "gelu", "hardswish", "hardtanh", "leaky_relu", "mish", "relu",
    "relu6", "selu", "sigmoid", "silu", "sin", "softplus", "tanh",
)
# fmt: on
RATE_CHANGING = [
    f"{kind}_pool{dims}d"
    for kind in ("max", "avg", "adaptive_max", "adaptive_avg")
    for dims in (1, 2, 3)
] + ["interpolate"]
WATCHED = frozenset([*NONLINEAR, *(f"{name}_" for name in NONLINEAR), *RATE_CHANGING])


@dataclass(frozen=True)
class LayerAliasing:
    """What one layer folds back."""

    name: str  # of the module, and of the function where it is called in the forward of another
    kind: str  # the class of the module, or the function
    size_in: tuple[int, ...]
    size_out: tuple[int, ...]
    folded: float  # the share of the output's energy that was folded back


def layer_aliasing(
    module: nn.Module, inputs: Float[Tensor, "batch channel *space"], periodic: bool = True
) -> tuple[LayerAliasing, ...]:
    """What each layer of `module` folds back as it runs on `inputs`, in the order of running.

    A layer is a module with no further ones inside, taken as a whole, or a call of a `WATCHED`
    function in the forward of a module with further ones. What is affine and keeps the grid folds
    nothing and is left out, as is what does not map a field to a field. A field is known by its
    number of axes, that of `inputs`.
    """
    recorder = Recorder(inputs.ndim)
    with ExitStack() as hooks, recorder:
        for name, part in module.named_modules():
            hooks.enter_context(part.register_forward_pre_hook(partial(recorder.enter, name)))
            hooks.enter_context(part.register_forward_hook(recorder.leave, always_call=True))
        module(inputs)
    found = []
    for call in recorder.calls:
        x, y = call.x, call.layer(call.x.clone())
        if not is_field(y, x.ndim) or (y.shape[2:] == x.shape[2:] and is_affine(call.layer, x)):
            continue
        sizes = tuple(x.shape[2:]), tuple(y.shape[2:])
        share = folded_energy(call.layer, x, periodic)
        found.append(LayerAliasing(call.name, call.kind, *sizes, share))
    return tuple(found)


def folded_energy(
    layer: Layer, x: Float[Tensor, "batch channel *space"], periodic: bool = True
) -> float:
    """The share of energy that `layer` folds back for the input x, as the head of this file has it.

    On a grid that is not periodic x is tapered to zero towards the edges and the result weighed
    alike, so that a translation carries nothing over them. What the edge still does to the layer
    counts too: the number is then an upper bound.
    """
    size_in, size_out = tuple(x.shape[2:]), tuple(layer(x.clone()).shape[2:])
    # Over one step of the coarser grid, whichever side of the layer that is on.
    coarser = tuple(map(min, size_in, size_out))
    inside, weight = (
        (1.0, 1.0) if periodic else (taper(n).to(x.device) for n in (size_in, size_out))
    )
    x_wide = x.double() * inside
    mean = torch.zeros((), dtype=torch.float64, device=x.device)
    energy = 0.0
    for shift in shifts(len(size_in)):
        there = [s * n / c for s, n, c in zip(shift, size_in, coarser, strict=True)]
        back = [-s * n / c for s, n, c in zip(shift, size_out, coarser, strict=True)]
        y = weight * translated(layer(translated(x_wide, there).to(x.dtype)).double(), back)
        mean = mean + y / SHIFTS
        energy += float(y.square().sum()) / SHIFTS
    return max(0.0, 1 - float(mean.square().sum()) / energy) if energy > 0 else 0.0


def shifts(dimension: int) -> list[tuple[float, ...]]:
    """The translations of the mean, in steps an axis."""
    generator = GENERATOR[dimension]
    return [tuple(j * g % SHIFTS / SHIFTS for g in generator) for j in range(SHIFTS)]


def taper(size: tuple[int, ...]) -> Float[Tensor, "..."]:
    """Π sin²(πξ) at cell centres: one in the middle, zero on the edges, in float64."""
    window = torch.ones((), dtype=torch.float64)
    for n in size:
        window = window[..., None] * torch.sin(torch.pi * unit_positions(n, "cell-centred")) ** 2
    return window


def is_affine(layer: Layer, x: Float[Tensor, "batch channel *space"]) -> bool:
    """Whether S(x) + S(x′) = 2 S((x + x′)/2) to rounding, for x′ the mirror image of x."""
    mirrored = x.flip(-1)
    ends = layer(x.clone()) + layer(mirrored.clone())
    bend = torch.linalg.vector_norm(ends - 2 * layer((x + mirrored) / 2))
    return bool(bend <= 100 * torch.finfo(x.dtype).eps * torch.linalg.vector_norm(ends))


def is_field(x: object, ndim: int) -> bool:
    """Whether x is a batch of real fields with `ndim` axes in all."""
    return isinstance(x, Tensor) and x.is_floating_point() and x.ndim == ndim


@dataclass(frozen=True)
class Call:
    """A layer, and the field that it was called with."""

    name: str
    kind: str
    layer: Layer
    x: Tensor


class Recorder(TorchFunctionMode):
    """Keeps what may be a layer while a module runs: modules by hooks, functions as a mode."""

    def __init__(self, ndim: int) -> None:
        super().__init__()
        self.ndim = ndim  # axes of a batch of fields
        self.calls: list[Call] = []
        self.running: list[tuple[str, nn.Module]] = []  # outermost first
        self.counts: Counter[str] = Counter()

    def enter(self, name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """A module begins."""
        self.running.append((name, module))
        if _is_leaf(module) and len(args) == 1:
            self.keep(name or "module", type(module).__name__, module.forward, args[0])

    def leave(self, *_: Any) -> None:
        """The module that began last ends."""
        self.running.pop()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """`func` itself, once a call of a watched one is kept."""
        options = kwargs or {}
        kind = getattr(func, "__name__", "")
        if kind in WATCHED and args and self.running and not _is_leaf(self.running[-1][1]):
            kind = kind.rstrip("_")
            name = f"{self.running[-1][0]}.{kind}".lstrip(".")
            self.keep(name, kind, lambda x: func(x, *args[1:], **options), args[0])
        return func(*args, **options)

    def keep(self, name: str, kind: str, layer: Layer, x: object) -> None:
        """Remember a call with a field: a copy of it, which the layer may overwrite."""
        if isinstance(x, Tensor) and is_field(x, self.ndim):
            self.counts[name] += 1
            count = self.counts[name]
            label = name if count == 1 else f"{name} ({count})"
            self.calls.append(Call(label, kind, layer, x.clone()))


def _is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None
