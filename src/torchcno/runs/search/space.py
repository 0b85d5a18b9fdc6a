"""What a search chooses from: a run, some fields of which are open."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
import yaml

from torchcno.models import ABLATIONS
from torchcno.runs.config import RunConfig
from torchcno.runs.plain import check_key, convert, from_plain
from torchcno.runs.presets import model_class, parameter_count

_AUTHORS = yaml.safe_load(Path(__file__).with_name("ranges.yaml").read_text(encoding="utf-8"))

Choice = Mapping[str, Any]  # a value for every open field, such as {"model.width": 16}


@dataclass(frozen=True)
class Space:
    """The runs that `base` becomes when each field of `ranges` takes one of its values.

    Only those count that can be built, with at most `max_parameters` (a complex one counts once).
    """

    base: RunConfig
    ranges: Mapping[str, tuple[Any, ...]]  # by dotted names: "model.width", "train.learning_rate"
    max_parameters: int | None = None

    @classmethod
    def of(
        cls,
        base: RunConfig,
        ranges: Mapping[str, Sequence[Any]] = {},
        fixed: Sequence[str] = (),
        max_parameters: int | None = None,
    ) -> "Space":
        """The authors' ranges for the model of `base`, less the `fixed`; `ranges` go over."""
        model, changed = ABLATIONS.get(base.model, (base.model, {}))
        network = _AUTHORS["network"].get(model, {})
        recipe = {} if model in _AUTHORS["fixed_recipe"] else _AUTHORS["recipe"]
        paper: dict[str, Sequence[Any]] = {
            **{f"model.{name}": values for name, values in network.items() if name not in changed},
            **{f"train.{name}": values for name, values in recipe.items()},
        }
        closed = set(fixed)
        if base.train.schedule != "step":
            closed.add("train.gamma")  # only the steps know it
        if base.train.optimizer != "adamw":
            closed.add("train.learning_rate")  # the authors' are AdamW's
        given = {name: paper[name] for name in paper if name not in closed} | dict(ranges)
        space = cls(base, {name: tuple(values) for name, values in given.items()}, max_parameters)
        space.check()
        return space

    def config(self, choice: Choice) -> RunConfig:
        """The run of a choice; a ValueError where there is no such run."""
        sections: dict[str, dict[str, Any]] = {"model": {}, "train": {}}
        for name, value in choice.items():
            section, _, field = name.partition(".")
            sections[section][field] = value
        base = self.base
        return replace(
            base,
            architecture=from_plain(
                type(base.architecture), sections["model"], "model", base=base.architecture
            ),
            train=from_plain(type(base.train), sections["train"], "train", base=base.train),
        )

    def refusal(self, choice: Choice) -> str:
        """Why a choice does not count; empty if it does."""
        try:
            config = self.config(choice)
        except ValueError as error:
            return str(error)
        if self.max_parameters is None:
            return ""
        parameters = parameters_of(config)
        return f"it has {parameters:,} parameters." if parameters > self.max_parameters else ""

    def draw(self, seed: int, number: int) -> dict[str, Any]:
        """The choice of that `number` in a random order, given by `seed`, of all that count."""
        counting = itertools.filterfalse(self.refusal, self._shuffled(seed))
        found = next(itertools.islice(counting, number, None), None)
        if found is None:
            raise ValueError(
                f"the ranges have no more than {number} valid configurations; use fewer trials, or "
                "other ranges."
            )
        return found

    def _shuffled(self, seed: int) -> Iterator[dict[str, Any]]:
        """Every choice once, in a random order."""
        generator = np.random.default_rng(seed)
        sizes = [len(values) for values in self.ranges.values()]
        seen: set[tuple[int, ...]] = set()
        while len(seen) < math.prod(sizes):
            positions = tuple(int(i) for i in generator.integers(sizes))
            if positions not in seen:
                seen.add(positions)
                items = zip(self.ranges.items(), positions, strict=True)
                yield {name: values[i] for (name, values), i in items}

    def count(self, most: int) -> int:
        """How many choices count, or `most` where there are more."""
        counting = itertools.filterfalse(self.refusal, self._choices())
        return sum(1 for _ in itertools.islice(counting, max(most, 0)))

    def check(self) -> None:
        """Refuse ranges without a single run that counts."""
        for name, values in self.ranges.items():
            self._check_range(name, values)
        valid = next(itertools.filterfalse(self.refusal, self._choices()), None)
        if valid is None:
            size = " × ".join(map(str, self.base.architecture.size))
            limit = f" and {self.max_parameters:,} parameters" if self.max_parameters else ""
            raise ValueError(
                f"no configuration in the ranges is valid for {size} points{limit}; "
                f"give smaller ranges. Of the smallest: {self.refusal(next(self._choices()))}"
            )
        architecture = self.config(valid).architecture
        network = model_class(self.base.model)(architecture).eval()
        with torch.inference_mode():  # grids that are too small for it are refused only then
            network(torch.zeros(1, architecture.in_channels, *architecture.size))

    def _choices(self) -> Iterator[Choice]:
        """Every choice; the smallest network, which is the likeliest to fit, first."""
        orders = (
            sorted(values) if all(isinstance(v, int | float) for v in values) else values
            for values in self.ranges.values()
        )
        for values in itertools.product(*orders):
            yield dict(zip(self.ranges, values, strict=True))

    def _check_range(self, name: str, values: Sequence[Any]) -> None:
        """Refuse names and types that no configuration has: slips, unlike sizes that do not fit."""
        section, _, field = name.partition(".")
        config = {"model": self.base.architecture, "train": self.base.train}.get(section)
        if config is None or not field:
            raise ValueError(f"{name} cannot be searched; use model.FIELD or train.FIELD.")
        if not values:
            raise ValueError(f"the range of {name} is empty; give at least one value.")
        hints = get_type_hints(type(config))
        check_key(field, list(hints), section)
        for value in values:
            convert(value, hints[field], name)


def parameters_of(config: RunConfig) -> int:
    """The parameters of a run's network; a complex one counts once."""
    return parameter_count(config.model, config.architecture).entries
