"""The presets: which network and which recipe a model gets for a problem.

`PAPER` is the paper's tables of selected hyper-parameters, a block per model and a row per problem.
`BEST` is what was found better since. A model or a problem without a row has its own defaults. What
the preset `best` takes from a problem's symmetries is a rule (`follow_symmetries`), not a table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn

from torchcno.models import ABLATIONS, MODELS, ParameterCount, count_parameters
from torchcno.problems import PROBLEMS
from torchcno.problems.problem import Problem
from torchcno.runs.plain import check_key
from torchcno.selection import select
from torchcno.training import PRESETS
from torchcno.training.augmentation import GROUPS, ZEROS


class Row(NamedTuple):
    """Fields of a model's configuration, and of the training recipe."""

    network: Mapping[str, Any]
    recipe: Mapping[str, Any]


def block(columns: tuple[str, ...], rows: Mapping[str, tuple[Any, ...]]) -> dict[str, Row]:
    """Rows of the network's `columns`, followed by four of the recipe."""
    recipe, n = ("learning_rate", "gamma", "weight_decay", "batch_size"), len(columns)
    return {
        problem: Row(
            dict(zip(columns, row[:n], strict=True)), dict(zip(recipe, row[n:], strict=True))
        )
        for problem, row in rows.items()
    }


