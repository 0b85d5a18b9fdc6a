import math

import pytest
import torch
from scipy.stats import beta
from torch import Generator

from torchcno.evaluation.conformal import (
    Bands,
    conformal_quantile,
    conformal_rank,
    coverage,
    error_scale,
    likely_coverage,
)


def exponential(generator: Generator, *shape: int) -> torch.Tensor:
    return -torch.rand(*shape, generator=generator, dtype=torch.float64).log()


@pytest.mark.parametrize(("n", "confidence"), [(19, 0.9), (49, 0.8), (99, 0.95)])
def test_coverage_of_exchangeable_scores_is_that_of_the_theorem(n, confidence):
    """P(s ≤ s_(k)) = k/(n + 1) exactly where scores have no ties; checked to 4 deviations."""
    generator, trials = Generator().manual_seed(0), 4000
    known, new = exponential(generator, trials, n), exponential(generator, trials)
    held = [float(s) <= conformal_quantile(k, confidence) for k, s in zip(known, new, strict=True)]
    p = conformal_rank(n, confidence) / (n + 1)
    assert confidence <= p <= confidence + 1 / (n + 1)
    assert sum(held) / trials == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / trials))


def test_coverage_given_the_calibration_set_is_a_beta():
    """Of exponential scores the chance 1 − e^{−q} is known: its moments are those of the Beta."""
    generator, n, c = Generator().manual_seed(1), 29, 0.9
    known = exponential(generator, 4000, n)
    chance = torch.tensor([1 - math.exp(-conformal_quantile(one, c)) for one in known])
    expected = beta(27, 3)
    assert float(chance.mean()) == pytest.approx(expected.mean(), abs=4e-3)
    assert float(chance.std()) == pytest.approx(expected.std(), rel=0.05)


def smooth_errors(generator: Generator, n: int) -> torch.Tensor:
    """Random fields of random size, larger on one side: points of a sample are dependent."""
    x = torch.linspace(0, 1, 40, dtype=torch.float64)
    size = exponential(generator, n, 1)
    waves = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    fields = waves @ torch.stack([(k * 3 * x).cos() for k in range(4)])
    return (size * fields * (0.2 + x))[:, None]


def test_bands_hold_at_every_point_and_at_most_points_as_often_as_they_say():
    generator, trials, c = Generator().manual_seed(2), 300, 0.8
    all_points, most_points = [], []
    for _ in range(trials):
        scale = error_scale([(smooth_errors(generator, 20), None)])
        known, new = smooth_errors(generator, 24), smooth_errors(generator, 20)
        bands = Bands.calibrate(known, {"physical": torch.ones(24)}, scale)
        for factor, found, enough in (
            (bands.factor_everywhere(c), all_points, True),
            (bands.factor_pointwise(c), most_points, False),
        ):
            share = coverage(new, (factor * scale).expand_as(new))
            found.append((share == 1).double().mean() if enough else share.mean())
    everywhere, pointwise = (torch.stack(found) for found in (all_points, most_points))
    for found, highest in ((everywhere, c + 1 / 25), (pointwise, c + 1 / 24 + 2 / 1024)):
        mean, slack = float(found.mean()), 4 * float(found.std()) / math.sqrt(trials)
        assert c - slack <= mean <= highest + slack


def test_spread_of_a_sample_divides_its_scores():
    errors = torch.rand(30, 2, 5, 5) + 0.5
    spread, scale = torch.rand(30) + 0.5, torch.ones(2, 5, 5)
    plain = Bands.calibrate(errors, {"physical": errors.mean((1, 2, 3))}, scale)
    larger = errors * spread.reshape(-1, 1, 1, 1)
    relative = {"physical": larger.mean((1, 2, 3))}
    same = Bands.calibrate(larger, relative, scale, spread=spread)
    for c in (0.5, 0.9):
        assert same.factor_everywhere(c) == pytest.approx(plain.factor_everywhere(c), rel=1e-5)
        assert same.factor_pointwise(c) == pytest.approx(plain.factor_pointwise(c), rel=1e-5)
        # A bound on the relative error is one number, whatever the spread.
        alone = conformal_quantile(relative["physical"], c)
        assert same.bound_relative(c) == pytest.approx(alone, rel=1e-5)


def test_points_that_do_not_count_do_not_matter():
    errors, scale = torch.rand(20, 1, 8), torch.ones(1, 8)
    counts = torch.ones(20, 1, 8, dtype=torch.bool)
    counts[..., 5:] = False
    wild = torch.where(counts, errors, 1e6)
    here = Bands.calibrate(wild, {}, scale, counts)
    there = Bands.calibrate(errors[..., :5], {}, scale[..., :5])
    torch.testing.assert_close(here.everywhere, there.everywhere)
    assert here.factor_pointwise(0.8) == pytest.approx(there.factor_pointwise(0.8), rel=1e-6)
    torch.testing.assert_close(coverage(wild, torch.full_like(wild, 2.0), counts),
                               torch.ones(20, dtype=torch.float32))  # fmt: skip


def test_bands_survive_a_file():
    errors = torch.randn(12, 1, 6, 6)
    bands = Bands.calibrate(errors, {"physical": torch.rand(12)}, error_scale([(errors, None)]))
    again = Bands.from_arrays(bands.to_arrays())
    assert again.factor_everywhere(0.9) == bands.factor_everywhere(0.9)
    assert again.factor_pointwise(0.9) == bands.factor_pointwise(0.9)
    assert again.bound_relative(0.9) == bands.bound_relative(0.9)


def test_too_few_samples_are_told_how_many_there_must_be():
    scores = torch.rand(8)
    with pytest.raises(ValueError, match=r"needs 9 validation samples or more, and there are 8"):
        conformal_quantile(scores, 0.9)
    conformal_quantile(torch.rand(9), 0.9)
    with pytest.raises(ValueError, match=r"a confidence of 0\.889 or less"):
        conformal_quantile(scores, 0.9)
    conformal_quantile(scores, 0.888)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.1, 90.0, math.nan, True])
def test_a_confidence_is_a_probability(confidence):
    with pytest.raises(ValueError, match="between 0 and 1"):
        conformal_rank(100, confidence)


def test_an_error_that_is_no_number_counts_as_infinite():
    scores = torch.tensor([1.0, math.nan, 2.0, 3.0])
    assert conformal_quantile(scores, 0.6) == 3.0
    assert conformal_quantile(scores, 0.8) == math.inf


def test_likely_coverage_holds_as_likely_as_it_says():
    generator, n, c, m = Generator().manual_seed(3), 64, 0.9, 64
    low, high = likely_coverage(n, c, m, 0.9)
    known, new = exponential(generator, 2000, n), exponential(generator, 2000, m)
    quantiles = torch.tensor([conformal_quantile(one, c) for one in known])
    shares = (new <= quantiles[:, None]).double().mean(1)
    assert float(((shares >= low) & (shares <= high)).double().mean()) == pytest.approx(
        0.9, abs=0.04
    )
