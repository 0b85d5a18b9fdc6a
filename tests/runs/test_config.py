"""A configuration says which recipe its data have."""

import pytest

from torchcno.runs.config import RunConfig, read_tree


def test_a_configuration_keeps_the_version_of_its_data():
    config = RunConfig.resolve("darcy", "fno")
    tree = config.to_tree()
    assert tree["problem"]["version"] == config.problem.version == 2
    assert RunConfig.from_tree(tree) == config


def test_a_run_on_data_of_another_version_is_refused_with_the_remedy():
    tree = RunConfig.resolve("darcy", "fno").to_tree()
    del tree["problem"]["version"]  # as files were before recipes had versions
    with pytest.raises(ValueError, match=r"version 1 of the recipe of darcy.*train again"):
        RunConfig.from_tree(tree)


def test_a_run_from_before_versions_is_read_where_the_recipe_is_still_the_first():
    config = RunConfig.resolve("poisson", "fno")
    tree = config.to_tree()
    del tree["problem"]["version"]
    assert RunConfig.from_tree(tree) == config


def test_who_writes_a_configuration_by_hand_means_the_data_of_today():
    config = RunConfig.from_tree({"problem": "darcy", "model": "fno"})
    assert config.problem.version == 2


def test_a_configuration_of_few_lines_does_not_stand_for_gigabytes(tmp_path):
    path = tmp_path / "config.yaml"
    lines = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    path.write_text("\n".join(["a0: &a0 [x]", *lines]))
    with pytest.raises(ValueError, match=r"config\.yaml is not a YAML file: line 2 has an alias"):
        read_tree(path)
    path.write_text("problem: " + "[" * 10**5)
    with pytest.raises(ValueError, match=r"config\.yaml is not a YAML file"):
        read_tree(path)


def test_an_error_shows_a_long_value_cut_short():
    with pytest.raises(ValueError, match=r"model.width is \[0, 1, 2, ") as error:
        RunConfig.from_tree(
            {"problem": "poisson", "model": {"name": "cno", "width": list(range(10**5))}}
        )
    assert len(str(error.value)) < 200
