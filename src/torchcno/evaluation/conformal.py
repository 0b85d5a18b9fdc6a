"""Split conformal bands: bounds on errors that hold for a stated share of new samples.

Scores s_1 … s_n of calibration samples, which the network was not fitted to, and the score s of a
new sample are exchangeable if all are drawn alike. Its rank among them is then uniform, so that

    P(s ≤ s_(k)) ≥ c,   k = ⌈(n + 1) c⌉,   s_(k) the k-th smallest

whatever the network and the distribution. Over draws of the calibration set the probability given
that set follows Beta(k, n + 1 − k). Nothing is promised where new samples are drawn otherwise.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

Field = Float[Tensor, "*of"]  # (channel, *space): of one sample
LEVELS = 1024  # of the distribution of scores over points that is kept
LEAST_SCALE = 0.1  # of its mean over points: the scale of errors that are almost none
MOST_SCORES = 2**24  # of points, for which there is memory; of more some are left out


def conformal_rank(n: int, confidence: float) -> int:
    """k = ⌈(n + 1) c⌉; refused where n scores are too few for the confidence c."""
    check_confidence(confidence)
    # (n + 1) c is whole for many a pair, and its rounding is not to raise it.
    rank = math.ceil(round((n + 1) * confidence, 9))
    if rank > n:
        needed = math.ceil(round(confidence / (1 - confidence), 9))
        raise ValueError(
            f"confidence {confidence:g} needs {needed} validation samples or more, and there are "
            f"{n}; use a confidence of {n / (n + 1):.3g} or less, or validate on more samples."
        )
    return rank


def check_confidence(confidence: Any) -> None:
    """Refuse what is no probability between 0 and 1."""
    is_number = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    if not is_number or not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence!r}; give a number between 0 and 1, as in 0.9.")


def conformal_quantile(scores: Float[Tensor, " sample"], confidence: float) -> float:
    """s_(k): a new score is at most this with probability c or more. NaN counts as infinite."""
    rank = conformal_rank(len(scores), confidence)
    return float(scores.double().nan_to_num(nan=math.inf).sort().values[rank - 1])


def likely_coverage(
    n: int, confidence: float, samples: int, likely: float = 0.99
) -> tuple[float, float]:
    """Between which shares of `samples` new ones a bound of `n` scores holds, as likely as said.

    The chance that it holds is drawn from Beta(k, n + 1 − k) with the calibration set; how often it
    then does is binomial. Both spreads are added as variances, which is close where k and n − k are
    not small.
    """
    rank = conformal_rank(n, confidence)
    mean = rank / (n + 1)
    variance = mean * (1 - mean) / (n + 2)  # of that chance
    deviation = math.sqrt(variance + mean * (1 - mean) / samples)
    z = math.sqrt(2) * float(torch.erfinv(torch.tensor(likely, dtype=torch.float64)))
    return max(0.0, mean - z * deviation), min(1.0, mean + z * deviation)


@dataclass(frozen=True)
class Bands:
    """What calibration samples say of the errors of a network's predictions p of v.

    relative    ‖p − v‖₁ / ‖v‖₁ of each sample, by space (`physical`, `normalized`)
    everywhere  max over points of |p − v| / (s m) of each sample
    points      quantiles j/1024, j = 0 …, of |p − v| / (s m) over the points of all samples

    s is the scale of errors per channel and point, from other samples than these. m is the spread
    of a sample, 1 where one network predicts (`relative_spread`).
    """

    scale: Field
    relative: Mapping[str, Float[Tensor, " sample"]]
    everywhere: Float[Tensor, " sample"]
    points: Float[Tensor, " level"]

    @classmethod
    def calibrate(
        cls,
        errors: Float[Tensor, "sample channel *space"],
        relative: Mapping[str, Float[Tensor, " sample"]],
        scale: Field,
        counts: Bool[Tensor, "sample channel *space"] | None = None,
        spread: Float[Tensor, " sample"] | None = None,
    ) -> "Bands":
        """Bands by the errors p − v of calibration samples; `counts` is False where they are none.

        `scale` and `spread` must not depend on these samples' outputs.
        """
        m = torch.ones(len(errors)) if spread is None else spread
        scores = errors.double().abs().flatten(1) / scale.double().flatten()
        scores = scores / m.double().to(scores.device)[:, None]
        within = torch.ones_like(scores, dtype=torch.bool)
        if counts is not None:
            within = counts.expand_as(errors).flatten(1)
        scores = torch.where(within, scores, 0.0)
        return cls(
            scale.float().cpu(),
            {space: one.float().cpu() for space, one in relative.items()},
            scores.amax(1).float().cpu(),
            pooled_quantiles(scores, within).float().cpu(),
        )

    def __len__(self) -> int:
        return len(self.everywhere)

    def bound_relative(self, confidence: float, space: str = "physical") -> float:
        """A bound on ‖p − v‖₁ / ‖v‖₁ that holds for a new sample with probability c or more."""
        return conformal_quantile(self.relative[space], confidence)

    def factor_everywhere(self, confidence: float) -> float:
        """λ: |p − v| ≤ λ s m at all points of a new sample at once, with probability c or more."""
        return conformal_quantile(self.everywhere, confidence)

    def factor_pointwise(self, confidence: float) -> float:
        """λ: |p − v| ≤ λ s m at a share c of the points of a new sample, in the mean over samples.

        By conformal risk control: the share that is missed lies in [0, 1] and falls with λ, so its
        mean over a new sample is at most 1 − c where that over n calibration samples is at most
        1 − (n + 1) c / n.
        """
        n = len(self)
        conformal_rank(n, confidence)
        levels = len(self.points) - 1
        return float(self.points[min(levels, math.ceil(levels * (n + 1) * confidence / n))])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For a file."""
        relative = {f"relative/{space}": one.numpy() for space, one in self.relative.items()}
        own = {"scale": self.scale, "everywhere": self.everywhere, "points": self.points}
        return {**{name: one.numpy() for name, one in own.items()}, **relative}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Bands":
        """The inverse of `to_arrays`."""
        start = "relative/"
        return cls(
            torch.from_numpy(arrays["scale"]),
            {k.removeprefix(start): torch.from_numpy(a) for k, a in arrays.items() if start in k},
            torch.from_numpy(arrays["everywhere"]),
            torch.from_numpy(arrays["points"]),
        )


