"""How far to trust a trained operator's predictions: bands of errors, and how unlike an input is.

Both are measured at the end of training and kept with the run. Bands are calibrated on the
validation set. The weights were chosen by their mean error there, so that its errors are a little
smaller than those of other samples: of a hundred epochs or so one is picked. `cno audit` measures
the coverage on test data, which nothing was chosen by.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from torchcno.arithmetic import arithmetic
from torchcno.data.fields import Fields
from torchcno.data.stored import StoredFields
from torchcno.evaluation.conformal import Bands, error_scale
from torchcno.evaluation.errors import sample_errors
from torchcno.evaluation.ood import KnownInputs
from torchcno.metrics import Mask
from torchcno.models.ensemble import Ensemble
from torchcno.spectral import resample

if TYPE_CHECKING:
    from torchcno.problems.problem import Problem
    from torchcno.runs.config import RunConfig
    from torchcno.runs.operator import TrainedOperator

KNOWN = 256  # training samples whose inputs and errors are looked at
AT_ONCE = 32  # of these at a time
SPACES = ("physical", "normalized")  # in which relative errors are bounded


@dataclass(frozen=True)
class Prediction:
    """A prediction and how far it may be off, with a confidence c. See `docs/trust.md`.

    For new inputs that are drawn as the validation set was, on the training's grid:

    relative_error         ‖value − truth‖₁ / ‖truth‖₁ is at most this, with probability c
    half_width             the truth lies within value ± half_width at a share c of the points, in
                           the mean over samples
    half_width_everywhere  the truth lies within value ± this at all points at once, with
                           probability c
    """

    value: Float[Tensor, "sample channel *space"]
    half_width: Float[Tensor, "sample channel *space"]
    half_width_everywhere: Float[Tensor, "sample channel *space"]
    relative_error: Float[Tensor, " sample"]
    confidence: float


@dataclass(frozen=True)
class Trust:
    """What validation says of an operator's errors, and training of its inputs."""

    bands: Bands
    inputs: KnownInputs

    def bound(
        self,
        value: Float[Tensor, "sample channel *space"],
        confidence: float,
        layout: Any,
        spread: Float[Tensor, " sample"] | None = None,
    ) -> Prediction:
        """`value` with its bands. On another grid the scale of errors is resampled to it."""
        bands, scale = self.bands, _on_grid(self.bands.scale, value, layout)
        m = torch.ones(len(value)) if spread is None else spread.cpu()
        shape = (scale * m.double().reshape(-1, *[1] * scale.ndim)).float()
        return Prediction(
            value,
            bands.factor_pointwise(confidence) * shape,
            bands.factor_everywhere(confidence) * shape,
            torch.full((len(value),), bands.bound_relative(confidence)),
            confidence,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For a file."""
        return {
            f"{part}/{name}": array
            for part, one in (("bands", self.bands), ("inputs", self.inputs))
            for name, array in one.to_arrays().items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Trust":
        """The inverse of `to_arrays`."""

        def of(part: str) -> dict[str, NDArray[Any]]:
            start = f"{part}/"
            return {k.removeprefix(start): a for k, a in arrays.items() if k.startswith(start)}

        return cls(Bands.from_arrays(of("bands")), KnownInputs.from_arrays(of("inputs")))


def measure_trust(
    operator: "TrainedOperator",
    train: Fields | StoredFields,
    val: Fields,
    mask: Mask | None = None,
) -> Trust:
    """Calibrate on `val`, which the weights were not fitted to.

    The scale of errors over the points is that on training samples, so that it does not depend on
    `val`: the bands' guarantee needs it. Only its shape counts.
    """
    known, layout = train[:KNOWN], operator.grid.layout

    def errors_on(fields: Fields) -> tuple[Tensor, Tensor, Tensor | None]:
        prediction = operator.apply_to(fields.inputs)
        counts = fields.counts(mask)
        if counts is not None:
            counts = counts.cpu().expand_as(prediction)
        return prediction, prediction.double() - fields.outputs.double().cpu(), counts

    scale = error_scale(errors_on(some)[1:] for some in known.blocks(AT_ONCE))
    prediction, errors, counts = errors_on(val)
    relative = sample_errors(prediction, val, operator.error_scaling, mask)["relative_l1"]
    spread = relative_spread(operator, val.inputs, scale)
    bands = Bands.calibrate(
        errors, {space: relative[space] for space in SPACES}, scale, counts, spread
    )
    seen = torch.cat([some.inputs.cpu() for some in known.blocks(AT_ONCE)])
    inputs = KnownInputs.of(seen, val.inputs.cpu(), layout)
    return Trust(bands, inputs if spread is None else inputs.with_spread(spread))


def _on_grid(scale: Tensor, value: Tensor, layout: Any) -> Tensor:
    """The scale of errors on the grid of `value`."""
    scale = scale.double()
    if value.shape[2:] == scale.shape[1:]:
        return scale
    finer = resample(scale, tuple(value.shape[2:]), layout)
    return finer.clamp(min=float(scale.min()))  # a filter may undershoot


def relative_spread(operator: "TrainedOperator", u: Tensor, scale: Tensor) -> Tensor | None:
    """m: the root mean square over points of an ensemble's spread over the scale of errors.

    None where one network predicts: it has no spread.
    """
    if not isinstance(operator.network, Ensemble):
        return None
    spread = operator.spread(u).double()
    ratios = spread / _on_grid(scale, spread, operator.grid.layout)
    return ratios.flatten(1).square().mean(1).sqrt()


def corrected_problem(
    home: Path | None, iterations: Any, confidence: float | None
) -> "Problem | None":
    """The problem whose solver corrects predictions; None where none is asked for."""
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 0:
        raise ValueError(f"correct is {iterations!r}; give a number of iterations, 0 or more.")
    if iterations == 0:
        return None
    if confidence is not None:
        raise ValueError(
            "error bands are those of predictions without a correction; leave `confidence` or "
            "`correct` out."
        )
    from torchcno.runs.folder import RunFolder
    from torchcno.runs.own import OwnData

    run = None if home is None else RunFolder(home)
    if run is None or not run.config_file.is_file():
        raise ValueError(
            "a correction needs the problem, and this network comes without the configuration of "
            "its run; load it from the folder of the run."
        )
    problem = run.config().problem
    if isinstance(problem, OwnData):
        raise ValueError(f"{problem.label} are fields without a solver; leave `correct` out.")
    return problem


def calibrate(
    folder: str | Path,
    *,
    data: str | Path | None = None,
    device: str = "auto",
    network: nn.Module | None = None,
    keep: bool = True,
) -> Trust:
    """Measure how far to trust the operator of a finished run, and keep it in the run's folder.

    For runs that were made before this was kept. It needs the training and validation data, which
    a benchmark makes again where they are missing. A `network` that is not of this package has to
    be given.

    >>> calibrate("runs/old")
    >>> load("runs/old").predict(u, confidence=0.9)
    """
    from torchcno.runs.folder import RunFolder
    from torchcno.training.hardware import pick_device

    run, where = RunFolder(folder), pick_device(device)
    trust = measure_on_data(run.operator(where, network), run.config_here(data), where)
    if keep:
        run.write_trust(trust)
    return trust


def measure_on_data(
    operator: "TrainedOperator", config: "RunConfig", device: torch.device
) -> Trust:
    """`measure_trust` on the data that a run of `config` has, in its arithmetic."""
    from torchcno.runs.loading import load_predicted

    found: dict[str, Fields] = {}
    for split, most in (("train", KNOWN), ("val", None)):
        there = config.problem.samples[split]
        if split == "train" and config.train.samples is not None:
            there = min(there, config.train.samples)
        samples = there if most is None else min(most, there)
        found[split] = load_predicted(config, operator, split, samples, device)
    with arithmetic(config.train.precision):
        return measure_trust(operator, found["train"], found["val"], config.problem.mask)
