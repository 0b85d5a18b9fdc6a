"""Options by tyro: of a verb from its signature, of a run from the fields of its dataclasses."""

import contextlib
import dataclasses
import functools
import inspect
import io
import itertools
import os
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import tyro
import yaml
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from torchcno.cli import VERBS, find_verb
from torchcno.runs.plain import convert, to_plain

PICTURES = (".png", ".pdf", ".svg", ".jpg")  # what figures are written as
DEVICES = "auto|cpu|cuda"
MOST_TIMES = 10_000  # of a trajectory: more are a mistake in the step
HELP = {"-h", "--help"}
UNREAD = {  # how tyro says that a word is of another type, and what to give
    r"no type matching N could .*? \[(.*?)\]": "a whole number",
    r"no type matching X could .*? \[(.*?)\]": "a number",
    r"invalid literal for int\(\) with base 10: (.*)": "a whole number",
    r"could not convert string to float: (.*)": "a number",
}
VALUES = {int: "N", float: "X", str: "NAME", Path: "PATH", bool: "true|false"}  # as help shows them
STYLE = (
    tyro.conf.DisallowNone,
    tyro.conf.FlagCreatePairsOff,
    tyro.conf.HelptextFromCommentsOff,
    tyro.conf.PositionalMetavarFromFieldName,
)


def describe(help: str, default: str | None = None, metavar: str | None = None) -> Any:
    """What help says of an option, for its annotation: `default` holds where it is left out."""

    def hint(value: str) -> str:
        shown = value if default is None else default
        return "" if shown in ("", "False") else f"(default: {shown})"

    return tyro.conf.arg(help=help, help_behavior_hint=hint, metavar=metavar)


def read_numbers(text: str) -> tuple[int, ...]:
    """32,64,128 as whole numbers."""
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise ValueError(f"{text} is no list; give numbers such as 32,64,128.") from None


def read_times(text: str) -> tuple[float, ...]:
    """0:1:0.1 as start, end and step, both ends included; or 0,0.5,2."""
    parts = text.split(":")
    try:
        if len(parts) == 1:
            return tuple(float(word) for word in text.split(","))
        start, end, step = map(Decimal, parts)  # exact, where 3 · 0.1 is not 0.3
        if not (step > 0 and start < end and (end - start) / step <= MOST_TIMES):
            raise ValueError
        return tuple(float(start + i * step) for i in range(int((end - start) / step) + 1))
    except (ValueError, ArithmeticError):
        raise ValueError(
            f"{text} are no times; give START:END:STEP such as 0:1:0.1, at most {MOST_TIMES:,} "
            "steps, or a list such as 0,0.5,2."
        ) from None


Run = Annotated[Path, describe("folder of the run")]
NamedRun = Annotated[Path, describe("folder of the run, or a name such as poisson")]
Runs = Annotated[tuple[Path, ...], describe("folders of one or more runs", "")]
Device = Annotated[str, describe("where to compute: auto, cpu or cuda", metavar="DEVICE")]
Strings = tyro.conf.UseAppendAction[tuple[str, ...]]  # an option that may be repeated
Numbers = Annotated[
    tuple[int, ...],
    PrimitiveConstructorSpec(
        1, "N,N,...", lambda words: read_numbers(words[0]), lambda it: True, lambda it: [str(it)]
    ),
]
Times = Annotated[
    tuple[float, ...],
    PrimitiveConstructorSpec(
        1, "A:B:STEP", lambda words: read_times(words[0]), lambda it: True, lambda it: [str(it)]
    ),
]
Data = Annotated[Path | None, describe("folder of data files", "as in training", "FOLDER")]
Names = Annotated[
    tuple[str, ...],
    PrimitiveConstructorSpec(
        1,
        "A,B,...",
        lambda words: tuple(filter(None, words[0].split(","))),
        lambda it: True,
        lambda it: [str(it)],
    ),
]
Json = Annotated[Path | None, describe("write all numbers to this JSON file", "", "FILE")]


