"""Predictions beside the truth, in one, two or three dimensions."""

from matplotlib.figure import Figure

from torchcno.evaluation.resolution import Evaluation
from torchcno.runs.pictures.drawing import Panel, field_rows

SHOWN = 3  # samples


def draw_predictions(evaluation: Evaluation, samples: int = SHOWN) -> Figure:
    """A row per sample and output channel: inputs, truth, prediction, error.

    Lines in one dimension; of three the plane in the middle. What does not count is left blank.
    """
    fields = evaluation.fields[:samples]
    seen = fields.input_names or tuple(f"input {c}" for c in range(fields.channels[0]))
    predicted = fields.output_names or tuple(f"output {c}" for c in range(fields.channels[1]))
    rows = []
    for i, (u, v) in enumerate(zip(fields.inputs, fields.outputs, strict=True)):
        p = evaluation.prediction[i].to(v)
        if fields.mask is not None:
            p, v = (w.where(fields.mask[i], float("nan")) for w in (p, v))
        for c, name in enumerate(predicted):
            rows.append(
                [
                    *(Panel(title, one) for title, one in zip(seen, u, strict=True)),
                    Panel(name, v[c]),
                    Panel(f"{name}, predicted", p[c], like=v[c]),
                    Panel("error", (p[c] - v[c]).abs(), error=True),
                ]
            )
    return field_rows(rows)
