import pytest

from torchcno.training import PRESETS, Recipe


def test_the_papers_protocol():
    paper = PRESETS["paper"]
    assert (paper.epochs, paper.batch_size, paper.patience) == (1000, 32, 200)
    assert (paper.schedule, paper.loss) == ("step", "relative-l1")
    assert paper.averaging_half_life is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("epochs", 0), ("batch_size", -1), ("learning_rate", 0.0), ("weight_decay", -1e-6)],
)
def test_numbers_that_cannot_be_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=f"{field} is {value}"):
        Recipe(**{field: value})


def test_unknown_names_and_endless_warm_ups_are_refused():
    with pytest.raises(ValueError, match=r"unknown schedule 'cosin'; did you mean 'cosine'"):
        Recipe(schedule="cosin")
    with pytest.raises(ValueError, match="warmup is 5; use less than 1"):
        Recipe(schedule="cosine", warmup=5)


@pytest.mark.parametrize("field", ["samples", "averaging_half_life", "patience"])
def test_what_may_be_none_may_not_be_zero(field):
    Recipe(**{field: None})
    with pytest.raises(ValueError, match=f"{field} is 0"):
        Recipe(**{field: 0})


@pytest.mark.usefixtures("as_outside_tests")
@pytest.mark.parametrize("field", ["epochs", "batch_size", "samples", "evaluate_every"])
def test_what_is_counted_is_whole(field):
    with pytest.raises(ValueError, match=rf"{field} is 2\.5; use a whole number"):
        Recipe(**{field: 2.5})
