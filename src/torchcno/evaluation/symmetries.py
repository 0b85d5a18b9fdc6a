"""Which symmetries an operator has, as far as its data and a network that learnt them tell.

A symmetry g of the operator makes (g u, g v) a pair of it wherever (u, v) is one. A network N with
a small error on new pairs stands for the operator: if its error on moved pairs is as small, the
symmetry holds to that accuracy. If it is larger, either the symmetry does not hold, or moved inputs
are unlike any that the network has seen; how much of them lies outside the span of the training
inputs tells one from the other.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.metrics import relative_l1
from torchcno.training.augmentation import AUGMENTATIONS, ZEROS, Mover, contradiction

DRAWS = 8  # of a symmetry, over which errors are averaged
SAME = 1.5  # an error on moved pairs over that on others which still is as small
LEARNT = 0.5  # of the mean field's error: a network above it has not learnt the operator
UNLIKE = 2.0  # how much more of moved inputs may lie outside the span
SPAN = 0.999  # of the training inputs' energy, which makes up their span
MOST = 512  # samples that make it

FieldBatch = Float[Tensor, "sample channel *space"]


@dataclass(frozen=True)
class Symmetry:
    """What is known of one symmetry."""

    name: str
    error: float | None = None  # the network's on new pairs, a mean
    moved: float | None = None  # on the same pairs, moved
    verdict: str = ""  # "holds", "does not hold", or "not to tell: …"

    @property
    def holds(self) -> bool:
        """Whether training may use it."""
        return self.verdict == "holds"


def find_symmetries(
    network: Callable[[Tensor], Tensor],
    train: tuple[Tensor, Tensor],
    new: tuple[Tensor, Tensor],
    grid: Grid,
) -> list[Symmetry]:
    """Every symmetry of `AUGMENTATIONS`, judged by `network` on `new` pairs, all scaled as it sees.

    `train` are pairs that it was trained on.
    """
    u, v = new
    error = float(relative_l1(network(u), v).mean())
    mean = float(relative_l1(train[1].mean(0, keepdim=True).expand_as(v), v).mean())
    outside = _span_of(train[0])
    before = outside(u)
    found = []
    every, channels = torch.arange(len(u), device=u.device), max(u.shape[1], v.shape[1])
    for name, draw in AUGMENTATIONS.items():
        if draw is None:
            continue
        why = contradiction(name, grid, (u.shape[1], v.shape[1]))
        if why:
            found.append(Symmetry(name, verdict=f"not possible: {why}"))
            continue
        errors, beyond = [], []
        mover = Mover(u.shape[2:], u.device, ZEROS.get(name, 0.0))
        for seed in range(DRAWS):
            drawn = draw(u.shape[2:], channels, Generator().manual_seed(seed))
            numbers = torch.tensor([n for part in drawn for n in part], device=u.device)
            moved_u, moved_v = mover(u, every, numbers), mover(v, every, numbers)
            errors.append(float(relative_l1(network(moved_u), moved_v).mean()))
            beyond.append(outside(moved_u))
        moved, share = sum(errors) / DRAWS, sum(beyond) / DRAWS
        if error > LEARNT * mean:
            verdict = "not to tell: the network has not learnt"
        elif moved <= SAME * error:
            verdict = "holds"
        elif share > UNLIKE * before + 1e-3:
            verdict = "not to tell: moved inputs are unlike the training's"
        else:
            verdict = "does not hold"
        found.append(Symmetry(name, error, moved, verdict))
    return found


def _span_of(inputs: FieldBatch) -> Callable[[Tensor], float]:
    """How much of the energy of given inputs lies outside the span of these `inputs`."""
    flat = inputs[:MOST].double().flatten(1)
    mean = flat.mean(0)
    _, sizes, axes = torch.linalg.svd(flat - mean, full_matrices=False)
    energy = sizes.square().cumsum(0) / sizes.square().sum().clamp(min=1e-300)
    axes = axes[: int((energy < SPAN).sum()) + 1]

    def outside(u: Tensor) -> float:
        centred = u.double().flatten(1) - mean
        rest = centred - centred @ axes.T @ axes
        return float(rest.square().sum() / centred.square().sum().clamp(min=1e-300))

    return outside
