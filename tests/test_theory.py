"""The paper's lemmas on small grids; `validation/theory` has them on large ones."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def lemmas(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT)
    from validation.theory import lemmas

    return lemmas


def test_functions_converge_at_the_rate_of_their_regularity(lemmas):
    for found in lemmas.lines(n=1024, bands=(8, 16, 32, 64)):
        if found["expected"] is None:
            continue
        assert found["rate"] == pytest.approx(found["expected"], abs=lemmas.TOLERANCE)


def test_no_filter_of_finite_length_has_the_rate_of_the_projection(lemmas):
    six, twelve = (e for e in lemmas.lines(1024, (8, 16, 32, 64)) if e["expected"] is None)
    assert six["rate"] < twelve["rate"] < 3.5 - 5 * lemmas.TOLERANCE
    assert all(more < fewer for more, fewer in zip(twelve["errors"], six["errors"], strict=True))


def test_operators_converge_at_the_rate_of_their_modulus_of_continuity(lemmas):
    for found in lemmas.operators(n=193, bands=(6, 8, 12, 16, 24), samples=1):
        assert found["rate"] == pytest.approx(found["expected"], abs=1.5 * lemmas.TOLERANCE)
