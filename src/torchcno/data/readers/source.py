"""What every reader gives: named arrays that are sliced without being read whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchcno.grids import Layout


@dataclass(frozen=True)
class Variable:
    """An array in a file or in memory."""

    values: Any  # has shape and dtype, and is sliced as NumPy's arrays are
    axes: tuple[str, ...] | None = None  # their names; None: not known

    @property
    def shape(self) -> tuple[int, ...]:
        """Its points along every axis."""
        return tuple(int(n) for n in self.values.shape)


@dataclass(frozen=True)
class Opened:
    """The variables of a source, and what it says of its grid and of its pairs."""

    name: str  # of the source, in errors
    variables: Mapping[str, Variable]
    coordinates: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # along named axes
    layouts: Mapping[str, Layout] = field(default_factory=dict)  # of named axes
    extents: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of named axes
    inputs: Sequence[str] = ()  # the variables that are inputs where nobody names others
    outputs: Sequence[str] = ()
    times: tuple[int, int] | None = None  # of inputs and outputs where nobody says others
    parameters: Sequence[str] = ()  # the variables that are numbers of each trajectory
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of a variable's channels

    def variable(self, name: str) -> Variable:
        """The variable of that name."""
        if name in self.variables:
            return self.variables[name]
        known = ", ".join(f"{key} {v.shape}" for key, v in self.variables.items()) or "nothing"
        raise ValueError(f"{self.name} has no variable {name!r}; name one of {known}.")


def read_coordinate(values: Any) -> NDArray[np.float64] | None:
    """Positions along one axis; None where they are none, such as names or dates."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        return None
    return array.astype(np.float64)
