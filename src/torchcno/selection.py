"""Choosing by name, and the fields of configurations, which say what they are and may be."""

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def select(table: Mapping[str, T], name: str, kind: str) -> T:
    """The entry `name` of `table`; `kind` says what the table holds, for the error."""
    if isinstance(name, str) and name in table:  # a configuration file may hold anything there
        return table[name]
    near = difflib.get_close_matches(str(name), table, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown {kind} {name!r}; {hint}choose from {', '.join(sorted(table))}.")


def option(
    default: T,
    help: str,
    *,
    choices: Collection[str] | None = None,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> T:
    """A field of a frozen dataclass, with its `help` and its limits as metadata.

    The command line shows `metadata["help"]` and `metadata["choices"]`; a dict of choices is the
    list of their names. `check_options` holds the values to the rest: least ≤ value, above < value
    and value < below.
    """
    said = {"choices": choices, "least": least, "above": above, "below": below}
    metadata = {name: limit for name, limit in said.items() if limit is not None}
    return dataclasses.field(default=default, metadata={"help": help, **metadata})


@dataclasses.dataclass(frozen=True)
class Options:
    """A frozen dataclass of `option` fields; values that they do not allow are refused."""

    def __post_init__(self) -> None:
        check_options(self)


def check_options(config: Any) -> None:
    """Refuse a value that the options of `config` do not allow; None is always allowed."""
    for field in dataclasses.fields(config):
        name, value, limits = field.name, getattr(config, field.name), field.metadata
        if value is None and field.type is not str:
            continue
        if "choices" in limits:
            for one in value if isinstance(value, tuple) else (value,):  # one per axis, say
                select(dict.fromkeys(limits["choices"]), one, name)
        if value is None:
            continue
        if field.type in (int, int | None) and not hasattr(value, "__index__"):
            raise ValueError(f"{name} is {value}; use a whole number.")
        if "least" in limits and not value >= limits["least"]:
            raise ValueError(f"{name} is {value}; use {limits['least']:g} or more.")
        if "above" in limits and not value > limits["above"]:
            raise ValueError(f"{name} is {value}; use more than {limits['above']:g}.")
        if "below" in limits and not value < limits["below"]:
            raise ValueError(f"{name} is {value}; use less than {limits['below']:g}.")
