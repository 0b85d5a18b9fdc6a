"""Whether a network learnt: its errors beside those of predictors that know nothing.

Errors are medians over samples of the relative L1 error of scaled fields, in percent.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcno.data.fields import Fields
from torchcno.data.stored import StoredFields, in_memory
from torchcno.evaluation.errors import published_error, sample_errors, summary
from torchcno.evaluation.linear import PENALTIES, linear_map
from torchcno.evaluation.resolution import Evaluation
from torchcno.metrics import Mask
from torchcno.runs.operator import TrainedOperator
from torchcno.sizes import available_memory

BYTES = 64  # of memory for each value that is looked at: copies in float64
VALUES = 2**25  # of the samples that a linear map is fitted to: half a gigabyte
MANY = 256  # samples on which the error of training samples is taken

HALF = 0.5  # of another predictor's error: what a network that learnt stays below
OVER = 2.0  # errors on new samples over those on training samples


@dataclass(frozen=True)
class Verdict:
    """What to make of a trained network."""

    split: str  # of the samples that are new to it
    error: float
    mean_field: float  # the error of the mean training output
    linear: float  # and of a linear map
    train: float  # the network's error on training samples
    samples: int
    outside: int  # of them, those outside the training range
    inside_error: float | None
    outside_error: float | None
    ood: float | None  # the error on the set out of distribution, where there is one

    @property
    def beats(self) -> bool:
        """Whether the network is ahead of both predictors."""
        return self.error < min(self.mean_field, self.linear)

    @property
    def fit(self) -> str:
        """Whether new samples or old ones are what it has trouble with."""
        if self.train > HALF * min(self.mean_field, self.linear):
            return "underfits"
        return "overfits" if self.error > OVER * self.train else "fits"

    def lines(self, folder: str = "RUN", epochs: int = 0) -> list[str]:
        """Three lines: did it learn, where does it hold, and what to try."""
        return [self._say_learnt(), self._say_range(), self._say_fit(folder, epochs)]

    def _say_learnt(self) -> str:
        others = f"the mean output has {self.mean_field:.3g} %, a linear map {self.linear:.3g} %"
        if self.beats:
            word = "It learnt"
        elif self.error < HALF * self.mean_field:
            word = "It learnt less than a linear map"
        else:
            word = "It did not learn"
        return f"{word}: {self.error:.3g} % on {self.split}; {others}."

    def _say_range(self) -> str:
        if not self.outside:
            said = f"In range: all {self.samples} samples of {self.split}"
        else:
            said = f"In range: {self.samples - self.outside} of {self.samples} of {self.split}"
            if self.inside_error is not None:
                said += f", {self.inside_error:.3g} %"
            said += f"; outside the training range: {self.outside}, {self.outside_error:.3g} %"
        if self.ood is not None:
            said += f"; out of distribution: {self.ood:.3g} %"
        return said + "."

    def _say_fit(self, folder: str, epochs: int) -> str:
        longer = f"more epochs (cno resume {folder} --epochs {2 * epochs})"
        known = f"{self.train:.3g} % on training samples, {self.error:.3g} % on new ones"
        try_ = {
            "underfits": f"{longer}, a wider network (width), or another learning rate",
            "overfits": "more samples, a symmetry (cno audit --symmetries), a smaller network",
            "fits": f"{longer}, then more samples",
        }
        return f"It {self.fit}: {known}; try {try_[self.fit]}."


def judge(
    operator: TrainedOperator,
    train: Fields | StoredFields,
    val: Fields,
    evaluation: Evaluation,
    mean_field: float,
    ood: Evaluation | None = None,
    mask: Mask | None = None,
) -> Verdict:
    """The verdict on a trained operator, from its evaluation on samples that are new to it.

    `mean_field` is the error of the mean training output on them.
    """
    scaling = operator.error_scaling
    few = in_memory(train[: affordable(train, MANY)])

    def error(prediction: Tensor, fields: Fields) -> float:
        return published_error(summary(sample_errors(prediction, fields, scaling, mask)))

    errors = 100 * evaluation.errors["relative_l1"]["normalized"]
    outside = torch.zeros(len(errors), dtype=torch.bool)
    if operator.range is not None:
        found = operator.range.departures(evaluation.fields.inputs, operator.grid.shape)
        outside = torch.stack(list(found.values())).any(0).cpu()
    fields = evaluation.fields
    return Verdict(
        split=evaluation.split,
        error=published_error(evaluation.summary),
        mean_field=mean_field,
        linear=error(predict_linearly(operator, train, val, fields.inputs), fields),
        train=error(operator.apply_to(few.inputs), few),
        samples=len(errors),
        outside=int(outside.sum()),
        inside_error=_median(errors[~outside]),
        outside_error=_median(errors[outside]),
        ood=None if ood is None else published_error(ood.summary),
    )


def affordable(fields: Fields | StoredFields, most: int) -> int:
    """How many samples there is memory to look at, up to `most`."""
    free = available_memory()
    size = sum(fields.channels) * math.prod(fields.grid.shape)
    return max(2, most if free is None else min(most, free // (BYTES * size)))


def _median(errors: Tensor) -> float | None:
    return float(errors.quantile(0.5)) if len(errors) else None


def predict_linearly(
    operator: TrainedOperator, train: Fields | StoredFields, val: Fields, inputs: Tensor
) -> Tensor:
    """What a linear map fitted to `train` makes of `inputs`; its penalty is chosen on `val`.

    Of scaled fields, so that no channel counts for more by its unit.
    """
    scaling = operator.normalization

    def scaled(fields: Fields | StoredFields, n: int) -> Fields:
        u, v = in_memory(fields[:n])
        return Fields(scaling.normalize_inputs(u), scaling.normalize_outputs(v), fields.grid)

    size = sum(train.channels) * math.prod(train.grid.shape)
    known = scaled(train, affordable(train, VALUES // size))
    new = scaled(val, MANY)
    predict = linear_map(known)
    losses = [float((predict(new.inputs, p) - new.outputs).abs().mean()) for p in PENALTIES]
    best = PENALTIES[losses.index(min(losses))]
    return scaling.denormalize_outputs(predict(scaling.normalize_inputs(inputs), best))
