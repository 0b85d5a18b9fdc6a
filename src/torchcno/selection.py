"""Choosing by name, with a miss that says what there is."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def select(table: Mapping[str, T], name: str, kind: str) -> T:
    """The entry `name` of `table`; `kind` says what the table holds, for the error."""
    if isinstance(name, str) and name in table:  # a configuration file may hold anything there
        return table[name]
    near = difflib.get_close_matches(str(name), table, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown {kind} {name!r}; {hint}choose from {', '.join(sorted(table))}.")
