"""How well an operator predicts: relative errors sample by sample, and their statistics.

The published errors are medians over samples of the relative L1 error on normalised fields. Fields
around 0.5 make it smaller than the physical error, so both are always given.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.data.fields import Fields
from torchcno.data.normalization import Normalization
from torchcno.metrics import METRICS, Mask, filled

SampleErrors = Mapping[str, Mapping[str, Float[Tensor, " sample"]]]  # by metric, then space

STATISTICS: dict[str, Callable[[Tensor], Tensor]] = {
    "median": lambda errors: errors.quantile(0.5),
    "mean": lambda errors: errors.mean(),
    "q05": lambda errors: errors.quantile(0.05),
    "q25": lambda errors: errors.quantile(0.25),
    "q75": lambda errors: errors.quantile(0.75),
    "q95": lambda errors: errors.quantile(0.95),
}


def sample_errors(
    prediction: Float[Tensor, "sample channel *space"],
    fields: Fields,
    normalization: Normalization,
    mask: Mask | None = None,
) -> SampleErrors:
    """The relative errors of physical predictions of `fields.outputs`, as fractions, in float64.

    `mask` says from the physical inputs where outputs count (`Problem.mask`): elsewhere prediction
    and truth are set to 1 before the error is taken, as the paper does inside the airfoil. Where
    the fields' own mask says that they do not count, both are set to 0: they add nothing.
    """
    if prediction.shape != fields.outputs.shape:
        raise ValueError(
            f"predictions of shape {tuple(prediction.shape)} cannot be compared with outputs of "
            f"{tuple(fields.outputs.shape)}; predict from the inputs of the same fields."
        )
    p, v = prediction.to(fields.outputs.device, torch.float64), fields.outputs.double()
    counts, scaled = mask and mask(fields.inputs), normalization.normalize_outputs
    pairs = {
        space: [filled(filled(u, counts), fields.mask, value=0.0) for u in both]
        for space, both in (("normalized", (scaled(p), scaled(v))), ("physical", (p, v)))
    }
    return {
        name: {space: metric(p, v, fields.grid) for space, (p, v) in pairs.items()}
        for name, metric in METRICS.items()
    }


def channel_errors(
    prediction: Float[Tensor, "sample channel *space"],
    fields: Fields,
    normalization: Normalization,
    mask: Mask | None = None,
) -> list[SampleErrors]:
    """`sample_errors` of each output channel by itself.

    In one error over all channels the largest one decides. Samples in which a channel is zero
    everywhere have no relative error there, and are left out of it.
    """
    found: list[SampleErrors] = []
    for c in range(fields.outputs.shape[1]):
        of_channel = None if fields.mask is None else fields.mask[:, c : c + 1]
        outputs = fields.outputs[:, c : c + 1]
        alone = Fields(fields.inputs, outputs, fields.grid, of_channel)
        errors = sample_errors(prediction[:, c : c + 1], alone, normalization.for_output(c), mask)
        found.append(
            {
                metric: {space: one[one.isfinite()] for space, one in spaces.items()}
                for metric, spaces in errors.items()
            }
        )
    return found


def summary(errors: SampleErrors) -> dict[str, dict[str, float]]:
    """Statistics over samples, in percent, as `result.json` has them.

    >>> summary(errors)["relative_l1_median_percent"]
    {'normalized': 0.21, 'physical': 1.55}
    """
    return {
        f"{metric}_{name}_percent": {
            space: 100 * float(statistic(samples))
            for space, samples in spaces.items()
            if len(samples)
        }
        for metric, spaces in errors.items()
        for name, statistic in STATISTICS.items()
    }


def published_error(summary: Mapping[str, Mapping[str, float]]) -> float:
    """The error of the paper's tables: the median of the scaled relative L1 error, in percent."""
    return summary["relative_l1_median_percent"]["normalized"]
