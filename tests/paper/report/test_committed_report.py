"""The committed page, tables and numbers are those of the committed results: `make report`."""

import json
import re
from pathlib import Path

import pytest

from torchcno.paper.report.markdown import BEGIN, END, table_1_block, with_block
from torchcno.paper.report.page import Report, latex, make_report, render
from torchcno.paper.report.results import Results
from torchcno.paper.studies import BUDGETS, planned
from torchcno.runs.folder import KEYS

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "results" / "report"
REMEDY = "what lies in results/ is not what the report was rendered from; run `make report`"


@pytest.fixture(scope="module")
def report() -> Report:
    return make_report(ROOT / "results")


def test_the_numbers_are_those_of_the_results(report):
    committed = json.loads((COMMITTED / "report.json").read_text())
    assert json.loads(json.dumps(report.numbers)) == committed, REMEDY


def test_the_tables_are_those_of_the_results(report):
    committed = {path.stem: path.read_text() for path in COMMITTED.glob("report-tables/*.tex")}
    assert {table.name: latex(table) for table in report.tables} == committed, REMEDY


def test_the_page_is_that_of_the_results_but_for_its_pictures(report):
    # Pictures depend on the version of the library that draws them.
    committed = (COMMITTED / "report.html").read_text()
    without = re.sub(r'src="data:[^"]*"', 'src=""', committed)
    assert render(report, embed=lambda picture: "") == without, REMEDY


def test_the_page_holds_its_pictures_and_is_no_burden():
    page = COMMITTED / "report.html"
    assert 'src=""' not in page.read_text()
    assert page.stat().st_size < 3.5e6


def test_table_1_of_the_readme_is_current(report):
    readme = (ROOT / "README.md").read_text()
    assert with_block(readme, table_1_block(report.results)) == readme, REMEDY


def test_a_new_result_makes_the_table_stale(tmp_path):
    page = f"before\n{BEGIN}\n{END}\nafter\n"
    empty = with_block(page, table_1_block(Results(tmp_path)))
    assert empty.startswith(f"before\n{BEGIN}\n| ")
    assert empty.endswith(f"{END}\nafter\n")
    assert empty.count("\n") == len(page.splitlines()) + 2 + 16
    path = tmp_path / "runs" / planned(BUDGETS["paper"], "darcy", "cno").name / "result.json"
    path.parent.mkdir(parents=True)
    summary = {"relative_l1_median_percent": {"normalized": 0.377, "physical": 1.0}}
    mean_field = {"relative_l1_median_percent": {"normalized": 9.5, "physical": 1.0}}
    errors = {"errors": {"test": summary}, "mean_field_errors": {"test": mean_field}}
    path.write_text(json.dumps({**dict.fromkeys(KEYS), **errors}))
    (changed,) = (
        line
        for line in set(table_1_block(Results(tmp_path)).splitlines()) - set(empty.splitlines())
        if line.startswith("|")
    )
    assert changed.startswith("| Darcy flow | in | – (2.14) |")
    assert changed.endswith("| 0.38 (0.38) | – | 9.50 | – |")


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="no place for the table"):
        with_block("# A page\n", "block")
