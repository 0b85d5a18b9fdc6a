"""Options say what they are and may be."""

from dataclasses import dataclass, fields

import pytest

from torchcno.selection import check_options, option

COLOURS = {"red": 1, "green": 2}


@dataclass(frozen=True)
class Example:
    colour: str = option("red", "what it looks like", choices=COLOURS)
    count: int = option(3, "how many", least=1)
    share: float | None = option(None, "a part of the whole", above=0, below=1)

    def __post_init__(self) -> None:
        check_options(self)


def test_metadata_hold_help_and_the_choices_themselves():
    colour = fields(Example)[0]
    assert colour.metadata["help"] == "what it looks like"
    assert colour.metadata["choices"] is COLOURS  # what is added later is a choice, too


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"colour": "rde"}, "unknown colour 'rde'; did you mean 'red'"),
        ({"count": 0}, "count is 0; use 1 or more"),
        ({"count": 1.5}, r"count is 1\.5; use a whole number"),
        ({"share": 0.0}, r"share is 0\.0; use more than 0"),
        ({"share": 1.0}, r"share is 1\.0; use less than 1"),
        ({"share": float("nan")}, "share is nan"),
    ],
)
def test_a_value_beyond_its_limits_is_refused_with_the_remedy(values, message):
    with pytest.raises(ValueError, match=message):
        Example(**values)


def test_none_and_the_limits_themselves_are_allowed():
    assert Example(count=1, share=None).count == 1
