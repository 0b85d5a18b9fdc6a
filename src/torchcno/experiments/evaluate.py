"""A trained run on data: its errors, by split and resolution."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import xarray
from torch import Tensor

from torchcno.data.dataset import Fields
from torchcno.data.dataset import load as load_fields
from torchcno.evaluation.errors import SampleErrors, sample_errors, summary
from torchcno.experiments.run_config import read_config
from torchcno.experiments.trained import load, pick_device

EVALUATED = ("test", "ood")  # the splits whose errors a run's result is


@dataclass(frozen=True)
class Evaluation:
    """Physical predictions for the samples of a split at one resolution, and their errors."""

    split: str
    fields: Fields
    prediction: Tensor  # (sample, out_channel, *space)
    errors: SampleErrors

    @property
    def resolution(self) -> int:
        """Points an axis."""
        return self.fields.grid.shape[-1]

    @cached_property
    def summary(self) -> dict[str, dict[str, float]]:
        """Statistics of the errors over the samples, in percent."""
        return summary(self.errors)


def evaluate_run(
    folder: str | Path,
    splits: Sequence[str] = EVALUATED,
    resolutions: Sequence[int] = (),
    samples: int | None = None,
    device: str = "auto",
) -> list[Evaluation]:
    """The errors of a run on `splits`, at `resolutions`: that of training, unless given.

    The data are made at the finest resolution and band-limited to the coarser ones, so that all
    hold the same functions. `samples` of each split: the paper's number, unless given.
    """
    config, operator = read_config(folder), load(folder, pick_device(device))
    resolutions = tuple(resolutions) or (config.resolution,)
    evaluations = []
    for split in splits:
        finest = load_fields(
            config.problem,
            split,
            folder=config.data,
            resolution=max(resolutions),
            samples=samples,
            device=pick_device(device),
        )
        for resolution in resolutions:
            fields = finest if resolution == max(resolutions) else finest.resampled(resolution)
            prediction = operator.predict(fields.inputs)
            errors = sample_errors(prediction, fields, operator.normalization, config.problem.mask)
            evaluations.append(Evaluation(split, fields, prediction, errors))
    return evaluations


def save_evaluations(evaluations: Sequence[Evaluation], path: Path) -> None:
    """Fields, predictions and errors as a NetCDF file, in groups `split/resolution`."""
    part = path.with_name(path.name + ".part")
    try:
        for i, evaluation in enumerate(evaluations):
            group = f"{evaluation.split}/{evaluation.resolution}"
            dataset = as_dataset(evaluation)
            dataset.to_netcdf(part, mode="a" if i else "w", group=group, engine="h5netcdf")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def as_dataset(evaluation: Evaluation) -> xarray.Dataset:
    """One evaluation with named dimensions and coordinates."""
    fields = evaluation.fields
    space = tuple("zyx"[-len(fields.grid.shape) :])
    variables = {
        "input": (("sample", "input_channel", *space), fields.inputs.numpy()),
        "output": (("sample", "output_channel", *space), fields.outputs.numpy()),
        "prediction": (("sample", "output_channel", *space), evaluation.prediction.numpy()),
        **{
            f"{metric}_{kind}": ("sample", values.numpy())
            for metric, kinds in evaluation.errors.items()
            for kind, values in kinds.items()
        },
    }
    coordinates = {name: fields.grid.axis(i).numpy() for i, name in enumerate(space)}
    return xarray.Dataset(variables, coordinates)
