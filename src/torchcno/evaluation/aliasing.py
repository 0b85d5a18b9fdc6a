"""Continuous-discrete equivalence, measured: is a module one operator, whatever its grid?

    >>> result = torchcno.audit(module, inputs, layout="periodic")
    >>> result.passes(threshold=0.01)

Every grid Γ_n has its space B_n of band-limited functions (`torchcno.spectral`). Sampling T*_n and
synthesis T_n are inverse to each other between B_n and the values on Γ_n. A module that runs on any
grid is a family of maps g_n of values on Γ_n. It stands for one operator G if the diagram of the
paper's SM, "Continuous-Discrete Equivalence", commutes: ε = G − T_n g_n T*_n = 0 on B_n.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.arithmetic import arithmetic
from torchcno.evaluation.layers import LayerAliasing, layer_aliasing
from torchcno.evaluation.translation import translated, translation_error
from torchcno.grids import Layouts
from torchcno.metrics import relative_l2
from torchcno.sizes import refuse_without_memory
from torchcno.spectral import resample

LADDER = (0.5, 0.75, 1.0, 1.5, 2.0)  # of the inputs' points an axis
FIELDS_AT_ONCE = 8  # of the finest grid, that an audit holds in memory at least
# Steps of the inputs' grid, along every axis at once. 0.382 is no whole step of any finer grid
# inside a module: there, whole steps commute with what aliases.
STEPS = (0.25, 0.382, 0.5, 1.0)

FieldBatch = Float[Tensor, "batch channel *space"]
Outputs = Float[Tensor, "batch out_channel *out_space"]


class NotAField(ValueError):  # noqa: N818
    """What a module says, or does, where it should return a field."""


@dataclass(frozen=True)
class Rung:
    """A module on one grid against the same module on the finest, means over samples."""

    size: tuple[int, ...]
    aliasing: float | None = None  # ‖ε(f)‖ / ‖G(f)‖, all of it
    folded: float | None = None  # its part in the band of this grid
    failure: str | None = None  # why there are no numbers


@dataclass(frozen=True)
class Translation:
    """How far a module is from commuting with a translation, mean over samples."""

    steps: float  # of the grid, along every axis
    error: float  # ‖G(τf) − τG(f)‖ / ‖G(f)‖


@dataclass(frozen=True)
class Audit:
    """What `audit` found."""

    name: str
    layout: Layouts
    reference: tuple[int, ...] | None  # the finest grid that the module ran on
    ladder: tuple[Rung, ...]  # the other grids, from coarse to fine
    translations: tuple[Translation, ...]
    layers: tuple[LayerAliasing, ...]  # in the order of running
    notes: tuple[str, ...] = ()  # what could not be measured, and why

    @property
    def worst(self) -> float | None:
        """The largest error end to end: folded on the ladder, and of translations; None: neither.

        What a coarse grid cannot hold of the output is no fault of the module and does not count.
        """
        errors = [rung.folded for rung in self.ladder if rung.folded is not None]
        errors += [translation.error for translation in self.translations]
        return max(errors, default=None)

    def passes(self, threshold: float) -> bool:
        """Whether something was measured, and none of it lies above `threshold`."""
        return self.worst is not None and self.worst <= threshold

    def as_dict(self) -> dict[str, Any]:
        """All of it for a JSON file."""
        return {**asdict(self), "worst": self.worst}


def audit(
    module: nn.Module,
    inputs: Tensor,
    *,
    layout: Layouts | None = None,
    resolutions: Sequence[int] | None = None,
    homogeneous: bool = True,
    name: str | None = None,
) -> Audit:
    """Measure the aliasing of `module` end to end and layer by layer, on typical `inputs`.

    The module maps real fields `(batch, channel, *space)` to such fields. It is run in evaluation
    mode, without gradients and without TF32, on the device and in the type of its weights.
    `layout` says where the samples of the inputs lie; None: as the grid of a trained operator says,
    else periodic. `resolutions` are the ladder's points along the last axis (default: 1/2, 3/4, 1,
    3/2 and 2 times the inputs'); the other axes keep their proportion. Grids that the module
    refuses are reported with its reason. An operator that is not `homogeneous` knows places, and is
    not measured under translations.
    """
    u = _checked(module, inputs)
    if layout is None:
        own: Layouts = getattr(getattr(module, "grid", None), "layout", "periodic")
        layout = own
    notes = []
    with _evaluating(module):
        _applied(module, u)  # fails here, with its own error, where there is nothing to measure
        sizes = _ladder(tuple(u.shape[2:]), resolutions)
        refuse_large_ladder(u, sizes)
        reference, ladder = aliasing_errors(module, u, sizes, layout)
        if all(rung.folded is None for rung in ladder):
            notes.append("the aliasing error needs two grids that the module runs on.")
        translations: tuple[Translation, ...] = ()
        if layout == "periodic" and homogeneous:
            translations = translation_errors(module, u, STEPS)
        elif layout == "periodic":
            notes.append("no translations: places differ, and outputs do not move with inputs.")
        else:
            notes.append(f"no translations: the grid is {layout}, and they need a periodic one.")
            notes.append("layers are measured on fields tapered towards the edge: upper bounds.")
        layers = layer_aliasing(module, u, periodic=layout == "periodic")
    if not layers:
        notes.append("no layer maps a field to a field nonlinearly or to another grid.")
    return Audit(
        name or type(module).__name__, layout, reference, ladder, translations, layers, tuple(notes)
    )


def refuse_large_ladder(u: FieldBatch, sizes: Sequence[tuple[int, ...]]) -> None:
    """Refuse grids on which there is no room for the fields, and the matrices that lead there."""
    finest = max(sizes, key=math.prod)
    matrices = sum(n * m for n, m in zip(finest, u.shape[2:], strict=True))
    needed = 8 * (FIELDS_AT_ONCE * u.shape[0] * u.shape[1] * math.prod(finest) + matrices)
    points = " × ".join(map(str, finest))
    refuse_without_memory(needed, f"an audit on {points} points", "use coarser grids")


def aliasing_errors(
    module: nn.Module, u: FieldBatch, sizes: Sequence[tuple[int, ...]], layout: Layouts
) -> tuple[tuple[int, ...] | None, tuple[Rung, ...]]:
    """The aliasing error of the ReNO definition on each of `sizes`, the finest of them as G:

        ε_n(f) = ‖g_N(f) − T_n g_n(f)‖ / ‖g_N(f)‖,   f ∈ B_n the band-limited u

    SM, Eq. (aliasingerror). The part of ε in B_n, `folded`, is what one grid puts where another one
    has something else; the rest is what B_n cannot hold of the output. Returns the size of the
    finest grid that the module runs on, and a rung for every other one.
    """
    rungs: list[Rung] = []
    reference = None
    for size in sorted(sizes, reverse=True):
        try:
            if reference is None:
                _applied(module, _resampled(u, size, layout))
                reference = size
            else:
                rungs.append(_rung(module, u, size, reference, layout))
        except NotAField as failure:
            rungs.append(Rung(size, failure=str(failure)))
    return reference, tuple(reversed(rungs))


def translation_errors(
    module: nn.Module, u: FieldBatch, steps: Sequence[float]
) -> tuple[Translation, ...]:
    """‖G(τf) − τG(f)‖ / ‖G(f)‖ for translations by `steps` of the periodic grid of f, the band-
    limited u.

    Between band-limited functions sampling commutes with translations, and so does every operator
    that treats all places alike, unless it aliases. Unlike `aliasing_errors` this looks inside a
    module that always works on one grid of its own.
    """
    dimension = u.ndim - 2
    f = u.double()
    at_origin = _applied(module, translated(f, [0.0] * dimension).to(u)).double()
    found = []
    for step in steps:
        moved = _applied(module, translated(f, [step] * dimension).to(u)).double()
        ratios = [m / n for m, n in zip(moved.shape[2:], u.shape[2:], strict=True)]
        errors = translation_error(at_origin, moved, [step * ratio for ratio in ratios])
        found.append(Translation(step, float(errors.mean())))
    return tuple(found)


def _rung(
    module: nn.Module,
    u: FieldBatch,
    size: tuple[int, ...],
    finest: tuple[int, ...],
    layout: Layouts,
) -> Rung:
    # By way of the finest grid, so that f is in B_n: its own grid would keep the Nyquist mode.
    f = _resampled(_resampled(u, finest, layout), size, layout)
    coarse = _applied(module, f).double()
    fine = _applied(module, _resampled(f, finest, layout)).double()
    held, whole = tuple(coarse.shape[2:]), tuple(fine.shape[2:])
    synthesised = resample(coarse, whole, layout)
    in_band = resample(resample(fine, held, layout), whole, layout)
    folded = relative_l2(fine + (synthesised - in_band), fine)  # the difference over ‖fine‖
    return Rung(size, float(relative_l2(synthesised, fine).mean()), float(folded.mean()))


def _resampled(u: FieldBatch, size: tuple[int, ...], layout: Layouts) -> Outputs:
    return resample(u.double(), size, layout).to(u)


def _ladder(
    size: tuple[int, ...], resolutions: Sequence[int] | None
) -> tuple[tuple[int, ...], ...]:
    """The sizes for points along the last axis, in the proportions of `size`."""
    if resolutions is None:
        return tuple(tuple(round(factor * n) for n in size) for factor in LADDER)
    if min(resolutions, default=0) < 2:
        raise ValueError(f"resolutions {tuple(resolutions)} are no grids; give 2 points or more.")
    return tuple(tuple(round(r * n / size[-1]) for n in size) for r in sorted(set(resolutions)))


def _checked(module: nn.Module, inputs: Tensor) -> FieldBatch:
    """`inputs` on the device and in the type of the module's weights."""
    if not inputs.is_floating_point() or not 3 <= inputs.ndim <= 5 or not len(inputs):
        raise ValueError(
            f"inputs of shape {tuple(inputs.shape)} and type {inputs.dtype} cannot be audited; "
            "give real fields (sample, channel, *space) of one to three axes of space."
        )
    if not inputs.isfinite().all():
        raise ValueError("the inputs hold NaN or infinite values; remove those samples.")
    weight = next((p for p in module.parameters() if p.is_floating_point()), inputs)
    return inputs.detach().to(weight.device, weight.dtype)