# fmt: off
PAPER: dict[str, dict[str, Row]] = {
    # Two rows are corrected to fit the paper's own parameter counts: d_e of allen-cahn and of
    # airfoil, both 48 there.
    "cno": block(("levels", "width", "neck_blocks", "skip_blocks"), {
        #                           M  d_e N_b N_i  η     γ     w      batch
        "poisson":                 (3, 16, 6,  4,   1e-3, 0.98, 1e-6,  32),
        "wave":                    (3, 48, 6,  4,   1e-3, 0.98, 1e-10, 32),
        "smooth-transport":        (3, 32, 6,  2,   1e-3, 0.98, 1e-6,  32),
        "discontinuous-transport": (3, 32, 4,  5,   1e-3, 0.98, 1e-6,  32),
        "allen-cahn":              (3, 32, 8,  4,   1e-3, 0.98, 1e-6,  32),
        "navier-stokes":           (3, 32, 8,  1,   1e-3, 0.98, 1e-10, 32),
        "darcy":                   (3, 48, 4,  4,   1e-3, 0.98, 1e-6,  32),
        "airfoil":                 (4, 24, 8,  1,   1e-3, 0.98, 1e-10, 32),
    }),
    "fno": block(("pad", "modes", "width", "layers"), {
        #                           pad k_max d_v  L  η     γ     w     batch
        "poisson":                 (0,  16,   16,  5, 1e-3, 0.98, 1e-6, 32),
        "wave":                    (0,  20,   16,  4, 1e-3, 0.98, 1e-6, 32),
        "smooth-transport":        (4,  20,   32,  5, 1e-3, 0.98, 1e-6, 32),
        "discontinuous-transport": (4,  16,   32,  5, 1e-3, 0.98, 1e-6, 32),
        "allen-cahn":              (0,  20,   16,  3, 1e-3, 0.98, 1e-6, 32),
        "navier-stokes":           (0,  16,   128, 5, 1e-3, 0.98, 1e-6, 32),
        "darcy":                   (0,  24,   16,  2, 1e-3, 0.98, 1e-6, 32),
        "airfoil":                 (8,  24,   32,  3, 1e-3, 0.98, 1e-6, 32),
    }),
    "unet": block(("channels",), {
        #                           c   η     γ     w     batch
        "poisson":                 (32, 1e-3, 0.98, 0.0,  10),
        "wave":                    (64, 1e-3, 1.0,  1e-6, 10),
        "smooth-transport":        (16, 1e-3, 0.98, 1e-6, 10),
        "discontinuous-transport": (32, 1e-3, 0.98, 1e-6, 10),
        "allen-cahn":              (64, 5e-4, 0.98, 1e-6, 10),
        "navier-stokes":           (64, 5e-4, 0.98, 1e-6, 10),
        "darcy":                   (32, 1e-3, 0.98, 0.0,  10),
        "airfoil":                 (32, 1e-3, 0.98, 1e-6, 10),
    }),
    # The paper gives no batch size for this one; 10 is that of its other networks without spectra.
    "resnet": block(("channels", "residual_blocks"), {
        #                           c   N_res  η     γ     w     batch
        "poisson":                 (8,  8,     1e-3, 0.98, 0.0,  10),
        "wave":                    (16, 8,     1e-3, 0.98, 1e-6, 10),
        "smooth-transport":        (32, 6,     1e-3, 0.98, 1e-6, 10),
        "discontinuous-transport": (32, 4,     1e-3, 0.98, 1e-6, 10),
        "allen-cahn":              (32, 4,     1e-3, 0.98, 1e-6, 10),
        "navier-stokes":           (64, 8,     1e-3, 0.98, 1e-6, 10),
        "darcy":                   (8,  8,     1e-3, 0.98, 0.0,  10),
        "airfoil":                 (32, 8,     1e-3, 1.0,  0.0,  10),
    }),
    "deeponet": block(
        ("bases", "trunk_layers", "trunk_width", "branch_levels", "residual_blocks"), {
        #                           p    L  d    M  N_res  η     γ     w     batch
        "poisson":                 (500, 8, 128, 4, 4,     1e-3, 0.98, 0.0,  10),
        "wave":                    (100, 4, 512, 4, 4,     5e-4, 0.98, 0.0,  10),
        "smooth-transport":        (500, 8, 128, 4, 0,     5e-4, 0.98, 0.0,  10),
        "discontinuous-transport": (100, 8, 512, 4, 4,     5e-4, 0.98, 0.0,  10),
        "allen-cahn":              (50,  8, 512, 4, 4,     5e-4, 0.98, 1e-6, 10),
        "navier-stokes":           (100, 8, 512, 6, 2,     5e-4, 0.98, 1e-6, 10),
        "darcy":                   (500, 8, 512, 4, 4,     5e-4, 0.98, 0.0,  10),
        "airfoil":                 (500, 8, 256, 4, 4,     5e-4, 0.98, 1e-6, 10),
    }),
    "ffnn": block(("layers", "width"), {
        #                           L   d    η     γ     w     batch
        "poisson":                 (10, 512, 5e-4, 0.98, 1e-6, 10),
        "wave":                    (4,  256, 1e-3, 0.98, 1e-6, 10),
        "smooth-transport":        (16, 256, 1e-3, 1.0,  0.0,  10),
        "discontinuous-transport": (6,  512, 5e-4, 1.0,  0.0,  10),
        "allen-cahn":              (8,  512, 5e-4, 0.98, 0.0,  10),
        "navier-stokes":           (16, 256, 1e-3, 1.0,  1e-6, 10),
        "darcy":                   (16, 256, 5e-4, 0.98, 1e-6, 10),
        "airfoil":                 (16, 32,  5e-4, 1.0,  0.0,  10),
    }),
    # Two rows of the printed table do not have the printed number of parameters: smooth-transport
    # has one decoder layer more here (L = 4, not 3), discontinuous-transport half the blocks (4,
    # not 8). The paper gives no batch size; 32 is that of its other operators, FNO and CNO.
    "galerkin-transformer": block(
        ("blocks", "heads", "width", "decoder_layers", "decoder_width", "modes"), {
        #                           n  h  d    L  d_v k_max  η     γ    w    batch
        "poisson":                 (4, 4, 64,  2, 64, 16,    5e-4, 1.0, 0.0, 32),
        "wave":                    (4, 4, 64,  2, 64, 16,    5e-4, 1.0, 0.0, 32),
        "smooth-transport":        (4, 2, 128, 4, 64, 16,    5e-4, 1.0, 0.0, 32),
        "discontinuous-transport": (4, 2, 128, 4, 64, 16,    5e-4, 1.0, 0.0, 32),
        "allen-cahn":              (2, 4, 128, 2, 32, 16,    5e-4, 1.0, 0.0, 32),
        "navier-stokes":           (2, 2, 256, 2, 64, 16,    5e-4, 1.0, 0.0, 32),
        "darcy":                   (4, 2, 256, 2, 32, 16,    5e-4, 1.0, 0.0, 32),
        "airfoil":                 (2, 4, 64,  4, 64, 16,    5e-4, 1.0, 0.0, 32),
    }),
}
# Further fields of a model's network, whatever the problem: as in the authors' code, where its
# text is silent (docs/training.md).
NETWORK: dict[str, dict[str, Any]] = {"ffnn": {"norm_behind": True}}