def pooled_quantiles(
    scores: Float[Tensor, "sample point"], counts: Bool[Tensor, "sample point"]
) -> Float[Tensor, " level"]:
    """Quantiles j/1024 of the scores of all points, every sample with the same weight.

    Never below the true ones: of two neighbours the larger.
    """
    step = math.ceil(scores.numel() / MOST_SCORES)
    if step > 1:
        scores, counts = scores[:, ::step], counts[:, ::step]
    weights = (counts / counts.sum(1, keepdim=True).clamp(min=1)).double()
    order = scores.flatten().argsort()
    total = weights.flatten()[order].cumsum(0)
    levels = torch.linspace(0, 1, LEVELS + 1, dtype=torch.float64, device=scores.device)
    # Rounding of the sum is not to push a level to the next score.
    at = torch.searchsorted(total, levels * total[-1] * (1 - 1e-12)).clamp(max=len(total) - 1)
    return scores.flatten()[order][at]


def error_scale(parts: Iterable[tuple[Tensor, Tensor | None]]) -> Field:
    """The root mean square of errors at every point, and a tenth of its mean at least.

    `parts` are errors of some samples each, and where they count; None: everywhere. Only the shape
    of the scale counts: scores are taken relative to it.
    """
    squares = counted = torch.zeros(())
    for errors, counts in parts:
        within = torch.ones_like(errors, dtype=torch.bool) if counts is None else counts
        within = within.expand_as(errors)
        squares = squares.to(errors.device) + torch.where(
            within, errors.double().square(), 0.0
        ).sum(0)
        counted = counted.to(errors.device) + within.sum(0)
    rms = (squares / counted.clamp(min=1)).sqrt()
    mean = rms.flatten(1).mean(1).reshape(-1, *[1] * (rms.ndim - 1))
    # Exact predictions have no scale: any positive one will do.
    least = torch.where(mean > 0, LEAST_SCALE * mean, torch.ones_like(mean))
    return rms.maximum(least).float()


def coverage(
    errors: Float[Tensor, "sample channel *space"],
    half_width: Float[Tensor, "sample channel *space"],
    counts: Bool[Tensor, "sample channel *space"] | None = None,
) -> Float[Tensor, " sample"]:
    """The share of points of each sample at which |error| is within `half_width`."""
    held = errors.abs() <= half_width
    if counts is None:
        return held.double().flatten(1).mean(1)
    within = counts.expand_as(held)
    return (held & within).flatten(1).sum(1) / within.flatten(1).sum(1).clamp(min=1)
