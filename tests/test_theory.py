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


@pytest.fixture
def universality(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT)
    from validation.theory import universality

    monkeypatch.setattr(universality, "TRAINED", 60)
    monkeypatch.setattr(universality, "TESTED", 20)
    return universality


def test_the_proofs_network_gets_better_with_every_part_of_its_size(universality):
    """Theorem 3.1: points of the encoder, neurons, and features where the equation knows places."""
    found = {
        key: universality.measure(universality.Size(M=M, J=J))["error"]
        for key, (M, J) in {"small": (3, 256), "few": (9, 16), "large": (9, 256)}.items()
    }
    assert found["large"] < found["small"] / 1.5
    assert found["large"] < found["few"] / 3

    f = universality.source(universality.FINE)
    blind, told = (
        universality.measure(universality.Size(M=9, J=256, K=K), f)["error"] for K in (0, 1)
    )
    assert told < blind / 3
