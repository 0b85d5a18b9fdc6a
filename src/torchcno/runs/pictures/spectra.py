"""Spectra of truths and predictions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from torchcno.evaluation.spectra import NO_TRUTH
from torchcno.runs.measurements import Spectra
from torchcno.runs.pictures.drawing import INK, SHADES, line_looks, short_name, styled, tidy

DECADES = 6  # of amplitude that a picture of a spectrum shows, and twice as many of energy
AMPLITUDE = r"$\log_{10}$ mean amplitude"
CENTRAL = 16  # the highest wavenumber of the central frequencies


@styled
def draw_spectra(models: Mapping[str, Spectra]) -> Figure:
    """Averaged logarithmic amplitudes of truth and predictions (figure 2, left).

    Below them the energy by shells and the error by octaves.
    """
    truth = next(iter(models.values()))
    amplitudes = {
        "truth": truth.amplitude["truth"],
        **{name: one.amplitude["prediction"] for name, one in models.items()},
    }
    panel = 8 / len(amplitudes)
    figure = Figure(figsize=(9, 3.9 + panel), layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(panel + 0.7, 3.2))[:, 0]
    _draw_amplitudes(above, amplitudes, truth.wavenumbers)
    radial, bands = below.subplots(1, 2)
    _draw_energy(radial, truth.energy["truth"], {"color": INK, "lw": 3, "label": "truth"})
    looks = line_looks(models)
    for name, one in models.items():
        _draw_energy(radial, one.energy["prediction"], looks[name] | {"marker": "", "lw": 1.4})
        shown = one.band_errors < NO_TRUTH
        labels = [f"{a}–{b - 1}" if b - a > 1 else f"{a}" for a, b in one.band_edges[shown]]
        bands.semilogy(labels, one.band_errors[shown], **looks[name])
    bands.axhline(1, color=INK, ls=":", lw=1)  # as wrong as zero
    radial.set(xlabel="wavenumber |k|", ylabel="energy")
    # A band-limited truth is rounding beyond its band, and shall not squeeze the rest.
    least = radial.dataLim.y1 * 10.0 ** (-2 * DECADES)
    radial.set_ylim(bottom=max(radial.get_ylim()[0], least))
    bands.set(xlabel="largest wavenumber of the mode", ylabel="relative error in the band")
    for axes in (radial, bands):
        tidy(axes)
    return figure


@styled
def draw_truths(problems: Mapping[str, Spectra]) -> Figure:
    """The central frequencies of the truths of several problems: which has many scales."""
    amplitudes = {}
    for name, one in problems.items():
        central = np.abs(one.wavenumbers) <= CENTRAL
        truth = one.amplitude["truth"][np.ix_(central, central)]
        amplitudes[name] = truth / truth.max()
    figure = Figure(figsize=(4 * len(amplitudes), 3.2), layout="constrained")
    k = next(iter(problems.values())).wavenumbers
    _draw_amplitudes(figure, amplitudes, k[np.abs(k) <= CENTRAL])
    return figure


def _draw_amplitudes(
    figure: Figure | SubFigure,
    amplitudes: Mapping[str, NDArray[np.float64]],
    k: NDArray[np.float64],
) -> None:
    # In three dimensions the largest along k_z.
    planes = {name: a.max(0) if a.ndim == 3 else a for name, a in amplitudes.items()}
    pictures = {name: np.log10(np.maximum(a, 1e-30)) for name, a in planes.items()}
    high = max(picture.max() for picture in pictures.values())
    axes_of = figure.subplots(1, len(pictures), squeeze=False, sharey=True)[0]
    ends = (k[0] - 0.5, k[-1] + 0.5)
    for axes, (name, picture) in zip(axes_of, pictures.items(), strict=True):
        if picture.ndim == 1:
            axes.plot(k, picture, color=INK)
            axes.set(title=short_name(name), xlabel="$k$", ylim=(high - DECADES, high + 0.3))
            tidy(axes)
            continue
        axes.imshow(
            picture,
            origin="lower",
            extent=(*ends, *_ends_of(picture.shape[0], k)),
            cmap=colormaps["magma"].resampled(SHADES),
            vmin=high - DECADES,
            vmax=high,
        )
        axes.set(title=short_name(name), xlabel="$k_x$")
    shown = axes_of[0].images
    axes_of[0].set_ylabel("$k_y$" if shown else AMPLITUDE)
    if shown:
        figure.colorbar(shown[0], ax=list(axes_of), shrink=0.85, label=AMPLITUDE)


def _ends_of(n: int, k: NDArray[np.float64]) -> tuple[float, float]:
    """Where n wavenumbers like k begin and end: with both signs, or with one."""
    start = k[0] - 0.5 if n == len(k) or k[0] >= 0 else -n / 2
    return float(start), float(start + n)


def _draw_energy(axes: Axes, energy: NDArray[np.float64], look: dict[str, Any]) -> None:
    kappa = np.arange(len(energy))
    shown = (energy > 0) & (kappa > 0)
    axes.loglog(kappa[shown], energy[shown], **look)
