"""What the page asks for: an input from a scene, the networks' answers, the truth, the doubt."""

import contextlib
import copy
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.grids import Grid
from torchcno.models.ensemble import Ensemble
from torchcno.playground.scenes import EASELS, MOST_SPOTS, UNKNOWN, Easel, Frame, Scene, check_range
from torchcno.problems import PROBLEMS, Problem
from torchcno.problems.darcy import Darcy
from torchcno.runs.card import list_bounds
from torchcno.runs.folder import RunFolder
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.plain import convert, from_plain
from torchcno.training.augmentation import GROUPS, move_back, move_by

FRACTIONS = (0.375, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)  # of the training resolution
COARSEST, FINEST = 16, 256
LARGEST_SHIFT = 2.0  # grid steps
MOST_NETWORKS = 8
CONFIDENCE = 0.9  # of the bound on errors that the page states
UNLIKE = 0.95  # a score of inputs from which on they are called unlike the training

Plane = Float[Tensor, "batch channel y x"]


@dataclass(frozen=True)
class View:
    """How a scene is looked at: a request of the page."""

    scene: Mapping[str, Any] = field(default_factory=dict)
    resolution: int = 64  # points along the longest axis
    shift: float = 0.0  # of the input to the right, in grid steps
    constants: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0  # of `deal` alone

    def __post_init__(self) -> None:
        check_range("the resolution", self.resolution, COARSEST, FINEST)
        check_range("the shift", self.shift, -LARGEST_SHIFT, LARGEST_SHIFT)


@dataclass(frozen=True)
class Reply:
    """Fields for the page, and what there is to say about them."""

    fields: Mapping[str, Plane] = field(default_factory=dict)
    words: Mapping[str, Any] = field(default_factory=dict)

    def pack(self) -> bytes:
        """The length of a JSON header, the header, and the fields as little-endian float32."""
        shapes = {name: list(u.shape[1:]) for name, u in self.fields.items()}
        header = json.dumps({"fields": shapes, **self.words}, allow_nan=False).encode()
        header += b" " * (-len(header) % 4)  # so that what follows is aligned
        planes = [u[0].to(torch.float32).contiguous().numpy() for u in self.fields.values()]
        parts = [plane.astype("<f4", copy=False).tobytes() for plane in planes]
        return struct.pack("<I", len(header)) + header + b"".join(parts)


