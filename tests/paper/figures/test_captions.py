"""A reader of the page finds every figure, and what its lines mean."""

import json
import re

from torchcno.paper.report.page import make_report, render


def page_of(folder) -> str:
    """The page on a folder of results, without its pictures."""
    return render(make_report(folder), lambda picture: "")


def test_every_figure_has_a_caption(tmp_path):
    report = make_report(tmp_path)
    assert [picture.name for picture in report.pictures if not picture.caption] == []
    page = page_of(tmp_path)
    assert page.count("<figcaption>") == len(report.drawn) > 0


def test_the_navigation_leads_to_every_figure_and_says_which_are_missing(tmp_path):
    report, page = make_report(tmp_path), page_of(tmp_path)
    targets = re.findall(r'id="([^"]+)"', page)
    assert len(targets) == len(set(targets))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(targets)
    navigation = page[page.index("<nav>") : page.index("</nav>")]
    links = re.findall(r"<a ([^>]*)>(Figure [^<]*)</a>", navigation)
    drawn = {picture.number for picture in report.drawn}
    greyed = {number for look, number in links if 'class="soft"' in look}
    assert greyed == {picture.number for picture in report.undrawn} - drawn
    assert drawn <= {number for _, number in links}


def test_the_rows_of_a_group_stand_below_its_name(tmp_path):
    """On narrow screens, where the columns that have it are not shown."""
    report, page = make_report(tmp_path), page_of(tmp_path)
    groups = [
        row.labels for table in report.tables for row in table.rows if row.begins and row.labels[1:]
    ]
    assert page.count('<tr class="group">') == len(groups)
    assert "<b>Poisson equation, In</b></td></tr>\n<tr" in page


def test_problems_have_their_titles_in_figure_26(tmp_path):
    case = {
        "curves": {"modes": [2, 4], "median": [1, 0.1], "mean": [1, 0.1], "largest": [1, 0.2]},
        "published": {"modes": 4, "error": 0.1},
        "modes_for_published_error": 4,
    }
    modes = dict.fromkeys(("vorticity", "navier-stokes"), case)
    (tmp_path / "validation-modes.json").write_text(json.dumps(modes))
    (picture,) = [p for p in make_report(tmp_path).pictures if p.name == "figure-26"]
    titles = [axes.get_title() for axes in picture.draw().axes]
    assert titles == ["Vorticity", "Navier-Stokes equations"]
