"""Is an input like those of the training? A distance in features, and its rank among known inputs.

Features are of two kinds, so that a large distance says why:

    texture   log10 of the share of energy in bands of wavenumbers, and of slopes; mean, size and
              extremes of the values
    places    means over a grid of blocks

Their mean and covariance are those of training inputs. The distance of a kind is Mahalanobis'. So
blocks that are neighbours tell correlation lengths, too: values that differ where training inputs
have the same are far away. The rank is among validation inputs, which the statistics do not know:
for a new input drawn like them the score is uniform, and above 1 − α with probability α or less.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from torchcno.evaluation.spectra import coefficients, wavenumbers
from torchcno.grids import Layouts, layout_of_axes
from torchcno.spectral import resample

FieldBatch = Float[Tensor, "sample channel *space"]

BANDS = (0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0, 56.0, 80.0, 112.0, 160.0)
LEAST_SHARE = 1e-8  # of a band: less is taken for rounding
LEAST_DEVIATION = 0.02  # of a feature: constants of the training leave new inputs some room
LEAST_SHRINKAGE = 0.02  # of correlations towards none
MOST_BLOCKS = 144  # of all channels: about as many as 256 training inputs tell the covariance of
TINY = 1e-12
ALARM = 0.05  # the share of known inputs that raise one
AT_ONCE = 32  # inputs whose features are taken at a time: memory stays small


@dataclass(frozen=True)
class Kind:
    """The training's statistics of one kind of features: z = (x − mean) W has identity covariance.

    With few samples the correlations C are shrunk towards none, (1 − λ) C + λ I, by the λ of the
    least expected square error: Ledoit and Wolf (2004), Schäfer and Strimmer (2005).
    """

    mean: Float[Tensor, " feature"]
    whitening: Float[Tensor, "feature feature"]

    @classmethod
    def of(cls, x: Float[Tensor, "sample feature"]) -> "Kind":
        """The statistics of training features."""
        mean, deviation = x.mean(0), x.std(0, correction=0).clamp(min=LEAST_DEVIATION)
        z = (x - mean) / deviation
        found, none = z.T @ z / len(z), torch.eye(z.shape[1]).to(z)
        variance = (z.square().sum(1).square().mean() - found.square().sum()) / len(z)
        away = (found - none).square().sum().clamp(min=TINY)
        shrinkage = (variance / away).clamp(LEAST_SHRINKAGE, 1)
        values, vectors = torch.linalg.eigh((1 - shrinkage) * found + shrinkage * none)
        root = vectors / values.sqrt() @ vectors.T
        return cls(mean, root / deviation[:, None])

    def distance(self, x: Float[Tensor, "sample feature"]) -> Float[Tensor, " sample"]:
        """Mahalanobis' distance, over the root of the number of features."""
        z = (x - self.mean.to(x)) @ self.whitening.to(x)
        return z.square().mean(1).sqrt()