class _Fields(dict[str, Any]):
    """Options `--section.field` that were given: plain trees by section."""


Fields = Annotated[_Fields, tyro.conf.arg(name="")]


def call(words: Sequence[str]) -> int | None:
    """Run the verb that `words` begin with, by the options that follow."""
    verb = find_verb(words[0])
    find_sections = getattr(sys.modules[verb.__module__], "find_sections", None)
    sections = find_sections(words) if find_sections else {}
    summary, _, more = (inspect.getdoc(verb) or "").partition("\n\n")
    names = leading_names(words) if sections else words[:1]
    prog = " ".join(["cno", *names])

    @functools.wraps(verb)
    def bind(*given: Any, **options: Any) -> Any:
        return partial(verb, *given, **options)

    try:
        work = parse(
            bind,
            prog,
            description=summary,
            args=words[1:],
            registry=_registry(sections),
        )
    except SystemExit:
        if HELP & set(words):
            print(more)  # here, since tyro makes one line of a paragraph
        raise
    result: int | None = work()
    return result


def parse(what: Any, prog: str, **how: Any) -> Any:
    """What tyro makes of options; those that it does not take are a ValueError of one line."""
    told = io.StringIO()
    how.setdefault("registry", _registry({}))
    try:
        with contextlib.redirect_stderr(told):
            return tyro.cli(what, prog=prog, config=STYLE, **how)
    except SystemExit as exit_:
        if exit_.code:
            raise ValueError(f"{reword(told.getvalue())} `{prog} --help` lists them.") from None
        raise


def reword(told: str) -> str:
    """What tyro says of bad options, in a line, without its frame."""
    rule = re.compile("[─-]{3,}")
    lines = ["" if rule.search(line) else line.strip("│| ") for line in told.splitlines()]
    groups = [" ".join(group) for some, group in itertools.groupby(lines, bool) if some]
    title = re.compile(r"[A-Z]\w+ (error|options)")
    left_out = ("Argument help", "For full help", "Got errors")
    said = [text for text in groups if not (title.fullmatch(text) or text.startswith(left_out))]
    return " ".join(re.sub(r"\s+", " ", _reword_paragraph(text)) for text in said)


def _reword_paragraph(text: str) -> str:
    for pattern, kind in UNREAD.items():
        if unread := re.match(r"Error parsing (\S+): " + pattern, text):
            return f"{unread[1]} is {unread[2]}; give {kind}."
    if given := re.match(r"Error parsing \S+: (.*)", text):
        return given[1]
    if missing := re.match(r"Missing from [^:]*: (.*)", text):
        return f"still to be given: {missing[1].replace(' (required)', ';').rstrip(';')}."
    return text if text.endswith(".") else f"{text}."


def write_completion(words: Sequence[str]) -> None:
    """Write a script that completes verbs and their options in a shell, as `words` tell tyro."""
    functions = {verb: find_verb(verb) for verb in VERBS}
    tyro.extras.subcommand_cli_from_dict(
        functions, prog="cno", args=words, config=STYLE, registry=_registry({})
    )


def leading_names(words: Sequence[str]) -> list[str]:
    """The words before the first option: names that decide which further options there are."""
    return list(itertools.takewhile(lambda word: not word.startswith("-"), words))


class _Given(NamedTuple):
    value: Any


