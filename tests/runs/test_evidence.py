"""The samples that a run keeps are those whose errors it keeps."""

from pathlib import Path

import numpy as np
import torch

from torchcno.data.dataset import Fields, Normalization
from torchcno.evaluation.errors import sample_errors
from torchcno.grids import Grid
from torchcno.metrics import relative_l1
from torchcno.problems import PROBLEMS
from torchcno.runs.evaluate import Evaluation
from torchcno.runs.evidence import read_errors, read_examples, save_evidence

HALF = 1e-4  # what a mean over a field in half precision is good for


def error_of_examples(folder: Path, split: str) -> np.ndarray:
    examples = read_examples(folder, split)
    return relative_l1(examples.prediction.double(), examples.output.double()).numpy()


def test_what_is_not_counted_is_not_kept_as_an_error(tmp_path):
    mask = PROBLEMS["airfoil"]().mask
    generator = torch.Generator().manual_seed(0)
    inside, noise = (torch.rand(3, 1, 8, 8, generator=generator) for _ in range(2))
    fields = Fields((inside > 0.5).float(), 1 + noise, Grid((8, 8), "cell-centred"))
    prediction = fields.outputs + torch.where(inside > 0.5, 5.0, 0.01)
    errors = sample_errors(prediction, fields, Normalization.identity(), mask)
    save_evidence([Evaluation(fields, prediction, errors, "test")], tmp_path, mask)
    counted = read_errors(tmp_path, "test", "physical")
    assert counted.max() < 0.01
    np.testing.assert_allclose(error_of_examples(tmp_path, "test"), counted[:2], rtol=HALF)