@dataclass(frozen=True)
class KnownInputs:
    """What the training inputs were like, and how far from them validation inputs lie."""

    kinds: Mapping[str, Kind]
    distances: Mapping[str, Float[Tensor, " sample"]]  # of validation inputs, by kind
    unit: Float[Tensor, " channel"]  # root mean square of the training's values
    shape: tuple[int, ...]  # of the training's grid

    @classmethod
    def of(
        cls, train: FieldBatch, val: Float[Tensor, "other channel *space"], layout: Layouts
    ) -> "KnownInputs":
        """From training inputs the statistics, from validation inputs the ranks."""
        squares = [u.double().square().flatten(2).mean(2) for u in train.split(AT_ONCE)]
        unit = torch.cat(squares).mean(0).sqrt().clamp(min=TINY)
        shape = tuple(train.shape[2:])
        kinds = {k: Kind.of(x) for k, x in features(train, unit, shape, layout).items()}
        there = features(val, unit, shape, layout)
        return cls(kinds, {k: one.distance(there[k]) for k, one in kinds.items()}, unit, shape)

    def distances_of(
        self, u: FieldBatch, layout: Layouts, spread: Float[Tensor, " sample"] | None = None
    ) -> dict[str, Float[Tensor, " sample"]]:
        """How far `u` lies from the training's inputs, by kind; `spread` is an ensemble's."""
        found = features(u, self.unit.to(u.device), self.shape, layout)
        if self.kinds.keys() != found.keys():
            raise ValueError(
                "these statistics of inputs are of an earlier version of torchcno; measure them "
                "anew on the data of the run: torchcno.calibrate(RUN), then load it again."
            )
        distances = {kind: one.distance(found[kind]) for kind, one in self.kinds.items()}
        if "spread" in self.distances:
            if spread is None:
                raise ValueError("these statistics are of an ensemble; give its spread.")
            distances["spread"] = spread.double()
        return distances

    def with_spread(self, spread: Float[Tensor, " sample"]) -> "KnownInputs":
        """The same, with an ensemble's spread on validation inputs as one more kind."""
        return KnownInputs(
            self.kinds, {**self.distances, "spread": spread.double()}, self.unit, self.shape
        )

    def combine(self, distances: Mapping[str, Tensor]) -> Float[Tensor, " sample"]:
        """One number an input: the largest over kinds of log distance, standardised by validation.

        An input that is unlike in one way is unlike.
        """
        standard = []
        for kind, known in self.distances.items():
            logs = known.clamp(min=TINY).log()
            deviation = logs.std(correction=0).clamp(min=LEAST_DEVIATION)
            there = distances[kind].clamp(min=TINY).log()
            standard.append((there - logs.mean().to(there)) / deviation.to(there))
        return torch.stack(standard).amax(0)

    def scores(self, distances: Mapping[str, Tensor]) -> Float[Tensor, " sample"]:
        """The share of validation inputs that are less far: 1 − (1 + #{known ≥ new}) / (n + 1)."""
        known = self.combine(self.distances).sort().values
        there = self.combine(distances).cpu()
        farther = len(known) - torch.searchsorted(known, there.contiguous())
        return 1 - (1 + farther.double()) / (len(known) + 1)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For a file."""
        arrays = {"unit": self.unit, "shape": torch.tensor(self.shape)}
        for name, kind in self.kinds.items():
            arrays[f"{name}/mean"] = kind.mean
            arrays[f"{name}/whitening"] = kind.whitening.float()  # most of the file
        for name, known in self.distances.items():
            arrays[f"{name}/distances"] = known
        return {name: one.cpu().numpy() for name, one in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "KnownInputs":
        """The inverse of `to_arrays`."""
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        kinds = {
            name.removesuffix("/mean"): Kind(mean, tensors[name.replace("/mean", "/whitening")])
            for name, mean in tensors.items()
            if name.endswith("/mean")
        }
        end = "/distances"
        known = {name.removesuffix(end): d for name, d in tensors.items() if name.endswith(end)}
        return cls(kinds, known, tensors["unit"], tuple(tensors["shape"].tolist()))


def features(
    u: FieldBatch, unit: Float[Tensor, " channel"], shape: tuple[int, ...], layout: Layouts
) -> dict[str, Float[Tensor, "sample feature"]]:
    """The features of each input by kind, in float64, alike on every grid.

    `unit` is the size of each channel in the training, `shape` the training's grid.
    """
    parts = [_features_at_once(some, unit, shape, layout) for some in u.split(AT_ONCE)]
    return {kind: torch.cat([part[kind] for part in parts]) for kind in parts[0]}


def _features_at_once(
    u: FieldBatch, unit: Float[Tensor, " channel"], shape: tuple[int, ...], layout: Layouts
) -> dict[str, Float[Tensor, "sample feature"]]:
    u = u.double() / unit.double().to(u.device).reshape(-1, *[1] * (u.ndim - 2))
    flat = u.flatten(2)
    mean, deviation = flat.mean(2), flat.std(2, correction=0).clamp(min=1e-6)
    extremes = ((flat.amax(2) - mean) / deviation, (mean - flat.amin(2)) / deviation)
    values = torch.cat([mean, deviation.log10(), *(one.log1p() for one in extremes)], 1)
    axes = range(2, u.ndim)
    slopes = [u.diff(dim=axis).mul(u.shape[axis]).square().flatten(2).mean(2) for axis in axes]
    slopes = [(s.sqrt() / deviation).clamp(min=1e-3).log10() for s in slopes]
    texture = torch.cat([band_shares(u, shape, layout), *slopes, values], 1)
    return {"texture": texture, "places": block_means(u, shape, layout).flatten(1)}


def block_means(
    u: FieldBatch, shape: tuple[int, ...], layout: Layouts
) -> Float[Tensor, "sample channel *blocks"]:
    """Means over blocks of the training's grid, as many per axis as make `MOST_BLOCKS` or fewer."""
    pool: dict[int, Callable[..., Tensor]] = {
        1: functional.adaptive_avg_pool1d,
        2: functional.adaptive_avg_pool2d,
        3: functional.adaptive_avg_pool3d,
    }
    # 1e-9: rounding is not to lose a block of a whole root.
    per_axis = max(1, int((MOST_BLOCKS / u.shape[1]) ** (1 / len(shape)) + 1e-9))
    there = u if u.shape[2:] == shape else resample(u, shape, layout)
    return pool[len(shape)](there, tuple(min(per_axis, n) for n in shape))


