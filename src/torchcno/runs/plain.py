"""Frozen dataclasses as plain trees (numbers, strings, lists, dicts) for YAML and JSON, and back.

Reading checks every key and every value against the annotations. Where a field may be one of
several dataclasses, their field `kind`, a Literal, tells them apart; the kind alone is short for
that dataclass with its defaults.
"""

import contextlib
import dataclasses
import difflib
import reprlib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from torchcno.selection import select

T = TypeVar("T")


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
shown = _SHORT.repr  # a value as an error shows it, cut short where it is long


def to_plain(value: Any) -> Any:
    """`value` as a plain tree."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    if isinstance(value, Path):
        return str(value)
    return value


def from_plain(config: type[T], tree: Mapping[str, Any], where: str, base: T | None = None) -> T:
    """The `config` of a plain tree; fields it leaves out come from `base`, else from the defaults.

    `where` names the tree in errors: "model" makes "model.widht is unknown".
    """
    values = convert_fields(config, tree, where)
    return dataclasses.replace(base, **values) if base is not None else config(**values)  # type: ignore[type-var]


def convert_fields(config: type, tree: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of a plain tree as the fields of `config` want them."""
    if not isinstance(tree, Mapping):
        raise ValueError(f"{where} is {shown(tree)}; give its fields as `name: value`.")
    hints = get_type_hints(config)
    names = [field.name for field in dataclasses.fields(config)]
    for key in tree:
        check_key(key, names, where)
    return {key: convert(value, hints[key], f"{where}.{key}") for key, value in tree.items()}


def check_key(key: str, known: list[str], where: str = "") -> None:
    """Refuse a key that is not `known`, naming the nearest that is."""
    if key in known:
        return
    near = difflib.get_close_matches(str(key), known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    name = f"{where}.{key}" if where else key
    raise ValueError(f"{name} is unknown; {hint}choose from {', '.join(known)}.")


def convert(value: Any, hint: Any, where: str) -> Any:
    """`value` of a plain tree as the annotation `hint` wants it; `where` names it in errors."""
    origin, args = get_origin(hint), get_args(hint)
    match value:
        case _ if hint is Any:
            return value
        case _ if origin in (Union, types.UnionType):
            return _convert_union(value, args, where)
        case Mapping() if dataclasses.is_dataclass(hint):
            return from_plain(hint, value, where)  # type: ignore[arg-type]
        case Mapping() if origin in (dict, Mapping):
            return dict(value)
        case list() | tuple() if origin is tuple:
            hints = args[:1] * len(value) if args[-1] is Ellipsis else args
            if len(hints) == len(value):
                return tuple(convert(v, h, where) for v, h in zip(value, hints, strict=True))
        case str() if hint is Path:
            return Path(value)
        case int() | float() | str() if hint is float and not isinstance(value, bool):
            with contextlib.suppress(ValueError):
                return float(value)  # YAML reads 1 as an integer and 1e-3 as a string
        case _ if origin is Literal and value in args:
            return value
        case bool() if hint is not bool:
            pass  # to Python True is an integer; to a configuration it is not
        case _ if isinstance(hint, type) and isinstance(value, hint):
            return value
    raise ValueError(f"{where} is {shown(value)}; give {_readable(hint)}.")


def _convert_union(value: Any, members: tuple[Any, ...], where: str) -> Any:
    """`value` as the first member that takes it, or as the dataclass of its kind."""
    kinds = {
        kind: member
        for member in members
        if dataclasses.is_dataclass(member)
        for kind in get_args(get_type_hints(member).get("kind"))
    }
    if kinds and isinstance(value, str):
        return select(kinds, value, where)()  # type: ignore[operator]
    if kinds and isinstance(value, Mapping):
        return convert(value, select(kinds, value.get("kind", ""), f"{where}.kind"), where)
    # Exact types first: float takes integers too.
    for member in sorted(members, key=lambda member: member is float):
        with contextlib.suppress(ValueError):
            return convert(value, member, where)
    raise ValueError(f"{where} is {shown(value)}; give {' or '.join(map(_readable, members))}.")


WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a name",
    bool: "true or false",
    type(None): "null",
}


def _readable(hint: Any) -> str:
    """An annotation as one would say it."""
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    if get_origin(hint) is tuple:
        return "a list such as [48, 64]"
    if hint in WORDS:
        return WORDS[hint]
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
