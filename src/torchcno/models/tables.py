"""The paper's tables of hyper-parameters, as data: a row a problem."""

from collections.abc import Mapping
from typing import Any

# What the authors' model selection chose from, whatever the network: fields of the training recipe.
SEARCH_TRAINING: dict[str, tuple[Any, ...]] = {
    "learning_rate": (5e-4, 1e-3),  # η
    "gamma": (0.98, 1.0),  # γ
    "weight_decay": (0.0, 1e-6),  # w
}


def table(
    columns: tuple[str, ...], rows: Mapping[str, tuple[Any, ...]]
) -> dict[str, dict[str, Any]]:
    """Each row as a dict from `columns` to its values."""
    return {name: dict(zip(columns, row, strict=True)) for name, row in rows.items()}