def band_shares(
    u: FieldBatch, shape: tuple[int, ...], layout: Layouts
) -> Float[Tensor, "sample feature"]:
    """log10 of the share of energy in each of `BANDS`, the last of what a training grid has not."""
    energy = coefficients(u, layout).abs().square()
    layouts = layout_of_axes(layout, len(shape))
    meshes, beyond = [], torch.zeros(energy.shape[2:], dtype=torch.bool)
    for axis, (n, trained, one) in enumerate(zip(u.shape[2:], shape, layouts, strict=True)):
        k = wavenumbers(n, one).abs().reshape([-1 if i == axis else 1 for i in range(len(shape))])
        meshes.append(k)
        beyond = beyond | (k > wavenumbers(trained, one).abs().max())
    length = sum(k.square() for k in meshes).sqrt().expand(energy.shape[2:])  # type: ignore[union-attr]
    highest = math.sqrt(sum(float(wavenumbers(n, one).max()) ** 2 for n, one in
                            zip(shape, layouts, strict=True)))  # fmt: skip
    edges = [edge for edge in BANDS if edge < highest] + [math.inf]
    bands = [(length >= low) & (length < high) & ~beyond for low, high in pairwise(edges)]
    shares = [
        energy.flatten(2) @ band.flatten().double().to(energy.device) for band in (*bands, beyond)
    ]
    total = sum(shares).clamp(min=TINY)  # type: ignore[union-attr]
    logs = [(share / total + LEAST_SHARE).log10() for share in shares]
    return torch.stack(logs, 2).flatten(1)


def auroc(inside: Float[Tensor, " sample"], outside: Float[Tensor, " other"]) -> float:
    """P(a score outside > a score inside), ties by half: 1 where they are apart, ½ if alike."""
    if not len(inside) or not len(outside):
        raise ValueError("AUROC needs scores of both kinds; give one or more of each.")
    known = inside.double().cpu().sort().values
    there = outside.double().cpu().contiguous()
    below = torch.searchsorted(known, there)
    tied = torch.searchsorted(known, there, right=True) - below
    return float((below + 0.5 * tied).mean() / len(known))


def detection_rate(scores: Float[Tensor, " sample"]) -> float:
    """The share of scores that raise an alarm which one in twenty known inputs would raise."""
    return float((scores >= 1 - ALARM).double().mean())


def rank_correlation(a: Float[Tensor, " sample"], b: Float[Tensor, " sample"]) -> float:
    """Spearman's: 1 where the larger a goes with the larger b, −1 where with the smaller."""
    from scipy.stats import spearmanr  # takes half a second, which only audits need

    return float(spearmanr(a.cpu().numpy(), b.cpu().numpy()).statistic)
