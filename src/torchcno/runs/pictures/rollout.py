"""What rollouts look like: errors against time, a strip of states, and an animation."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from torchcno.disk import write_atomically
from torchcno.evaluation.rollout import CORRELATED, RolloutErrors
from torchcno.runs.pictures.drawing import (
    INK,
    Panel,
    color_scale,
    field_rows,
    middle_plane,
    panels,
    png,
    strokes,
    styled,
    tidy,
)
from torchcno.runs.rollout_errors import NETWORK, RolloutReport

SHOWN = 5  # times of a strip
FRAME = 128  # pixels of a panel of the animation, at least
HEAD = 16  # and of the text above it
MILLISECONDS = 150  # of a frame
LABELS = {"relative_l1": "relative L1 error, %", "vrmse": "VRMSE", "correlation": "correlation"}


@styled
def draw_rollout_errors(errors: Sequence[RolloutErrors], trained_until: float) -> Figure:
    """L1 error, VRMSE and correlation against time, a line per predictor; the horizon dotted."""
    others = [one for one in errors if one.name != "truth"]
    looks = strokes([one.name for one in others])
    figure, all_axes = panels(len(LABELS))
    for axes, (metric, label) in zip(all_axes, LABELS.items(), strict=True):
        for one in others:
            values = np.array(one.metrics[metric][1:]) * (100 if metric == "relative_l1" else 1)
            axes.plot(one.times[1:], values, label=one.name, **looks[one.name])
        if metric == "correlation":
            axes.axhline(CORRELATED, color=INK, lw=0.8, ls=":")
        else:
            axes.set_yscale("log")
        if trained_until < others[0].times[-1]:
            axes.axvline(trained_until, color=INK, lw=0.8, ls=":")
        axes.set(xlabel="time", ylabel=label)
        tidy(axes, legend=metric == "relative_l1")
    return figure


def draw_strip(report: RolloutReport) -> Figure:
    """Truth, rollout and error of the first sample at a few times, in columns."""
    truth, made = _first_sample(report)
    last = len(truth) - 1
    numbers = [round(last * i / min(SHOWN - 1, last)) for i in range(min(SHOWN, last + 1))]
    times = report.truth.times.tolist()
    rows = [
        [Panel(f"truth, t = {times[j]:g}", truth[j], like=truth) for j in numbers],
        [Panel("rollout", made[j], like=truth) for j in numbers],
        [
            Panel("error", (made[j] - truth[j]).abs(), like=(made - truth).abs(), error=True)
            for j in numbers
        ],
    ]
    return field_rows(rows, width=2.2)


def write_animation(report: RolloutReport, path: Path) -> None:
    """Truth, rollout and error of the first sample side by side, a frame per time, as a GIF."""
    truth, made = (states.double() for states in _first_sample(report))
    error = (made - truth).abs()
    times = [f"t = {time:.4g}" for time in report.truth.times.tolist()]
    if truth.ndim == 2:
        frames = _draw_lines(truth, made, times)
    else:
        frames = _draw_planes(truth, made, error, times)
    pictures = [
        Image.fromarray(frame).convert("P", palette=Image.Palette.ADAPTIVE) for frame in frames
    ]
    buffer = io.BytesIO()
    pictures[0].save(
        buffer,
        "GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=[MILLISECONDS] * (len(pictures) - 1) + [6 * MILLISECONDS],
        loop=0,
    )
    write_atomically(path, buffer.getvalue())


def _first_sample(report: RolloutReport) -> tuple[Tensor, Tensor]:
    """The first channel of its states, true and predicted."""
    return report.truth.states[0, :, 0].cpu(), report.rollouts[NETWORK][0, :, 0].cpu()


def _draw_planes(
    truth: Tensor, made: Tensor, error: Tensor, times: Sequence[str]
) -> list[NDArray[np.uint8]]:
    """Frames of three panels, by one scale of colours for all times."""
    low, high, name = color_scale(truth.numpy())
    scales = (
        (truth, low, high, name),
        (made, low, high, name),
        (error, 0.0, float(error.max()), "magma"),
    )
    frames = []
    for j in range(len(truth)):
        row = [
            _colour(middle_plane(states[j]).numpy(), a, b, colours)
            for states, a, b, colours in scales
        ]
        gap = np.full((row[0].shape[0], 4, 3), 255, np.uint8)
        fields = np.concatenate([row[0], gap, row[1], gap, row[2]], axis=1)
        words = (f"truth, {times[j]}", "rollout", "error")
        frames.append(np.concatenate([_write_heads(words, fields.shape[1]), fields]))
    return frames


def _write_heads(words: Sequence[str], width: int) -> NDArray[np.uint8]:
    """A line of text above as many panels."""
    page = Image.new("RGB", (width, HEAD), "white")
    for i, word in enumerate(words):
        ImageDraw.Draw(page).text((4 + i * width // len(words), 2), word, fill=INK)
    return np.asarray(page)


def _colour(field: NDArray[np.float64], low: float, high: float, name: str) -> NDArray[np.uint8]:
    """A field as pixels, rows in y upwards, each point a square."""
    part = (field - low) / ((high - low) or 1.0)
    pixels = (255 * colormaps[name](np.clip(part, 0, 1))[..., :3]).astype(np.uint8)
    times = max(1, -(-FRAME // max(field.shape)))
    return pixels[::-1].repeat(times, 0).repeat(times, 1)


@styled
def _draw_lines(truth: Tensor, made: Tensor, times: Sequence[str]) -> list[NDArray[np.uint8]]:
    """Frames of curves: truth and rollout of a field on a line."""
    low, high = float(truth.min()), float(truth.max())
    margin = 0.1 * (high - low) or 1.0
    frames = []
    for v, p, time in zip(truth, made, times, strict=True):
        figure, (axes,) = panels(1)
        axes.plot(v.numpy(), color=INK, label="truth")
        axes.plot(p.numpy(), ls="--", label="rollout")
        axes.set(ylim=(low - margin, high + margin), title=time)
        tidy(axes)
        drawn = Image.open(io.BytesIO(png(figure, dpi=80))).convert("RGBA")
        page = Image.new("RGBA", drawn.size, "white")
        page.alpha_composite(drawn)
        frames.append(np.asarray(page.convert("RGB")))
    return frames
