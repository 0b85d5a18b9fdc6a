"""The code in documents runs as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest

from torchcno import PROBLEMS
from torchcno.metrics import relative_l1

DOCUMENTS = Path(__file__).parents[1] / "docs"


def test_own_data_and_own_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHCNO_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(PROBLEMS, "heat", PROBLEMS["poisson"])  # taken back, whatever is put there
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


def test_the_readme() -> None:
    """All of its code but the run that takes a GPU minutes."""
    text = (DOCUMENTS.parent / "README.md").read_text(encoding="utf-8")
    pretrained, network, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(pretrained, "README.md", "exec"), names)
    assert relative_l1(names["v"], names["u"].float()).item() < 0.05
    exec(compile(network, "README.md", "exec"), names)
    assert names["v"].shape == (8, 1, 128, 128)
