import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from torchcno.data.dataset import load as load_fields
from torchcno.evaluation.conformal import coverage
from torchcno.runs.folder import RunFolder, load
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.trust import calibrate, measure_trust
from torchcno.training.checkpoint import load_tensors, save_tensors


@pytest.fixture(scope="module")
def operator(tiny_run) -> TrainedOperator:
    return load(tiny_run)


@pytest.fixture(scope="module")
def fields(tiny_config):
    config = tiny_config
    return load_fields(config.problem, "test", resolution=config.resolution, folder=config.data)


def test_a_run_knows_how_far_to_trust_it(operator, fields):
    """Coverage on 256 test samples after 128 of validation: within 4 deviations of what is said."""
    for c in (0.5, 0.9):
        found = operator.predict(fields.inputs, confidence=c)
        torch.testing.assert_close(found.value, operator.predict(fields.inputs), rtol=0, atol=0)
        error = found.value - fields.outputs
        slack = 4 * (c * (1 - c) * (1 / 256 + 1 / 129)) ** 0.5
        relative = error.abs().flatten(1).sum(1) / fields.outputs.abs().flatten(1).sum(1)
        everywhere = coverage(error, found.half_width_everywhere) == 1
        for held in (
            relative <= found.relative_error,
            everywhere,
            coverage(error, found.half_width),
        ):
            assert float(held.double().mean()) == pytest.approx(c, abs=slack + 1 / 129)
        assert (found.half_width <= found.half_width_everywhere).all()


def test_a_larger_confidence_has_wider_bands(operator, fields):
    narrow, wide = (operator.predict(fields.inputs[:2], confidence=c) for c in (0.6, 0.95))
    for name in ("half_width", "half_width_everywhere", "relative_error"):
        assert (getattr(narrow, name) < getattr(wide, name)).all()


def test_inputs_of_the_training_kind_have_uniform_scores(operator, fields):
    scores = operator.ood_score(fields.inputs)
    assert float((scores >= 0.9).double().mean()) == pytest.approx(0.1, abs=0.13)
    assert (operator.ood_score(20 * fields.inputs[:8]) > 0.95).all()
    assert (operator.ood_score(np.ones((1, 1, 24, 24))) > 0.9).all()


def test_bands_on_a_finer_grid_are_those_of_the_same_function(operator, fields):
    here = operator.predict(fields.inputs[:2], confidence=0.9)
    finer = operator.predict(fields.resampled(47).inputs[:2], confidence=0.9)
    torch.testing.assert_close(finer.half_width[..., ::2, ::2].shape, here.half_width.shape)
    torch.testing.assert_close(finer.relative_error, here.relative_error)
    inner = finer.half_width[..., ::2, ::2]
    assert float((inner / here.half_width - 1).abs().median()) < 0.1


def test_confidence_and_samples_are_checked(operator, fields):
    u = fields.inputs[:1]
    for confidence in (0.0, 1.0, 1.5, -0.2):
        with pytest.raises(ValueError, match="between 0 and 1"):
            operator.predict(u, confidence=confidence)
    with pytest.raises(ValueError, match="needs 199 validation samples or more, and there are 128"):
        operator.predict(u, confidence=0.995)


def test_a_folder_of_before_is_calibrated_on_demand(tiny_run, tmp_path, fields):
    folder = tmp_path / "old"
    shutil.copytree(tiny_run, folder)
    kept = RunFolder(folder).trust()
    RunFolder(folder).trust_file.unlink()
    with pytest.raises(ValueError, match=r"torchcno\.calibrate\(RUN\)"):
        load(folder).predict(fields.inputs[:1], confidence=0.9)
    with pytest.raises(ValueError, match=r"torchcno\.calibrate\(RUN\)"):
        load(folder).ood_score(fields.inputs[:1])
    assert RunFolder(folder).state == "finished"
    found = calibrate(folder, device="cpu")
    torch.testing.assert_close(found.bands.everywhere, kept.bands.everywhere, rtol=1e-4, atol=0)
    load(folder).predict(fields.inputs[:1], confidence=0.9)


def test_bands_of_other_weights_are_not_taken(tiny_run, tmp_path):
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(tiny_run, folder.path)
    assert folder.trust() is not None
    state, _ = load_tensors(folder.weights)
    save_tensors(folder.weights, {name: 2 * tensor for name, tensor in state.items()})
    assert folder.trust() is None
    assert folder.state == "finished"


def test_damage_is_found(tiny_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    path = RunFolder(folder).trust_file
    path.write_bytes(path.read_bytes()[:-40])
    assert RunFolder(folder).state == "damaged"
    with pytest.raises(ValueError, match=r"trust\.npz"):
        load(folder)


def test_few_validation_samples_are_told(operator, fields):
    few = replace(fields, inputs=fields.inputs[:5], outputs=fields.outputs[:5])
    operator = load_copy(operator, measure_trust(operator, fields[:8], few))
    operator.predict(fields.inputs[:1], confidence=0.8)
    with pytest.raises(ValueError, match="needs 9 validation samples or more, and there are 5"):
        operator.predict(fields.inputs[:1], confidence=0.9)


def load_copy(operator: TrainedOperator, trust) -> TrainedOperator:
    copy = TrainedOperator(
        operator.network, operator.normalization, operator.grid, operator.model, operator.problem
    )
    copy.trust = trust
    return copy


def test_the_file_has_a_checksum(tiny_run):
    rows = [json.loads(line) for line in (tiny_run / "checksums.jsonl").read_text().splitlines()]
    assert "trust.npz" in {row.get("file") for row in rows}


def test_a_correction_begins_with_the_network_and_ends_with_the_solver(
    operator, fields, tiny_config
):
    u = fields.inputs[:3]
    assert torch.equal(operator.predict(u, correct=0), operator.predict(u))
    solved = tiny_config.problem.solve(u.double()).float()
    torch.testing.assert_close(operator.predict(u, correct=300), solved, rtol=1e-3, atol=1e-7)


def test_corrections_that_cannot_be_are_refused(operator, fields, tmp_path):
    u = fields.inputs[:1]
    with pytest.raises(ValueError, match="leave `confidence` or"):
        operator.predict(u, confidence=0.9, correct=1)
    for count in (-1, 1.5, True):
        with pytest.raises(ValueError, match="0 or more"):
            operator.predict(u, correct=count)
    operator.save_pretrained(tmp_path / "hub")
    with pytest.raises(ValueError, match="without the configuration of its run"):
        load(tmp_path / "hub").predict(u, correct=1)
