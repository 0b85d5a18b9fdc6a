"""One operator on many grids: the error against the resolution (figure 2, right).

The data of every resolution are those of the finest grid, band-limited: the same functions, less
what a grid cannot hold. An operator is applied to them as it is: a CNO goes through the change of
representation, Eq. (changeofbasis), others see the values of the grid (SM, "Testing at Different
Resolutions").
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from torch import Tensor

from torchcno.data.fields import Fields
from torchcno.data.normalization import Normalization
from torchcno.data.trajectories import Trajectories
from torchcno.evaluation.errors import SampleErrors, published_error, sample_errors, summary
from torchcno.metrics import Mask

Sampled = TypeVar("Sampled", Fields, Trajectories)
Predict = Callable[[Tensor], Tensor]  # physical inputs to physical outputs on the same grid
Refused = Callable[[int, str], None]  # a resolution, and why an operator does not take it


@dataclass(frozen=True)
class Evaluation:
    """Physical predictions on one grid, and their errors."""

    fields: Fields
    prediction: Tensor  # (sample, out_channel, *space)
    errors: SampleErrors
    split: str = ""  # that the fields are of

    @property
    def resolution(self) -> int:
        """Points an axis."""
        return self.fields.grid.shape[-1]

    @cached_property
    def summary(self) -> dict[str, dict[str, float]]:
        """Statistics of the errors over the samples, in percent."""
        return summary(self.errors)


def at_resolutions(
    predict: Predict,
    finest: Fields,
    resolutions: Sequence[int],
    normalization: Normalization,
    mask: Mask | None = None,
    refused: Refused | None = None,
    split: str = "",
) -> list[Evaluation]:
    """Predictions and errors on grids of `resolutions` points an axis, none finer than `finest`.

    Resolutions that `predict` does not take, by a ValueError, are told to `refused` and left out;
    without it the error is raised.
    """
    found = []
    for resolution in resolutions:
        fields = on_grid(finest, resolution)
        try:
            prediction = predict(fields.inputs)
        except ValueError as error:
            if refused is None:
                raise
            refused(resolution, str(error))
            continue
        errors = sample_errors(prediction, fields, normalization, mask)
        found.append(Evaluation(fields, prediction, errors, split))
    return found


def on_grid(finest: Sampled, resolution: int) -> Sampled:
    """The functions of `finest` on `resolution` points along the last axis, by the resampling that
    is exact for its layout (`torchcno.spectral.resample`). Other axes keep their proportion."""
    shape = finest.grid.shape
    points = shape[-1]
    if resolution == points:
        return finest
    if resolution > points:
        raise ValueError(
            f"data on {points} points an axis do not determine {resolution}; "
            f"make them on {resolution} or more."
        )
    return finest.resampled(*(round(resolution * n / points) for n in shape))


@dataclass(frozen=True)
class ResolutionCurve:
    """An error against the resolution, and how much it changes."""

    name: str
    training: int  # the resolution of the training data
    errors: Mapping[int, float]  # by resolution
    refused: Mapping[int, str]  # why there is no error

    @classmethod
    def of_json(cls, name: str, found: Mapping[str, Any]) -> "ResolutionCurve":
        """The published error on test data, from what a study writes to `resolution.json`."""
        errors = {int(n): published_error(one) for n, one in found["errors"]["test"].items()}
        refused = {int(n): why for n, why in found["refused"].items()}
        return cls(name, found["training_resolution"], errors, refused)

    @property
    def relative(self) -> dict[int, float]:
        """Each error over that at the training resolution; empty where that was not measured."""
        if self.training not in self.errors:
            return {}
        return {n: error / self.errors[self.training] for n, error in self.errors.items()}

    @property
    def largest_change(self) -> float | None:
        """max |error / error at the training resolution − 1|; None where there is no such error."""
        return max((abs(ratio - 1) for ratio in self.relative.values()), default=None)
