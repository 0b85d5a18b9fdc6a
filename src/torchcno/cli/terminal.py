"""Tables on the terminal; rich is imported when something is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def show_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], words: int = 1
) -> None:
    """A table whose first `words` columns are text; numbers follow, and stand to the right."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    view = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
    for i, column in enumerate(columns):
        view.add_column(column, justify="left" if i < words else "right", overflow="fold")
    for row in rows:
        view.add_row(*(escape(str(cell)) for cell in row))  # brackets are no markup
    Console().print(view, highlight=False)


def number(value: float | None, scale: float = 1.0) -> str:
    """`value` over `scale` by three digits, without an exponent; a dash where there is none."""
    if value is None:
        return "–"
    return f"{value / scale:.0f}" if abs(value / scale) >= 1000 else f"{value / scale:.3g}"


def show_errors(errors: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Median errors in percent, of physical fields, and of fields scaled to [0, 1]."""
    median = "_median_percent"
    known = next(iter(errors.values()), {})
    metrics = [name for name in known if name.endswith(median)]
    rows = [
        (
            name,
            *(f"{summary[metric]['physical']:.3g}" for metric in metrics),
            *(f"{summary[metric]['normalized']:.3g}" for metric in metrics),
        )
        for name, summary in errors.items()
    ]
    names = [name.removesuffix(median).removeprefix("relative_").upper() for name in metrics]
    first, *others = names or [""]
    title = "relative error in percent, median over samples"
    show_table(title, ["", f"physical {first}", *others, f"scaled {first}", *others], rows)
