"""A trained network with its normalisation inside: physical inputs to physical outputs."""

import copy
import warnings
from collections.abc import Iterable, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.data.arrays import as_real_tensor
from torchcno.data.normalization import Normalization
from torchcno.evaluation.conformal import check_confidence
from torchcno.grids import Grid
from torchcno.models.ensemble import Ensemble, members_of, spread_of
from torchcno.operators.conditioning import as_rows, conditioning_of
from torchcno.runs.config import FORMAT
from torchcno.runs.plain import to_plain
from torchcno.runs.ranges import OutOfRange, TrainingRange
from torchcno.runs.trust import Prediction, Trust, corrected_problem, relative_spread
from torchcno.training.augmentation import average_over_group
from torchcno.version import __version__

Inputs = Float[Tensor | np.ndarray, "sample in_channel *space"]  # physical
Conditions = Tensor | float | None  # scalars that a network depends on, a row per sample


class TrainedOperator(nn.Module):
    """The learned operator in physical units, at any resolution that its network takes:

    G(u) = D(network(N(u))),   N: inputs scaled,   D: outputs scaled back
    """

    def __init__(
        self,
        network: nn.Module,
        normalization: Normalization,
        grid: Grid,
        model: str,
        problem: str,
        error_scaling: Normalization | None = None,
        symmetry: str | None = None,
        range: TrainingRange | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.normalization = normalization
        self.grid = grid  # of the training data: its layout and box hold at every resolution
        self.model = model
        self.problem = problem
        # By which errors are taken of scaled fields: as published for a benchmark, whatever the
        # network sees; None: by the network's own.
        self.error_scaling = error_scaling or normalization
        self.symmetry = (
            symmetry  # the group over which predictions are averaged; None: they are not
        )
        self.range = range  # of the training inputs; None: not kept
        self.trust: Trust | None = None  # how far to trust its predictions; None: not measured
        self.home: Path | None = None  # the folder of its run, which knows the problem's constants

    def forward(
        self, u: Float[Tensor, "batch in_channel *space"], conditions: Conditions = None
    ) -> Float[Tensor, "batch out_channel *space"]:
        """Physical outputs for physical inputs `u`, on the same grid.

        `conditions` are the scalars that the network depends on, if any, a row per sample.
        """
        self._refuse_shape(u)
        # Scaled in their own precision and rounded then, as in training.
        number = next(self.parameters()).dtype
        scaled = self.normalization.normalize_inputs(u).to(number)
        # Networks without scalars may be foreign, and take fields alone.
        rows = as_rows(conditions, conditioning_of(self.network), u)
        told = () if rows is None else (rows,)
        if self.symmetry is None:
            v = self.network(scaled, *told)
        else:
            v = average_over_group(self.network, self.symmetry, scaled, *told)
        return self.normalization.denormalize_outputs(v)

    @overload
    def predict(
        self,
        u: Inputs,
        batch_size: int = 32,
        conditions: Conditions = None,
        *,
        confidence: None = None,
        correct: int = 0,
    ) -> Tensor: ...
    @overload
    def predict(
        self,
        u: Inputs,
        batch_size: int = 32,
        conditions: Conditions = None,
        *,
        confidence: float,
        correct: int = 0,
    ) -> Prediction: ...
    @torch.inference_mode()
    def predict(
        self,
        u: Inputs,
        batch_size: int = 32,
        conditions: Conditions = None,
        *,
        confidence: float | None = None,
        correct: int = 0,
    ) -> Float[Tensor, "sample out_channel *space"] | Prediction:
        """`forward` in evaluation mode, a batch at a time on its device; the outputs on the CPU.

        With a `confidence` such as 0.9 they come with bands within which the truth lies. With
        `correct` = k they are corrected by k iterations of the problem's solver (`docs/trust.md`).

        Inputs may be an array of NumPy, too, and of any real type: networks compute in float32.
        On CUDA its products are rounded to TF32 or not as PyTorch is set; `evaluate_run` takes the
        training's. Inputs outside the training range are an `OutOfRange` warning, outputs that are
        not finite an error.
        """
        if confidence is not None:
            check_confidence(confidence)
        trust = None if confidence is None else self._measured_trust()
        problem = corrected_problem(self.home, correct, confidence)
        u = self._checked(u)
        self._warn_of_range(
            u, "inputs are outside the training range, and predictions may be wrong"
        )
        v = self.apply_to(u, batch_size, conditions)
        if not v.isfinite().all():
            bad = int((~v.isfinite()).flatten(1).any(1).nonzero()[0])
            raise ValueError(
                f"outputs hold NaN or infinite values, first in sample {bad}; its inputs are too "
                "far from the training's, or the weights are damaged: check both."
            )
        if problem is not None:
            v = problem.correct(u.double(), v.double(), correct).to(v)
        if trust is None or confidence is None:
            return v
        spread = relative_spread(self, u, trust.bands.scale)
        return trust.bound(v, confidence, self.grid.layout, spread)

    def members(self) -> list["TrainedOperator"]:
        """The operators of which an ensemble predicts the mean; of one network: itself."""
        if not isinstance(self.network, Ensemble):
            return [self]
        return [self.with_network(network) for network in members_of(self.network)]

    def with_network(self, network: nn.Module) -> "TrainedOperator":
        """The same scaling, grid and names around another network."""
        other = copy.copy(self)
        other._modules = {"network": network}
        return other

    @torch.inference_mode()
    def spread(
        self,
        u: Inputs,
        batch_size: int = 32,
        conditions: Conditions = None,
    ) -> Float[Tensor, "sample out_channel *space"]:
        """The standard deviation over the members of an ensemble, in physical units.

        It shows where the members disagree. How far the mean is off is more than that, as all
        members may be wrong in the same way: `predict(u, confidence=0.9)` has calibrated bands.
        """
        if not isinstance(self.network, Ensemble):
            raise ValueError(
                "one network has no spread; train several together: cno train ... --members 5, or "
                "members=5 in Python."
            )
        given = self._checked(u)
        found = [member.apply_to(given, batch_size, conditions) for member in self.members()]
        return spread_of(torch.stack(found))

    @torch.inference_mode()
    def ood_score(self, u: Inputs) -> Float[Tensor, " sample"]:
        """How unlike the training's an input is: the share of validation inputs that are less so.

        Uniform on [0, 1) for inputs of the training's kind: one in twenty has 0.95 or more.
        """
        trust, u = self._measured_trust(), self._checked(u)
        spread = relative_spread(self, u, trust.bands.scale)
        return trust.inputs.scores(trust.inputs.distances_of(u, self.grid.layout, spread))

    def _measured_trust(self) -> Trust:
        """What is needed to speak of trust; where it was not kept, how to measure it."""
        if self.trust is None:
            raise ValueError(
                "it was not measured how far to trust this network; measure it on the data of its "
                "run: torchcno.calibrate(RUN), then load it again."
            )
        return self.trust

    @torch.inference_mode()
    def apply_to(self, u: Tensor, batch_size: int = 32, conditions: Conditions = None) -> Tensor:
        """`predict` without a look at the training range and at what comes out."""
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; use a whole number, 1 or more.")
        u = self._checked(u)
        self.eval()
        device = next(self.parameters()).device
        rows = self._rows_for(u, conditions)
        given: Iterable[Tensor | None] = repeat(None) if rows is None else rows.split(batch_size)
        batches = zip(u.split(batch_size), given, strict=False)
        return torch.cat([self(batch.to(device), row).cpu() for batch, row in batches])

    def _rows_for(self, u: Tensor, conditions: Conditions) -> Tensor | None:
        """What the network is told of each sample of `u`; None of one that is told nothing."""
        return as_rows(conditions, conditioning_of(self.network), u)

    def _warn_of_range(self, u: Tensor, words: str) -> bool:
        """Warn of fields outside the training range, in these `words`; whether there are any."""
        departures = self.range and self.range.describe_departures(u, self.grid.shape)
        if departures:
            warnings.warn(f"{words}: {departures}.", OutOfRange, stacklevel=4)
        return bool(departures)

    def _checked(self, u: Any) -> Tensor:
        """Inputs as a tensor of finite real numbers, on the grid of the operator's kind."""
        u = as_real_tensor(u, "inputs")
        if u.ndim < 2 or not u.numel():
            raise ValueError(
                f"inputs have shape {tuple(u.shape)}; give (sample, channel, *space), one or more "
                "samples."
            )
        if not torch.isfinite(u).all():
            bad = int((~torch.isfinite(u)).flatten(1).any(1).nonzero()[0])
            raise ValueError(
                f"inputs hold NaN or infinite values, first in sample {bad}; remove it."
            )
        self._refuse_shape(u)
        return u

    def _refuse_shape(self, u: Tensor) -> None:
        """Refuse what are no fields of as many channels and axes as the network takes."""
        config, dimension = getattr(self.network, "config", None), len(self.grid.shape)
        channels = getattr(config, "in_channels", u.shape[1] if u.ndim > 1 else 1)
        if u.ndim != dimension + 2 or u.shape[1] != channels:
            space = ", ".join("zyx"[-dimension:])
            raise ValueError(
                f"inputs have shape {tuple(u.shape)}; this {self.model} of {self.problem} takes "
                f"(sample, {channels}, {space}): give them so."
            )

    def save_pretrained(
        self, folder: str | Path, errors: Mapping[str, float] | None = None
    ) -> Path:
        """Write it to `folder` in the layout of the Hugging Face Hub: config, weights, model card.

        `errors` by split, in percent, go into the card.
        """
        from torchcno.runs.hub import write_hub

        return write_hub(self, folder, errors)

    @classmethod
    def from_pretrained(
        cls, name: str | Path, device: str | torch.device = "cpu"
    ) -> "TrainedOperator":
        """The operator of a folder, in the Hub's layout or of a run, or of a name in the package.

        Nothing is fetched: download a repository of the Hub first.
        """
        from torchcno.runs.pretrained import load_pretrained

        return load_pretrained(name, device)

    def description(self) -> dict[str, Any]:
        """What `model.json` says: all that is needed to build this operator, but its weights."""
        return {
            "format": FORMAT,
            "torchcno": __version__,
            "problem": self.problem,
            "model": self.model,
            "config": to_plain(getattr(self.network, "config", {})),
            **({"members": count} if (count := len(members_of(self.network))) > 1 else {}),
            "normalization": to_plain(self.normalization),
            "error_scaling": to_plain(self.error_scaling),
            "grid": to_plain(self.grid),
            **({"symmetry": self.symmetry} if self.symmetry else {}),
            **({} if self.range is None else {"range": to_plain(self.range)}),
        }
