"""The samples that a run keeps are those whose errors it keeps."""

from pathlib import Path

import numpy as np
import torch

from torchcno.data.fields import Fields
from torchcno.data.normalization import Normalization
from torchcno.evaluation.errors import sample_errors
from torchcno.grids import Grid
from torchcno.metrics import relative_l1
from torchcno.problems import PROBLEMS
from torchcno.runs.evaluate import Evaluation, evaluate_run
from torchcno.runs.folder import RunFolder

HALF = 1e-4  # what a mean over a field in half precision is good for


def error_of_examples(folder: Path, split: str) -> np.ndarray:
    examples = RunFolder(folder).examples(split)
    return relative_l1(examples.prediction.double(), examples.output.double()).numpy()


def test_what_is_not_counted_is_not_kept_as_an_error(tmp_path):
    mask = PROBLEMS["airfoil"]().mask
    generator = torch.Generator().manual_seed(0)
    inside, noise = (torch.rand(3, 1, 8, 8, generator=generator) for _ in range(2))
    fields = Fields((inside > 0.5).float(), 1 + noise, Grid((8, 8), "cell-centred"))
    prediction = fields.outputs + torch.where(inside > 0.5, 5.0, 0.01)
    errors = sample_errors(prediction, fields, Normalization.identity(), mask)
    evaluation = Evaluation(fields, prediction, errors, "test")
    RunFolder(tmp_path).write_evidence([evaluation], mask)
    counted = RunFolder(tmp_path).errors("test", "physical")
    assert counted.max() < 0.01
    np.testing.assert_allclose(error_of_examples(tmp_path, "test"), counted[:2], rtol=HALF)


def test_a_run_keeps_the_error_of_every_sample(tiny_run):
    (evaluation,) = evaluate_run(tiny_run, ["ood"], device="cpu")
    for space, errors in evaluation.errors["relative_l1"].items():
        kept = RunFolder(tiny_run).errors("ood", space)
        np.testing.assert_allclose(kept, errors.numpy(), rtol=1e-6)


def test_a_run_keeps_examples_to_half_precision(tiny_run):
    (evaluation,) = evaluate_run(tiny_run, ["test"], device="cpu")
    examples = RunFolder(tiny_run).examples("test")
    truth, prediction = evaluation.fields.outputs[:2], evaluation.prediction[:2]
    half = 2.0**-11
    assert (examples.output - truth).abs().max() <= half * truth.abs().max()
    # The error is kept by itself, so that it is exact to its own size and not to the field's.
    error, kept = prediction - truth, examples.prediction - examples.output
    assert (kept - error).abs().max() <= 2 * half * error.abs().max()
    assert RunFolder(tiny_run).examples("val") is None
