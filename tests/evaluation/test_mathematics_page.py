"""docs/mathematics.md names functions and tests that exist."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mathematics.md").read_text(encoding="utf-8")
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\b(test_\w+)(?!\w*\.py)\b", PAGE))))
def test_tests_exist(name):
    assert f"def {name}(" in TESTS or list((ROOT / "tests").rglob(f"{name}.py"))


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"`((?:spectral|evaluation|operators|models)\.[\w.]+)`", PAGE)))
)
def test_functions_exist(name):
    found, words = import_module("torchcno"), name.split(".")
    for i, word in enumerate(words):
        path = "torchcno." + ".".join(words[: i + 1])
        found = getattr(found, word) if hasattr(found, word) else import_module(path)


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:validation|results)/[\w./-]+)`", PAGE)))
)
def test_files_exist(path):
    assert (ROOT / path).exists()
