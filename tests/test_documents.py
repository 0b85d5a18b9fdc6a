"""The code in documents runs as it stands."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from torchcno import PROBLEMS, Normalization
from torchcno.data.rpb_files import ARCHIVES
from torchcno.metrics import relative_l1

DOCUMENTS = Path(__file__).parents[1] / "docs"
CONSTANTS = {"min_inp": -1.5, "max_inp": 2.5, "min_out": -0.1, "max_out": 0.3}


def write_published_files(folder: Path) -> None:
    """Few samples on few points in the layout of the authors' files of poisson."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, count in (("IN", 24), ("OUT", 4)):
        with h5py.File(folder / f"PoissonData_64x64_{name}.h5", "w") as file:
            file.update({key: np.array(value) for key, value in CONSTANTS.items()})
            for i in range(count):
                file[f"Sample_{i}/input"], file[f"Sample_{i}/output"] = rng.random((2, 8, 8))


def test_own_data_and_own_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHCNO_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(PROBLEMS, "heat", PROBLEMS["poisson"])  # taken back, whatever is put there
    few = replace(ARCHIVES["poisson"], train=16, val_start=16, test_start=20, test=4)
    monkeypatch.setitem(ARCHIVES, "poisson", few)
    write_published_files(tmp_path / "rpb")
    text = (DOCUMENTS / "own-data.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "own_data"}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(code, "own-data.md", "exec"), names)

    test = names["test"]
    scale = relative_l1(test.outputs.mean(0, keepdim=True).expand_as(test.outputs), test.outputs)
    assert relative_l1(names["v"], test.outputs.float()).median() < 0.5 * scale.median()
    errors = names["result"]["errors"]["test"], names["result"]["mean_field_errors"]["test"]
    learnt, mean = (e["relative_l1_median_percent"]["physical"] for e in errors)
    assert learnt < 0.5 * mean
    assert names["operator"].normalization == Normalization.fit(names["published"]["train"])
    assert names["theirs"].normalization == Normalization(*CONSTANTS.values())
    assert names["theirs"].predict(names["published"]["ood"].inputs).shape == (4, 1, 64, 64)


def test_the_readme() -> None:
    """All of its code but the run that takes a GPU minutes."""
    text = (DOCUMENTS.parent / "README.md").read_text(encoding="utf-8")
    pretrained, network, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(pretrained, "README.md", "exec"), names)
    assert relative_l1(names["v"], names["u"].float()).item() < 0.05
    exec(compile(network, "README.md", "exec"), names)
    assert names["v"].shape == (8, 1, 128, 128)
