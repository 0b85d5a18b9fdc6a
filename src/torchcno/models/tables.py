"""The paper's tables of hyper-parameters, as data: a row a problem."""

from collections.abc import Mapping
from typing import Any


def table(
    columns: tuple[str, ...], rows: Mapping[str, tuple[Any, ...]]
) -> dict[str, dict[str, Any]]:
    """Each row as a dict from `columns` to its values."""
    return {name: dict(zip(columns, row, strict=True)) for name, row in rows.items()}
