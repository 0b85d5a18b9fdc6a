"""What predictions, bands and audits of trust look like."""

from matplotlib.figure import Figure
from torch import Tensor

from torchcno.runs.pictures.drawing import Panel, field_rows
from torchcno.runs.trust import Prediction

SHOWN = 3  # samples


def draw_bands(
    inputs: Tensor,
    found: Tensor | Prediction,
    truth: Tensor | None = None,
    samples: int = SHOWN,
) -> Figure:
    """A row per sample and output channel: inputs, prediction, half-width, and the error if known.

    Errors have the colours of the half-width, so that the two compare.
    """
    value = found.value if isinstance(found, Prediction) else found
    rows = []
    for i in range(min(samples, len(value))):
        for c in range(value.shape[1]):
            row = [Panel(f"input {k}", one) for k, one in enumerate(inputs[i])]
            row.append(Panel("prediction", value[i, c]))
            if isinstance(found, Prediction):
                width, name = found.half_width[i, c], f"{100 * found.confidence:g} % half-width"
                row.append(Panel(name, width, error=True))
                if truth is not None:
                    error = (value[i, c] - truth[i, c]).abs()
                    row.append(Panel("error", error, like=2 * width, error=True))
            rows.append(row)
    return field_rows(rows)
