"""What studies measure on a trained run beyond its errors, kept as small files in its folder.

resolution.json   errors on many grids (figure 2, right)
spectra.npz       spectra of truth and prediction on test samples (figure 2, left)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchcno.disk import read_json, write_arrays, write_json
from torchcno.evaluation.errors import published_error
from torchcno.evaluation.resolution import ResolutionCurve
from torchcno.evaluation.spectra import (
    averaged_amplitude,
    error_by_band,
    radial_spectrum,
    wavenumbers,
)
from torchcno.runs.config import read_config
from torchcno.runs.evaluate import Evaluation, evaluate_run, evaluate_runs

# Half to twice the training resolution, as the paper's figure: 32 to 128 for 64.
RATIOS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
ARRAYS = ("wavenumbers", "band_edges", "band_errors")  # of Spectra, as they are kept
# How far errors of the same weights may differ, relatively: by TF32 on one device and float32 on
# another, say.
SAME_WEIGHTS = 0.02


@dataclass(frozen=True)
class Measurement:
    """What a study wants of a trained run: a file in its folder, made from its weights."""

    file: str
    write: Callable[[Path, str], None]  # of a folder, computed on a device
    error: Callable[[Path], float | None]  # of the weights that were measured, in percent

    def is_made(self, folder: Path) -> bool:
        """Whether the finished run in `folder` has it, of its own weights."""
        return (folder / self.file).exists() and is_of_run(folder, self.error(folder))

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
        if (folder / "model.safetensors").exists():
            return ""
        return (
            f"cannot measure {self.file}: the run is trained, but its weights, model.safetensors, "
            f"are not in {folder}; bring them back, or train it again with `cno train --config "
            f"{folder / 'config.yaml'} --out {folder}-again` and put that folder in its place."
        )


def is_of_run(folder: Path, error: float | None) -> bool:
    """Whether weights with this test error are those of a run; None: nobody knows, so yes.

    So it is with a run that has no test error.
    """
    test = read_json(folder / "result.json")["errors"].get("test")
    if error is None or test is None:
        return True
    published = published_error(test)
    return abs(error - published) <= SAME_WEIGHTS * published


def measure_resolutions(folder: Path, device: str) -> None:
    """Write resolution.json."""
    training = read_config(folder).resolution
    resolutions = sorted({int(ratio * training) for ratio in RATIOS})
    (errors,) = evaluate_runs([folder], ("test",), resolutions, device=device)
    write_json(errors.as_dict(), folder / RESOLUTIONS.file)


def read_resolutions(folder: Path, name: str = "") -> ResolutionCurve | None:
    """The published error against the resolution; None where it was not measured."""
    if not (folder / RESOLUTIONS.file).exists():
        return None
    found = read_json(folder / RESOLUTIONS.file)
    errors = {int(n): published_error(one) for n, one in found["errors"]["test"].items()}
    refused = {int(n): why for n, why in found["refused"].items()}
    return ResolutionCurve(name, found["training_resolution"], errors, refused)


def _error_on_training_grid(folder: Path) -> float | None:
    curve = read_resolutions(folder)
    return None if curve is None else curve.errors.get(curve.training)


@dataclass(frozen=True)
class Spectra:
    """What the truth and a prediction are made of, over the test samples of a problem."""

    energy: Mapping[str, NDArray[np.float64]]  # of "truth" and "prediction", by whole wavenumbers
    amplitude: Mapping[str, NDArray[np.float64]]  # averaged, by (k_y, k_x)
    wavenumbers: NDArray[np.float64]  # of both axes of the amplitude
    band_edges: NDArray[np.int64]  # [low, high) of the largest wavenumber
    band_errors: NDArray[np.float64]  # relative, in each band
    # The published error of the prediction, in percent, which tells the weights from others; None
    # in files that do not keep it.
    error: float | None = None


def spectra_of(evaluation: Evaluation) -> Spectra:
    """The spectra of a prediction and of its truth."""
    layout = evaluation.fields.grid.layout
    fields = {"truth": evaluation.fields.outputs.cpu(), "prediction": evaluation.prediction.cpu()}
    bands = error_by_band(fields["prediction"], fields["truth"], layout)
    return Spectra(
        {name: radial_spectrum(field, layout).energy.numpy() for name, field in fields.items()},
        {name: averaged_amplitude(field, layout).numpy() for name, field in fields.items()},
        wavenumbers(evaluation.resolution, layout).numpy(),
        np.array([(band.low, band.high) for band in bands]),
        np.array([band.relative for band in bands]),
        published_error(evaluation.summary),
    )


def measure_spectra(folder: Path, device: str) -> None:
    """Write spectra.npz."""
    (evaluation,) = evaluate_run(folder, ("test",), device=device)
    spectra = spectra_of(evaluation)
    arrays: dict[str, Any] = {name: getattr(spectra, name) for name in (*ARRAYS, "error")}
    for name in ("truth", "prediction"):
        arrays[f"energy/{name}"] = spectra.energy[name]
        arrays[f"amplitude/{name}"] = spectra.amplitude[name].astype(np.float32)
    write_arrays(arrays, folder / SPECTRA.file)


def read_spectra(folder: Path) -> Spectra | None:
    """The spectra of a run; None where they were not measured."""
    if not (folder / SPECTRA.file).exists():
        return None
    with np.load(folder / SPECTRA.file) as arrays:
        energy, amplitude = (
            {name: arrays[f"{kind}/{name}"] for name in ("truth", "prediction")}
            for kind in ("energy", "amplitude")
        )
        rest = {name: arrays[name] for name in ARRAYS}
        error = float(arrays["error"]) if "error" in arrays else None
        return Spectra(energy, amplitude, **rest, error=error)


def _error_of_spectra(folder: Path) -> float | None:
    spectra = read_spectra(folder)
    return None if spectra is None else spectra.error


RESOLUTIONS = Measurement("resolution.json", measure_resolutions, _error_on_training_grid)
SPECTRA = Measurement("spectra.npz", measure_spectra, _error_of_spectra)
