"""A trained run on data: its errors, by split and resolution."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xarray
from torch import nn

from torchcno.arithmetic import arithmetic
from torchcno.data.fields import Fields
from torchcno.data.files import coordinates_of
from torchcno.evaluation.errors import published_error
from torchcno.evaluation.resolution import (
    Evaluation,
    Predict,
    Refused,
    ResolutionCurve,
    at_resolutions,
)
from torchcno.runs.config import RunConfig
from torchcno.runs.folder import RunFolder, load, read_config
from torchcno.runs.loading import load_split
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.own import present_splits
from torchcno.runs.predict import write_groups
from torchcno.runs.rollout import EvolutionOperator, Horizon
from torchcno.training.hardware import pick_device

EVALUATED = ("test", "ood")  # the splits whose errors a run's result is


def evaluate_run(
    folder: str | Path,
    splits: Sequence[str] = EVALUATED,
    resolutions: Sequence[int] = (),
    samples: int | None = None,
    device: str = "auto",
    refused: Refused | None = None,
    data: str | Path | None = None,
    network: nn.Module | None = None,
) -> list[Evaluation]:
    """The errors of a run on `splits`, at `resolutions`: that of training, unless given.

    The data are made at the finest resolution and band-limited to the coarser ones, so that all
    hold the same functions. `samples` of each split: the paper's number, unless given. Resolutions
    that the model does not take are told to `refused`; without it they are an error. The data are
    in the folder `data`, or where they were in training. A `network` that is not of this package
    has to be given.

    Products are those of the training, float32 in full or TF32, and fields are float32 whatever
    they were stored as in its steps: as for the validation error, by which the weights were chosen.
    """
    config = RunFolder(folder).config_here(data)
    operator = load(folder, pick_device(device), network)
    splits = present_splits(config.problem, tuple(splits)) if splits == EVALUATED else splits
    resolutions = tuple(resolutions) or (config.resolution,)
    evaluations = []
    for split in splits:
        finest, predict = load_evaluated(
            config, operator, split, max(resolutions), samples, pick_device(device)
        )
        scaling, mask = operator.error_scaling, config.problem.mask
        with arithmetic(config.train.precision):
            evaluations += at_resolutions(
                predict, finest, resolutions, scaling, mask, refused, split
            )
    return evaluations


def load_evaluated(
    config: RunConfig,
    operator: TrainedOperator,
    split: str,
    resolution: int,
    samples: int | None,
    device: torch.device,
) -> tuple[Fields, Predict]:
    """The fields of a split, and what predicts their outputs from their inputs.

    Of trajectories: the first states and the last, by a rollout.
    """
    found = load_split(config, split, samples, resolution, device=device)
    if isinstance(found, Fields):
        return found, operator.apply_to
    assert isinstance(operator, EvolutionOperator)
    return found.as_fields(), Horizon.of(operator, found).apply_to


@dataclass(frozen=True)
class RunErrors:
    """The errors of one run among others, and the resolutions that its model refuses."""

    name: str
    training: int  # the resolution of the training data
    evaluations: Sequence[Evaluation]
    refused: Mapping[int, str]

    def curve(self, split: str) -> ResolutionCurve:
        """The published error, in percent, against the resolution."""
        errors = {
            e.resolution: published_error(e.summary) for e in self.evaluations if e.split == split
        }
        return ResolutionCurve(self.name, self.training, errors, self.refused)

    def as_dict(self) -> dict[str, Any]:
        """All statistics by split and resolution, for a JSON file."""
        splits = dict.fromkeys(e.split for e in self.evaluations)
        return {
            "training_resolution": self.training,
            "errors": {
                split: {str(e.resolution): e.summary for e in self.evaluations if e.split == split}
                for split in splits
            },
            "over_training_resolution": {
                split: {str(n): ratio for n, ratio in self.curve(split).relative.items()}
                for split in splits
            },
            "largest_change": {split: self.curve(split).largest_change for split in splits},
            "refused": {str(n): reason for n, reason in self.refused.items()},
        }


def evaluate_runs(
    folders: Sequence[str | Path],
    splits: Sequence[str] = EVALUATED,
    resolutions: Sequence[int] = (),
    samples: int | None = None,
    device: str = "auto",
    data: str | Path | None = None,
) -> list[RunErrors]:
    """`evaluate_run` for several runs, named by their folders; refused resolutions are kept."""
    found = []
    for name, folder in zip(run_names(folders), folders, strict=True):
        refused: dict[int, str] = {}
        evaluations = evaluate_run(
            folder, splits, resolutions, samples, device, refused.__setitem__, data
        )
        training = read_config(folder).resolution
        found.append(RunErrors(name, training, evaluations, refused))
    return found


def run_names(folders: Sequence[str | Path]) -> list[str]:
    """The names of the folders, and their paths where two have the same name."""
    names = [Path(folder).resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def save_evaluations(evaluations: Sequence[Evaluation], path: Path) -> None:
    """Fields, predictions and errors as a NetCDF file, in groups `split/resolution`."""
    groups = {}
    for one in evaluations:
        space = coordinates_of(one.fields.grid)
        errors = {
            f"{metric}_{kind}": ("sample", values.numpy())
            for metric, kinds in one.errors.items()
            for kind, values in kinds.items()
        }
        variables = {
            "input": (("sample", "input_channel", *space), one.fields.inputs.numpy()),
            "output": (("sample", "output_channel", *space), one.fields.outputs.numpy()),
            "prediction": (("sample", "output_channel", *space), one.prediction.numpy()),
            **errors,
        }
        groups[f"{one.split}/{one.resolution}"] = xarray.Dataset(variables, space)
    write_groups(path, groups)
