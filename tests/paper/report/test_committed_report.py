"""The committed page and documents are those of the committed results: `make report`."""

import json
import re
from pathlib import Path

import pytest

from torchcno.paper.report.page import Report, fill, latex, make_report, render

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "results" / "report"
REMEDY = "what lies in results/ is not what the report was rendered from; run `make report`"


@pytest.fixture(scope="module")
def report() -> Report:
    return make_report(ROOT / "results")


def test_the_numbers_are_those_of_the_results(report):
    committed = json.loads((COMMITTED / "report.json").read_text())
    assert json.loads(json.dumps(report.numbers)) == committed, REMEDY
    assert latex(report.tables) == (COMMITTED / "report.tex").read_text(), REMEDY


def test_the_page_is_that_of_the_results_but_for_its_pictures(report):
    # Pictures depend on the version of the library that draws them.
    committed = (COMMITTED / "report.html").read_text()
    without = re.sub(r'src="data:[^"]*"', 'src=""', committed)
    assert render(report, embed=lambda picture: "") == without, REMEDY
    assert len(committed) < 3.5e6


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))], ids=lambda path: path.name
)
def test_results_in_documents_are_current(report, path):
    text = path.read_text()
    assert fill(text, report) == text, REMEDY
