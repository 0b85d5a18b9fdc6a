import pytest
import torch
from torch import Generator

from torchcno.evaluation.ood import KnownInputs, auroc, features, rank_correlation
from torchcno.grids import Grid
from torchcno.problems.darcy import Darcy
from torchcno.problems.random_fields import sine_series
from torchcno.spectral import resample


def waves(n: int, modes: int, seed: int, points: int = 32) -> torch.Tensor:
    grid = Grid((points, points), "inclusive")
    return sine_series(grid, n, modes, (1.0, 1.0), Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def known() -> KnownInputs:
    return KnownInputs.of(waves(200, 6, 0), waves(99, 6, 1), "inclusive")


def score(known: KnownInputs, u: torch.Tensor) -> torch.Tensor:
    return known.scores(known.distances_of(u, "inclusive"))


def test_auroc_of_separate_and_of_identical_sets():
    low, high = torch.rand(30), torch.rand(40) + 1
    assert auroc(low, high) == 1.0
    assert auroc(high, low) == 0.0
    assert auroc(low, low) == 0.5
    assert auroc(torch.zeros(3), torch.zeros(5)) == 0.5
    with pytest.raises(ValueError, match="both kinds"):
        auroc(low, low[:0])


def test_auroc_is_the_share_of_pairs_in_order():
    a, b = torch.randn(25).round(), torch.randn(31).round() + 0.5
    pairs = (b[:, None] > a).double() + 0.5 * (b[:, None] == a)
    assert auroc(a, b) == pytest.approx(float(pairs.mean()))


def test_scores_of_inputs_like_the_known_ones_are_uniform(known):
    """A rank among 99 exchangeable ones: P(score ≥ 1 − α) ≤ α, here to 4 deviations."""
    fresh = score(known, waves(600, 6, 2))
    for alpha in (0.05, 0.2, 0.5):
        share = float((fresh >= 1 - alpha).double().mean())
        # The set of 99 known ones is drawn once: its own spread comes on top.
        assert share == pytest.approx(
            alpha, abs=4 * (alpha * (1 - alpha) * (1 / 600 + 1 / 99)) ** 0.5
        )


def test_what_is_unlike_is_found(known):
    fresh = waves(50, 6, 3)
    noise = 0.05 * fresh.std() * torch.randn(fresh.shape, generator=Generator().manual_seed(0))
    inside = known.combine(known.distances_of(fresh, "inclusive"))
    for unlike in (waves(50, 9, 4), fresh + noise, 8 * fresh):
        distances = known.distances_of(unlike, "inclusive")
        assert auroc(inside, known.combine(distances)) > 0.99
        assert (known.scores(distances) >= 0.95).all()


def two_materials(length: float, n: int, seed: int) -> torch.Tensor:
    problem = Darcy(length=length)
    return problem.sample_inputs(problem.grid(32), n, Generator().manual_seed(seed))


def test_shorter_correlations_are_found_where_values_are_the_same():
    """Two-valued fields of half the correlated area, with means nearer to those of the training."""
    known = KnownInputs.of(two_materials(0.224, 256, 0), two_materials(0.224, 128, 1), "inclusive")
    inside, outside = (
        known.combine(known.distances_of(two_materials(length, 200, 2), "inclusive"))
        for length in (0.224, 0.158)
    )
    assert auroc(inside, outside) > 0.75


def test_statistics_of_other_features_say_what_to_do(known):
    arrays = {name.replace("texture", "spectrum"): a for name, a in known.to_arrays().items()}
    with pytest.raises(ValueError, match=r"torchcno\.calibrate\(RUN\)"):
        KnownInputs.from_arrays(arrays).distances_of(waves(2, 6, 0), "inclusive")


def test_a_function_has_the_same_score_on_another_grid(known):
    u = waves(40, 6, 5)
    finer = resample(u, (48, 48), "inclusive")
    here, there = (known.combine(known.distances_of(v, "inclusive")) for v in (u, finer))
    torch.testing.assert_close(here, there, atol=0.5, rtol=0)
    assert float(score(known, waves(40, 20, 6, 48)).min()) > 0.95  # beyond the known grid


def test_known_inputs_survive_a_file(known):
    u = waves(10, 6, 7)
    torch.testing.assert_close(
        score(KnownInputs.from_arrays(known.to_arrays()), u), score(known, u)
    )


def test_spread_is_one_more_kind(known):
    spread = torch.rand(99, generator=Generator().manual_seed(0)) + 0.5
    both, u = known.with_spread(spread), waves(5, 6, 8)
    wide = both.distances_of(u, "inclusive", torch.full((5,), 50.0))
    assert (both.scores(wide) >= 0.95).all()
    assert (both.scores(both.distances_of(u, "inclusive", torch.full((5,), 1.0))) < 0.95).any()
    with pytest.raises(ValueError, match="of an ensemble"):
        both.distances_of(u, "inclusive")


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_features_in_every_dimension_and_of_constants_are_finite(axes):
    shape = (12,) * axes
    u = torch.cat([torch.randn(3, 2, *shape), torch.zeros(1, 2, *shape)])
    for layout in ("periodic", "inclusive", "cell-centred"):
        for found in features(u, torch.ones(2), shape, layout).values():
            assert found.isfinite().all()


def test_rank_correlation_sees_order_alone():
    a = torch.rand(20)
    assert rank_correlation(a, a.exp()) == pytest.approx(1)
    assert rank_correlation(a, -(a**3)) == pytest.approx(-1)