class Playground:
    """Trained networks of one problem, and its solver."""

    def __init__(self, networks: Mapping[str, TrainedOperator], problem: Problem | None) -> None:
        self.networks = dict(networks)
        self.problem = problem
        first = next(iter(networks.values()))
        self.grid = first.grid
        self.easel: Easel = UNKNOWN if problem is None else EASELS.get(problem.name, UNKNOWN)
        low, high = first.normalization.constants("input")[0]
        self.middle = (low + high) / 2  # of the training inputs
        self.frame = Frame(self.grid.extent, (high - low) / 2)

    @property
    def symmetry(self) -> str | None:
        """The group of symmetries by which doubt is measured, a name in `GROUPS`."""
        declared = () if self.problem is None else self.problem.symmetries
        return next((name for name in declared if name in GROUPS), None)

    @property
    def resolutions(self) -> list[int]:
        """The resolutions that the page offers, training's among them."""
        n = max(self.grid.shape)
        offered = {2 * round(n * fraction / 2) for fraction in FRACTIONS} | {n}
        return sorted(m for m in offered if COARSEST <= m <= FINEST or m == n)

    def setup(self) -> dict[str, Any]:
        """What the page has to know before anything is drawn."""
        problem, name = self.problem, next(iter(self.networks.values())).problem
        title, equation = describe_problem(name)
        return {
            "problem": name,
            "title": title,
            "equation": equation,
            "hint": self.easel.hint,
            "kind": self.easel.scene.kind,
            "spots": MOST_SPOTS,
            "materials": [problem.low, problem.high] if isinstance(problem, Darcy) else None,
            "label": "" if problem is None else problem.input_label,
            "truth": problem is not None,
            "doubt": any(self.kind_of_doubt(operator) for operator in self.networks.values()),
            "constants": [self._slider(constant) for constant in self.easel.constants],
            "networks": [
                {
                    "name": name,
                    "model": operator.model,
                    "parameters": sum(p.numel() for p in operator.network.parameters()),
                    "doubt": self.kind_of_doubt(operator),
                    "bound": bound_errors(operator),
                }
                for name, operator in self.networks.items()
            ],
            "resolution": max(self.grid.shape),
            "resolutions": self.resolutions,
            "square": len(set(self.grid.shape)) == 1,
            "layouts": list(self.grid.layouts),
            "extent": [list(axis) for axis in self.grid.extent],
            "scene": self.deal(View()).words["scene"],
        }

    def kind_of_doubt(self, operator: TrainedOperator) -> str | None:
        """By what a network's doubt is measured, if by anything: its members, or symmetries."""
        if isinstance(operator.network, Ensemble):
            return "members"
        return None if self.symmetry is None else "symmetry"

    def _slider(self, name: str) -> dict[str, Any]:
        """A constant of the problem: where the training lay, and how far the page goes."""
        (field_,) = (one for one in fields(self.problem) if one.name == name)  # type: ignore[arg-type]
        low, high = self.range_of(name)
        return {
            "name": name,
            "help": field_.metadata["help"],
            "trained": getattr(self.problem, name),
            "ood": type(self.problem).ood.get(name),  # type: ignore[union-attr]
            "low": low,
            "high": high,
            "whole": field_.type is int,
        }

    def range_of(self, name: str) -> tuple[float, float]:
        """What a constant may be: the easel's range, and wherever the training lay."""
        low, high = self.easel.constants[name]
        trained = getattr(self.problem, name)
        return min(low, trained), max(high, trained)

    def deal(self, view: View) -> Reply:
        """A random scene."""
        check_range("the seed", view.seed, 0, 2**31 - 1)
        scene = self.easel.scene.deal(self._problem(view), view.seed)
        return Reply(words={"scene": {f.name: getattr(scene, f.name) for f in fields(scene)}})

    def answer(self, view: View) -> Reply:
        """The input and what each network makes of it; why not, where one refuses it."""
        state, problem = self._state(view), self._problem(view)
        inputs = self._seen(problem, state, view.resolution)
        found: dict[str, Plane] = {"input": inputs}
        refused: dict[str, str] = {}
        strange: dict[str, str] = {}
        for i, operator in enumerate(self.networks.values()):
            try:
                found[f"answer {i}"] = finite(operator.apply_to(inputs))
            except ValueError as error:
                refused[str(i)] = str(error)
            why = tell_strange(operator, inputs)
            if why:
                strange[str(i)] = why
        return Reply(found, {"refused": refused, "strange": strange})

    def truth(self, view: View) -> Reply:
        """What the solver says, and where it counts."""
        problem = self._problem(view)
        if problem is None:
            raise ValueError("there is no solver for these data; only the networks answer.")
        state = self._state(view)
        truth = self._seen(problem, problem.solve(state), view.resolution)
        found = {"truth": truth}
        counts = problem.mask(self._seen(problem, state, view.resolution))
        if counts is not None:
            found["counts"] = counts.to(truth)
        return Reply(found)

    def doubt(self, view: View) -> Reply:
        """How much a network doubts: a field for each that can tell."""
        inputs = self._seen(self._problem(view), self._state(view), view.resolution).float()
        found: dict[str, Plane] = {}
        for i, operator in enumerate(self.networks.values()):
            kind = self.kind_of_doubt(operator)
            if kind is None:
                continue
            measure = operator.spread if kind == "members" else partial(self._orbit, operator)
            with contextlib.suppress(ValueError):  # `answer` says why
                found[f"doubt {i}"] = finite(measure(inputs))
        return Reply(found)

    def _orbit(self, operator: TrainedOperator, inputs: Plane) -> Plane:
        """How much an answer changes where the truth does not: the spread of g⁻¹ N(g u).

        Over the symmetries g of the solution operator.
        """
        moves = GROUPS[str(self.symmetry)](inputs.shape[2:], inputs.shape[1])
        moved = torch.cat([move_by(inputs, move) for move in moves])
        answers = without_average(operator).apply_to(moved).split(1)
        images = [move_back(v, move) for v, move in zip(answers, moves, strict=True)]
        return torch.cat(images).std(0, correction=0, keepdim=True)

    def _problem(self, view: View) -> Any:
        """The problem with the constants of the page."""
        if self.problem is None:
            return None
        hints, values = get_type_hints(type(self.problem)), {}
        for name, value in view.constants.items():
            if name not in self.easel.constants:
                raise ValueError(f"the page has no constant {name!r}.")
            values[name] = convert(value, hints[name], name)
            check_range(name, values[name], *self.range_of(name))
        return replace(self.problem, **values)

    def _state(self, view: View) -> Tensor:
        """The state of the scene, on the solver's grid."""
        problem = self._problem(view)
        scene: Scene = from_plain(self.easel.scene, view.scene, "scene")
        grid = self.grid.resized(*self._shape(view.resolution))
        step = grid.spacing[-1]
        fine = grid if problem is None else problem.solver_grid(view.resolution)
        *others, (start, end) = fine.extent
        moved = view.shift * step  # to sample f(x − s) is to sample f on the grid moved by −s
        shifted = Grid(fine.shape, fine.layout, (*others, (start - moved, end - moved)))
        state = scene.state(problem, shifted, self.frame)
        if problem is None:
            state = state + self.middle
        if not torch.isfinite(state).all():
            raise ValueError("the input is not finite; draw something smaller.")
        return state

    def _shape(self, resolution: int) -> tuple[int, ...]:
        """`resolution` points along the longest axis, and the others in proportion."""
        longest = max(self.grid.shape)
        return tuple(max(2, round(n * resolution / longest)) for n in self.grid.shape)

    def _seen(self, problem: Any, states: Tensor, resolution: int) -> Plane:
        """What networks see of states."""
        seen = states if problem is None else problem.restrict(problem.observe(states), resolution)
        if not torch.isfinite(seen).all():
            raise ValueError("nothing of the input is left in the picture; move it back.")
        return seen