# Further fields of a model's recipe, whatever the problem. Without patience: the error is lowest
# where the cycle ends (docs/training.md).
ALWAYS: dict[str, dict[str, Any]] = {
    "galerkin-transformer": {"loss": "weighted-l2", "schedule": "one-cycle", "patience": None},
}

# What runs found better than the paper's numbers for one network (docs/training.md), beside what
# follows from the problem's symmetries. Batch norm keeps its statistics in the second half, but on
# navier-stokes.
_FOUND = {"optimizer": "muon", "learning_rate": 4e-3}
_HELD = {**_FOUND, "frozen_statistics": 0.5}
BEST: dict[tuple[str, str], dict[str, Any]] = {
    ("poisson", "cno"):                 _HELD,
    ("wave", "cno"):                    _HELD,
    ("smooth-transport", "cno"):        _HELD,
    ("discontinuous-transport", "cno"): _HELD,
    ("allen-cahn", "cno"):              {**_HELD, "weight_decay": 0.1},
    ("navier-stokes", "cno"):           {**_FOUND, "epochs": 200},
    ("darcy", "cno"):                   _HELD,
    ("airfoil", "cno"):                 {**_HELD, "epochs": 200},
    ("vorticity", "cno"):               {**_HELD, "normalization": "symmetric"},
}
# fmt: on

# The paper trains no model on its counter-example; there the Navier-Stokes rows stand in.
STANDS_IN = {"vorticity": "navier-stokes"}

# Networks of a problem in space that is not of the paper, by the rule of `choose_network`: those of
# a plane would have tens of millions of parameters there.
IN_SPACE: dict[str, dict[str, Any]] = {
    "cno": {"levels": 2, "width": 16, "neck_blocks": 4, "skip_blocks": 2},
    "fno": {"modes": 8, "width": 16},
    "unet": {"channels": 16},
}
OURS = {"taylor-green": IN_SPACE}


def paper_row(model: str, problem: str) -> Row:
    """The paper's row of a model for a problem; of a problem of ours its own, or an empty one."""
    base, changed = ABLATIONS.get(model, (model, {}))
    row = PAPER.get(base, {}).get(STANDS_IN.get(problem, problem), Row({}, {}))
    ours = OURS.get(problem, {}).get(base, {})
    network = {**row.network, **ours, **NETWORK.get(base, {}), **changed}
    return Row(network, {**row.recipe, **ALWAYS.get(base, {})})


def training_row(model: str, problem: str | Problem, preset: str) -> Mapping[str, Any]:
    """What differs from the recipe `preset` for this model and problem."""
    base, _ = ABLATIONS.get(model, (model, {}))
    problem = build_problem(problem)
    row = paper_row(model, problem.name).recipe
    if preset != "best":
        return row
    # A problem that stands in for another has neither its symmetries nor what was found for it.
    return {**row, **follow_symmetries(problem), **BEST.get((problem.name, base), {})}