def _registry(sections: Mapping[str, Any]) -> ConstructorRegistry:
    """Rules by which `Fields` has an option for every field of the dataclasses in `sections`."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def values_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        kind = info.type
        if kind not in VALUES or kind is bool:
            return None
        return PrimitiveConstructorSpec(
            1,
            VALUES[kind],
            lambda words: kind(words[0]),
            lambda it: isinstance(it, kind),
            lambda it: [str(it)],
        )

    @registry.struct_rule
    def fields_rule(info: StructTypeInfo) -> StructConstructorSpec | None:
        if info.type is _Fields:
            parts = (StructFieldSpec(name, type(it), it) for name, it in sections.items())
            return StructConstructorSpec(_Fields, tuple(parts))
        found = ((name, it) for name, it in sections.items() if info.type is type(it))
        name, config = next(found, ("", None))
        if config is None:
            return None

        def make_tree(**values: Any) -> dict[str, Any]:
            tree: dict[str, Any] = {}
            for key, value in values.items():
                if isinstance(value, _Given):
                    head, _, inner = key.partition(".")
                    whole = tree.get(head, to_plain(getattr(config, head)))
                    whole = {"kind": whole} if isinstance(whole, str) else whole
                    tree[head] = {**whole, inner: value.value} if inner else value.value
            return tree

        make_tree.__doc__ = (type(config).__doc__ or "").partition("\n")[0]  # shown in help
        return StructConstructorSpec(make_tree, tuple(_field_specs(name, config)))

    return registry


def _field_specs(where: str, config: Any, prefix: str = "") -> Iterator[StructFieldSpec]:
    """An option for every field of `config`, and for the fields of the dataclasses it holds."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        if prefix and field.name == "kind":
            continue  # the dataclass itself is given by its kind
        name, hint, value = f"{prefix}{field.name}", hints[field.name], getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not hasattr(value, "kind"):
            yield from _field_specs(where, value, f"{name}.")  # there is no word for all of it
            continue
        metavar = "|".join(field.metadata.get("choices", ())) or _metavar(hint)
        read = partial(_read_word, f"{where}.{name}", hint)
        word = PrimitiveConstructorSpec(1, metavar, read, lambda it: True, lambda it: [str(it)])
        shown = _show(getattr(value, "kind", to_plain(value)))
        kind: Any = Annotated[Any, word, describe(field.metadata.get("help", ""), shown)]
        yield StructFieldSpec(name, kind, value)
        if dataclasses.is_dataclass(value):
            yield from _field_specs(where, value, f"{name}.")


def _read_word(name: str, hint: Any, words: list[str]) -> _Given:
    """The value of the field `name`, read as in a configuration file."""
    word = plain = words[0]
    if "," in word and word[0] not in "[{":
        words = [f"[{word}]"]  # 48,64 is what one types
    with contextlib.suppress(yaml.YAMLError):
        plain = yaml.safe_load(words[0])
    with contextlib.suppress(ValueError):  # to YAML, `32` and `off` are no names
        convert(words[0], hint, name)
        plain = plain if plain is None or isinstance(plain, list) else words[0]
    convert(plain, hint, name)
    return _Given(plain)


def _metavar(hint: Any) -> str:
    """What a value of the type `hint` looks like."""
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return "|".join(map(str, arguments))
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [_metavar(kind) for kind in arguments if kind is not type(None)]
        return "X" if set(kinds) == {"N", "X"} else "|".join(kinds)
    if get_origin(hint) is tuple:
        return f"[{_metavar(arguments[0])},...]"
    if dataclasses.is_dataclass(hint):
        return _metavar(get_type_hints(hint)["kind"])
    return VALUES.get(hint, "VALUE")


def _show(value: Any) -> str:
    """A default as one would write it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return ",".join(map(_show, value)) if isinstance(value, list) else str(value)


def refuse_existing(path: Path) -> None:
    """Refuse to write over a file of the user's."""
    if path.exists():
        raise ValueError(f"{path} is there already; give another name, or move it away.")


def check_target(path: Path | None, suffixes: Sequence[str] = ()) -> None:
    """Refuse a file that could not be written, before the work that is to be kept in it."""
    if path is None:
        return
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file.")
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{path} has no ending of {', '.join(suffixes)}; give it one of them.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} does not exist; make that folder first.")
    from torchcno.runs.folder import RunFolder

    files = RunFolder(path.parent).files
    if path in files and any(file.exists() for file in files):
        raise ValueError(f"{path} is a file of a run; give another name.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{path.parent} is a folder that you may not write to; give another.")
