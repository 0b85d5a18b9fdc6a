import re
import shutil

import pytest

from torchcno.disk import read_json
from torchcno.operators.filters import Nearest, WindowedSinc
from torchcno.runs.demo import (
    RESOLUTIONS,
    Timing,
    Tour,
    measure_translation,
    take_tour,
    write_page,
)
from torchcno.runs.evaluate import evaluate_run
from torchcno.runs.train import Watch


@pytest.fixture(scope="module")
def translations():
    return [
        measure_translation("low-pass filters", WindowedSinc()),
        measure_translation("no filters", Nearest()),
    ]


def test_filters_make_a_network_commute_with_translations_better(translations):
    filtered, bare = (t.error for t in translations)
    assert 3 < bare / filtered < 15


def test_a_tour_removes_no_run_but_its_own(tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "run")
    with pytest.raises(ValueError, match=r"holds another run: .*; choose another folder"):
        take_tour(tmp_path, Watch())
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_the_page_is_one_file(tiny_run, translations, tmp_path):
    evaluations = evaluate_run(tiny_run, ("test", "ood"), RESOLUTIONS, samples=2, device="cpu")
    result = read_json(tiny_run / "result.json")
    tour = Tour(
        tiny_run, result, evaluations, translations, [Timing("poisson", 0.01, 0.001)], seconds=1.0
    )
    page = tmp_path / "demo.html"
    write_page(tour, page)
    sources = re.findall(r'(?:src|href)="([^"]+)"', page.read_text())
    assert len(sources) == 4
    assert all(source.startswith("data:image/png;base64,") for source in sources)
