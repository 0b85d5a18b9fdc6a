"""Lines `>>> …` of docstrings as blocks of code on the site, for mkdocs.yml."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n?)+", re.MULTILINE)


class Examples(griffe.Extension):
    """Fences around examples."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of every function and class that is read."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(fence, obj.docstring.value)


def fence(example: re.Match[str]) -> str:
    """The lines without their marks, as a block."""
    lines = [line.removeprefix(">>> ") for line in example[0].splitlines()]
    return "\n".join(["", "```python", *lines, "```", ""])
