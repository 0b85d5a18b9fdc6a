"""Options from dataclasses: every field is an option, and the comment at it is its help."""

import ast
import dataclasses
import difflib
import inspect
import io
import itertools
import os
import re
import textwrap
import tokenize
from argparse import ArgumentError, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace

from torchcno.runs.plain import from_plain, to_plain

T = TypeVar("T")

PICTURES = (".png", ".pdf", ".svg", ".jpg")  # what figures are written as


class HelpFormatter(DefaultHelpFormatter, RawDescriptionHelpFormatter):
    """Descriptions and examples keep their lines."""


def parser_of(usage: str, description: str, examples: str) -> ArgumentParser:
    """The parser of one verb: `usage` begins with its name, and `examples` end its help."""
    return ArgumentParser(
        prog=f"cno {usage.split()[0]}",
        usage=f"cno {usage}",
        description=description,
        epilog="examples:\n" + textwrap.indent(textwrap.dedent(examples).strip("\n"), "  "),
        exit_on_error=False,
        formatter_class=HelpFormatter,
        default_env=False,
    )


def parse(parser: ArgumentParser, arguments: Sequence[str]) -> Namespace:
    """The parsed `arguments`; an unknown option or a wrong value is refused with its remedy."""
    try:
        return parser.parse_args(list(arguments))
    except ArgumentError as error:
        raise ValueError(explained(str(error), parser)) from error


def explained(message: str, parser: ArgumentParser) -> str:
    """The parser's `message` as one says it; what is not understood is left as it is."""
    unknown = re.search(r"unrecognized arguments: (--[^\s=]+)", message)
    if unknown:
        options = [option for action in parser._actions for option in action.option_strings]
        near = difflib.get_close_matches(unknown[1], options, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        return f"unknown option {unknown[1]}; {hint}the same command with --help lists the options."
    key = re.search(r'Parser key "([\w.]+)"', message)
    value = re.search(r"(?:Got|Given) value: (.*)", message)
    wanted = re.findall(r"Expected a (?:<class '(\w+)'>|(\S+\[.*\]))", message)
    if not (key and value and wanted):
        return message
    kinds = " or ".join(dict.fromkeys(a or b.replace("typing.", "") for a, b in wanted))
    return f"--{key[1]} is {value[1]}; give {kinds.replace('NoneType', 'null')}."


def add_fields(parser: ArgumentParser, prefix: str, config: Any) -> None:
    """An option `--prefix.field` for every field of `config`, whose values are the defaults."""
    hints, comments = get_type_hints(type(config)), field_comments(type(config))
    group = parser.add_argument_group(f"{prefix}: {type(config).__name__}")
    for field in dataclasses.fields(config):
        hint, value = hints[field.name], getattr(config, field.name)
        said, choices = field.metadata.get("help"), field.metadata.get("choices")
        if choices is not None:
            hint = Literal[tuple(choices)]  # the parser lists them, and completes them
        nested = any(dataclasses.is_dataclass(member) for member in (hint, *get_args(hint)))
        group.add_argument(
            f"--{prefix}.{field.name}",
            # A dataclass by kind, `--model.filter ideal`, or by field, `--model.filter.taps 8`.
            type=dict[str, Any] | str if nested else hint,
            default=to_plain(value) if nested else value,
            help=said or comments.get(field.name, field.name.replace("_", " ")),
        )


def replaced(config: T, prefix: str, given: Namespace) -> T:
    """`config` with the values that were parsed for the fields that `add_fields` added."""
    return from_plain(type(config), vars(given[prefix]), prefix, base=config)


def leading_names(arguments: Sequence[str]) -> list[str]:
    """The words before the first option: names that decide which further options there are."""
    return list(itertools.takewhile(lambda word: not word.startswith("-"), arguments))


def check_target(path: Path | None, suffixes: Sequence[str] = ()) -> None:
    """Refuse a file that could not be written, before the work that is to be kept in it."""
    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{path} has no ending of {', '.join(suffixes)}; give it one of them.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} does not exist; make that folder first.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{path.parent} is a folder that you may not write to; give another.")


def field_comments(config: type) -> dict[str, str]:
    """The comments that stand beside the fields of a dataclass and its parents, or above them."""
    comments: dict[str, str] = {}
    for cls in reversed(config.__mro__):
        if dataclasses.is_dataclass(cls):
            comments |= _comments_of(textwrap.dedent(inspect.getsource(cls)))
    return comments


def _comments_of(source: str) -> dict[str, str]:
    """From a field's name to its comment, in the source of one class."""
    comments = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    words = {token.start[0]: token.string.lstrip("# ").strip() for token in comments}
    alone = {token.start[0] for token in comments if token.line.lstrip().startswith("#")}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            upwards = itertools.count(node.lineno - 1, -1)
            above = list(itertools.takewhile(alone.__contains__, upwards))
            lines = [node.end_lineno] if node.end_lineno in words else above[::-1]
            found[node.target.id] = " ".join(words[line] for line in lines)
    return {name: comment for name, comment in found.items() if comment}