def follow_symmetries(problem: Problem) -> dict[str, Any]:
    """What `best` makes of a problem's symmetries, for every network.

    Batches are moved by the largest group that the problem has, and predictions averaged over it.
    Fields are scaled so that zero stays zero: signs may change, and zeros beyond an edge on which
    fields vanish make no jump.
    """
    space = torch.Size(problem.grid(problem.resolution).shape)
    sizes = {
        name: len(GROUPS[name](space, max(problem.channels)))
        for name in problem.symmetries
        if name in GROUPS and ZEROS.get(name, 0.0) == 0.0
    }
    if not sizes:
        return {}
    return {
        "normalization": "symmetric",
        "augmentation": max(sizes, key=lambda name: sizes[name]),
        "symmetric_predictions": True,
    }


def boundary_of(problem: Problem, preset: str) -> str:
    """How a convolutional operator treats the edge, by training preset.

    `paper`: with zeros, as the authors' implementation. Others: periodic where the problem is and
    no place differs from another. A periodic network gives shifted outputs for shifted inputs: it
    cannot learn what a force in a fixed place does. Zeros beyond the edge tell it where it is.
    Networks see fields scaled to [0, 1], whose edge values are not zero: there is no odd boundary
    to honour, and reflecting an odd field evenly puts a kink on the edge.
    """
    select(PRESETS, preset, "preset")
    same_when_shifted = problem.boundary == "periodic" and problem.homogeneous
    return "periodic" if same_when_shifted and preset != "paper" else "zero"


def build_problem(problem: str | Problem) -> Problem:
    """The problem of that name with the paper's constants; a problem is left as it is."""
    return problem if isinstance(problem, Problem) else select(PROBLEMS, problem, "problem")()


def model_class(name: str) -> Any:
    """The class of that name, a `torchcno.models.Network`."""
    if is_foreign(name):
        raise ValueError(
            f"the network is {name}, which only Python can build: give it, as in "
            "torchcno.load(RUN, network=...) or torchcno.train(network, ..., resume=True)."
        )
    return select(MODELS, name, "model")


def is_foreign(model: object) -> bool:
    """Whether a name is that of a class outside this package."""
    return isinstance(model, str) and "." in model


@dataclass(frozen=True)
class ForeignConfig:
    """What is known of a network that is not of this package."""

    in_channels: int = 1
    out_channels: int = 1
    size: tuple[int, ...] = ()


def model_config(
    name: str, problem: str | Problem = "poisson", preset: str = "paper", **overrides: Any
) -> Any:
    """The configuration of model `name` for `problem`, with the paper's hyper-parameters.

    Channels and size are the problem's, and so are, where a model knows of them, the grid's layout
    and the boundary of the `preset`. `overrides` are fields of the configuration.
    """
    model, problem = model_class(name), build_problem(problem)
    in_channels, out_channels = problem.channels
    of_problem = {
        "in_channels": in_channels,
        "out_channels": out_channels,
        "size": problem.grid(problem.resolution).shape,
        "layout": problem.layout,
        "boundary": boundary_of(problem, preset),
    }
    known = [field.name for field in fields(model.Config)]
    for key in overrides:
        check_key(key, known, "model")
    given = {key: value for key, value in of_problem.items() if key in known}
    return model.Config(**{**given, **paper_row(name, problem.name).network, **overrides})


def build_model(
    name: str, problem: str | Problem = "poisson", preset: str = "paper", **overrides: Any
) -> nn.Module:
    """Model `name` with the paper's hyper-parameters for `problem`; `overrides` are config fields.

    >>> model = build_model("fno", problem="darcy", width=16)
    """
    return model_class(name)(model_config(name, problem, preset, **overrides))


@cache
def parameter_count(name: str, config: Any) -> ParameterCount:
    """How many parameters model `name` has in that configuration, without making them."""
    try:
        with torch.device("meta"):
            return count_parameters(model_class(name)(config))
    except RuntimeError as error:  # of torch, which cannot even count so many bytes
        raise ValueError(
            "a network of this size takes more bytes of memory than can be counted; use a smaller "
            "width, or fewer layers or levels."
        ) from error
