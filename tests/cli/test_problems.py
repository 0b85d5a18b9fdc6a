import dataclasses

import pytest

from torchcno.problems import PROBLEMS


def test_every_problem_has_its_line(cno):
    outcome = cno("problems")
    assert outcome.code == 0
    assert all(name in outcome.out for name in PROBLEMS)


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_can_be_explained(cno, name):
    outcome = cno("problems", name)
    assert outcome.code == 0
    assert all(field.name in outcome.out for field in dataclasses.fields(PROBLEMS[name]))


def test_one_problem_is_explained_with_its_constants(cno):
    out = cno("problems", "poisson").out
    assert "−Δu = f" in out
    assert "16" in out
    assert "20" in out  # K out of distribution


def test_a_problem_is_drawn(cno, tmp_path):
    path = tmp_path / "poisson.png"
    assert cno("problems", "poisson", "--plot", path).code == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_refused(cno):
    assert "did you mean 'poisson'?" in cno("problems", "posson").err
    assert cno("problems", "--plot", "x.png").code == 2