def _applied(module: nn.Module, u: FieldBatch) -> Outputs:
    """The module's outputs, if they are real fields on a grid."""
    try:
        v = module(u)
    except Exception as error:  # whatever a module raises is its reason
        raise NotAField(" ".join(str(error).split()) or type(error).__name__) from error
    if not isinstance(v, Tensor):
        raise NotAField(f"the module returns a {type(v).__name__}; wrap it to return one tensor.")
    if v.is_complex():
        raise NotAField(
            "the module's outputs are complex; wrap it to return their real and imaginary parts "
            "as channels."
        )
    if v.ndim != u.ndim or len(v) != len(u):
        raise NotAField(
            f"the module maps {tuple(u.shape)} to {tuple(v.shape)}; an audit is for modules from "
            "fields to fields, (sample, channel, *space)."
        )
    if not v.isfinite().all():
        raise NotAField("the module's outputs hold NaN or infinite values.")
    if not v.flatten(1).any(1).all():
        raise NotAField("an output is zero everywhere, and errors relative to it mean nothing.")
    return v


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Within the context: evaluation mode, no gradients, float32 products in full.

    TF32 rounds to three digits, which would hide a smaller aliasing error. Not `inference_mode`:
    matrices that are computed once and kept would then be of no use to a later training.
    """
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad(), arithmetic("32"):
            yield
    finally:
        for part, training in modes.items():
            part.training = training
