"""What studies measure on a trained run beyond its errors, kept as small files in its folder.

Errors on many grids (figure 2, right), and spectra of truth and prediction (figure 2, left).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchcno.disk import read_arrays, read_json, write_arrays, write_json
from torchcno.evaluation.errors import published_error
from torchcno.evaluation.spectra import (
    averaged_amplitude,
    error_by_band,
    radial_spectrum,
    wavenumbers,
)
from torchcno.runs.evaluate import Evaluation, evaluate_run, evaluate_runs
from torchcno.runs.folder import RESOLUTION_FILE, SPECTRA_FILE, RunFolder

# Half to twice the training resolution, as the paper's figure: 32 to 128 for 64.
RATIOS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
GROUPS = ("energy", "amplitude")  # of Spectra: arrays of the truth and of the prediction


@dataclass(frozen=True)
class Measurement:
    """What a study wants of a trained run: a file in its folder, made from its weights."""

    file: str
    write: Callable[[Path, str], None]  # of a folder, computed on a device
    # The hash of the weights that were measured, and their test error in percent, as far as kept.
    made_with: Callable[[RunFolder], tuple[str | None, float | None]]

    def is_made(self, folder: Path) -> bool:
        """Whether the finished run in `folder` has it, of its own weights."""
        run = RunFolder(folder)
        return (folder / self.file).exists() and run.has_weights(*self.made_with(run))

    def is_foreign(self, folder: Path) -> bool:
        """Whether it was made with other weights: those of an earlier run of the name."""
        return (folder / self.file).exists() and not self.is_made(folder)

    def make(self, folder: Path, device: str) -> None:
        """Measure the run in `folder`, unless that is done; without its weights, say so."""
        if not self.is_made(folder):
            if why := self.hindrance(folder):
                raise FileNotFoundError(why)
            self.write(folder, device)

    def hindrance(self, folder: Path) -> str:
        """Why the run in `folder` cannot be measured; nothing where it can."""
        run = RunFolder(folder)
        if run.weights.exists():
            return ""
        return (
            f"cannot measure {self.file}: the run is trained, but its weights, "
            f"{run.weights.name}, are not in {folder}; bring them back, or train it again with "
            f"`{run.command_to_train_again()}` and put that folder in its place."
        )


def measure_resolutions(folder: Path, device: str) -> None:
    """Measure the errors of a run on many grids."""
    run = RunFolder(folder)
    training = run.config().resolution
    resolutions = sorted({int(ratio * training) for ratio in RATIOS})
    (errors,) = evaluate_runs([folder], ("test",), resolutions, device=device)
    write_json({**errors.as_dict(), "weights": run.hash_weights()}, run.resolution_file)


def _resolutions_made_with(run: RunFolder) -> tuple[str | None, float | None]:
    curve = run.resolutions()
    error = None if curve is None else curve.errors.get(curve.training)
    return read_json(run.resolution_file).get("weights"), error


@dataclass(frozen=True)
class Spectra:
    """What the truth and a prediction are made of, over the test samples of a problem."""

    energy: Mapping[str, NDArray[np.float64]]  # of "truth" and "prediction", by whole wavenumbers
    amplitude: Mapping[str, NDArray[np.float64]]  # averaged, by (k_y, k_x)
    wavenumbers: NDArray[np.float64]  # of both axes of the amplitude
    band_edges: NDArray[np.int64]  # [low, high) of the largest wavenumber
    band_errors: NDArray[np.float64]  # relative, in each band
    # The published error of the prediction, in percent; None in files that do not keep it.
    error: float | None = None
    weights: str | None = None  # the hash of those that predicted; None in files of before

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All of it that is known, by name, for a file; amplitudes in single precision."""
        arrays: dict[str, NDArray[Any]] = {
            name: np.array(value)
            for name, value in vars(self).items()
            if name not in GROUPS and value is not None
        }
        for name in ("truth", "prediction"):
            arrays[f"energy/{name}"] = self.energy[name]
            arrays[f"amplitude/{name}"] = self.amplitude[name].astype(np.float32)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Spectra":
        """The inverse of `to_arrays`."""
        found: dict[str, Any] = {group: {} for group in GROUPS}
        for key, array in arrays.items():
            group, _, name = key.partition("/")
            if name:
                found[group][name] = array
            else:
                found[key] = array.item() if array.ndim == 0 else array
        return cls(**found)


def spectra_of(evaluation: Evaluation) -> Spectra:
    """The spectra of a prediction and of its truth."""
    grid = evaluation.fields.grid
    layout = grid.layout
    fields = {"truth": evaluation.fields.outputs.cpu(), "prediction": evaluation.prediction.cpu()}
    bands = error_by_band(fields["prediction"], fields["truth"], layout)
    return Spectra(
        {name: radial_spectrum(field, layout).numpy() for name, field in fields.items()},
        {name: averaged_amplitude(field, layout).numpy() for name, field in fields.items()},
        wavenumbers(evaluation.resolution, grid.layouts[-1]).numpy(),
        np.array([(band.low, band.high) for band in bands]),
        np.array([band.relative for band in bands]),
        published_error(evaluation.summary),
    )


def measure_spectra(folder: Path, device: str) -> None:
    """Measure the spectra of a run on test samples."""
    run, (evaluation,) = RunFolder(folder), evaluate_run(folder, ("test",), device=device)
    spectra = replace(spectra_of(evaluation), weights=run.hash_weights())
    write_arrays(spectra.to_arrays(), run.spectra_file)


def read_spectra(folder: Path) -> Spectra | None:
    """The spectra of a run; None where they were not measured."""
    path = RunFolder(folder).spectra_file
    if not path.exists():
        return None
    return Spectra.from_arrays(read_arrays(path))


def _spectra_made_with(run: RunFolder) -> tuple[str | None, float | None]:
    spectra = read_spectra(run.path)
    return (None, None) if spectra is None else (spectra.weights, spectra.error)


RESOLUTIONS = Measurement(RESOLUTION_FILE, measure_resolutions, _resolutions_made_with)
SPECTRA = Measurement(SPECTRA_FILE, measure_spectra, _spectra_made_with)