def finite(answer: Plane) -> Plane:
    """An answer, which is refused where it cannot be drawn."""
    if not torch.isfinite(answer).all():
        raise ValueError("the answer is not finite; draw something smaller.")
    return answer


def tell_strange(operator: TrainedOperator, inputs: Plane) -> str | None:
    """How an input is unlike the training's: out of its range, or by its score; None: alike."""
    if operator.range is not None:
        departures = operator.range.describe_departures(inputs, operator.grid.shape)
        if departures:
            return departures
    if operator.trust is None or tuple(inputs.shape[2:]) != operator.grid.shape:
        return None  # on another grid, jumps look unlike those of the training
    try:
        score = float(operator.ood_score(inputs))
    except ValueError:  # statistics of an earlier version, which do not tell
        return None
    if score < UNLIKE:
        return None
    return f"{100 * score:.0f} % of the validation inputs are more like the training than this one"


def bound_errors(operator: TrainedOperator) -> float | None:
    """What nine of ten errors stay below on inputs like the training's; None: not known."""
    known = {one["confidence"]: one["physical"] for one in list_bounds(operator)}
    bound = known.get(CONFIDENCE, math.inf)
    return bound if math.isfinite(bound) else None


def describe_problem(name: str) -> tuple[str, str]:
    """The title of a problem, and its equation."""
    known = PROBLEMS.get(name)
    words = f"{name}: input ↦ output" if known is None else str(known.__doc__)
    title, _, equation = words.partition("\n")[0].partition(": ")
    return title, equation


def without_average(operator: TrainedOperator) -> TrainedOperator:
    """The operator of the network alone, where its predictions are averages over a group."""
    alone = copy.copy(operator)
    alone.symmetry = None
    return alone


def group_by_problem(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """Run folders by the problem that they are of: what stands on one page."""
    found: dict[str, list[Path]] = {}
    for folder in folders:
        problem = str(RunFolder(folder).description().get("problem"))
        found.setdefault(problem, []).append(folder)
    return found


def open_playground(folders: Sequence[Path]) -> Playground:
    """The networks of run folders, all of one problem."""
    if len(folders) > MOST_NETWORKS:
        raise ValueError(
            f"{len(folders)} runs do not fit on the page; give {MOST_NETWORKS} at most."
        )
    networks: dict[str, TrainedOperator] = {}
    problem: Problem | None = None
    for folder in folders:
        operator = RunFolder(folder).operator()
        first = next(iter(networks.values()), operator)
        if operator.problem != first.problem or operator.grid.layout != first.grid.layout:
            raise ValueError(
                f"{folder} is of {operator.problem} and {folders[0]} of {first.problem}; give runs "
                "of one problem."
            )
        if len(operator.grid.shape) != 2:
            raise ValueError(
                f"{folder} is of fields in {len(operator.grid.shape)} dimensions; the "
                "page draws two."
            )
        networks[_free_name(operator, folder, networks)] = operator
    first = next(iter(networks.values()))
    if first.problem in PROBLEMS:
        run = RunFolder(folders[0])
        has_config = run.config_file.is_file()
        problem = run.config().problem if has_config else PROBLEMS[first.problem]()
    channels = getattr(getattr(first.network, "config", None), "in_channels", 1)
    if first.problem not in EASELS and channels != 1:
        raise ValueError(
            f"{folders[0]} takes {channels} input channels, and the page draws one; use "
            "`cno predict`."
        )
    return Playground(networks, problem)


def _free_name(operator: TrainedOperator, folder: Path, taken: Mapping[str, Any]) -> str:
    """What the page calls a network: its model, and its folder where two share one."""
    names = (operator.model, f"{operator.model} {folder.name}", f"{operator.model} {folder}")
    free = (name for name in names if name not in taken)
    return next(free, f"{operator.model} {len(taken) + 1}")
