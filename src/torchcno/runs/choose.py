"""A network and a recipe that fit a set of fields, where the user names none."""

import math
from collections.abc import Collection, Sequence
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any

import torch

from torchcno.data.trajectories import EQUAL_STEPS
from torchcno.grids import Grid, shortened
from torchcno.models import ABLATIONS
from torchcno.runs.presets import FOUND, model_class
from torchcno.selection import select
from torchcno.training import PRESETS, Recipe
from torchcno.training.propagator import TIME
from torchcno.training.windows import window_times

DATA = ("in_channels", "out_channels", "size", "layout", "boundary")  # what the data decide
SIZED = ("cno", "fno", "unet", "resnet", *ABLATIONS)  # the models whose size is chosen here
COARSEST = 4  # points per axis that the coarsest level of a network has at least
STEPS = 20_000  # of a training, about


def choose_network(
    model: str, samples: int, grid: Grid, channels: tuple[int, int], /, **overrides: Any
) -> Any:
    """The configuration of `model` for so many samples on `grid`; `overrides` are fields of it.

    Channels, layout and boundary are the data's. The size grows with V = samples × points, the
    values that there are to learn from:

        levels  halvings of the grid that leave 4 points per axis, 1 to 3
        size    the grid's points, rounded up to a multiple of 2**levels
        width   8 (V / 2¹⁶)^(1/3), a multiple of 8 from 8 to 48: 8 for 64 samples of 32² points, 32
                for 1024 of 64²; in one dimension at least 16, in three at most 16
        blocks  1 across and 2 in the neck; 2 and 4 from V = 2²⁰ on

    Other models than CNO take the same width where they have one, and as many Fourier modes as
    the grid has, up to 16. What is not named here has its default.
    """
    config = model_class(model).Config
    known = [field.name for field in fields_of(config)]
    values = samples * math.prod(grid.shape)
    narrowest = min(grid.shape)
    levels = overrides.get("levels", min(max(int(math.log2(max(narrowest, 2) / COARSEST)), 1), 3))
    step = 2**levels if isinstance(levels, int) and 0 < levels < 16 and "levels" in known else 1
    if step > 2 * narrowest:
        raise ValueError(
            f"levels is {levels}, and {narrowest} points cannot be halved so often; use fewer."
        )
    least, most = {1: (2, 6), 2: (1, 6)}.get(len(grid.shape), (1, 2))
    width = 8 * round(min(max((values / 2**16) ** (1 / 3), least), most))
    few = values < 2**20
    chosen: dict[str, Any] = {
        "in_channels": channels[0],
        "out_channels": channels[1],
        "size": tuple(-(-n // step) * step for n in grid.shape),
        "layout": grid.layout,
        "boundary": boundary_of_grid(grid),
        "levels": levels,
        "width": width,
        "channels": width,
        "lift_width": min(2 * width, 64),
        "skip_blocks": 1 if few else 2,
        "neck_blocks": 2 if few else 4,
        "modes": max(1, min(16, narrowest // 2)),
    }
    _, ablated = ABLATIONS.get(model, (model, {}))
    if model not in SIZED:
        chosen = {key: chosen[key] for key in DATA}
    given = {key: value for key, value in chosen.items() if key in known}
    return config(**{**given, **ablated, **overrides})


def boundary_of_grid(grid: Grid) -> Any:
    """How a network takes fields to go on beyond the edge of each axis: periodic, or with zeros."""
    return shortened(tuple("periodic" if one == "periodic" else "zero" for one in grid.layouts))


def choose_recipe(samples: int, preset: str = "best", /, **overrides: Any) -> Recipe:
    """The recipe of `preset` for so many samples; `overrides` are fields of it.

        batch_size  an eighth of the samples, a power of 2 from 4 to 32, and no more than there are
        epochs      those of the preset, but no more than make 20,000 steps, and 20 at least

    CNOs of a few hundred samples learn best with Muon and a rate of 4e-3, in a fraction of the
    steps, so `best` takes both here.
    """
    recipe = select(PRESETS, preset, "preset")
    batch = 2 ** int(math.log2(min(max(samples / 8, 4), 32)))
    batch = overrides.get("batch_size", min(batch, samples))
    usable = isinstance(batch, int) and 0 < batch <= samples
    per_epoch = samples // batch if usable else 1
    chosen: dict[str, Any] = {
        "batch_size": batch,
        "epochs": min(recipe.epochs, max(STEPS // per_epoch, 20)),
    }
    if preset == "best":
        chosen |= FOUND
    return replace(recipe, **{**chosen, **overrides})


def describe_choice(model: str, network: Any, recipe: Recipe, parameters: int) -> str:
    """What was chosen, in a line, by the names that change it."""
    known = {field.name for field in fields_of(network)}
    shown = [name for name in ("levels", "width", "channels", "modes") if name in known]
    sizes = ", ".join(f"{name} {getattr(network, name)}" for name in shown)
    size = " × ".join(map(str, network.size))
    return (
        f"{model} on {size} points{', ' + sizes if sizes else ''}: {parameters:,} parameters; "
        f"{recipe.epochs} epochs, batches of {recipe.batch_size}, {recipe.optimizer}"
    )


def count_windows(samples: int, times: Sequence[float], recipe: Recipe) -> int:
    """How many samples trajectories make: their windows; of no times: they are pairs themselves."""
    if not times:
        return samples
    return samples * len(window_times(len(times), recipe.lead_times, recipe.unroll))


def shorten_epochs(recipe: Recipe, ratio: float, given: Collection[str] = ()) -> Recipe:
    """The same number of steps in epochs that have `ratio` times the samples.

    What is `given` stays.
    """
    half_life = recipe.averaging_half_life
    fewer: dict[str, Any] = {
        "epochs": max(1, round(recipe.epochs / ratio)),
        "averaging_half_life": half_life and half_life / ratio,
        "evaluate_every": max(1, round(recipe.evaluate_every / ratio)),
        "patience": recipe.patience and max(1, round(recipe.patience / ratio)),
    }
    return replace(recipe, **{name: value for name, value in fewer.items() if name not in given})


def choose_conditioning(
    times: Sequence[float], recipe: Recipe, parameters: Sequence[str] = ()
) -> dict[str, Any]:
    """The field `conditioning` of a network for trajectories: the time, where lead times differ.

    And the `parameters` that trajectories have.
    """
    if not times:
        return {}
    windows = window_times(len(times), recipe.lead_times, recipe.unroll)
    leads = torch.tensor(times, dtype=torch.float64)[windows].diff(dim=1)
    spread = float(leads.max() - leads.min())
    differ = spread > EQUAL_STEPS * float(leads.max())
    names = (*((TIME,) if differ else ()), *parameters)
    return {"conditioning": names} if names else {}
