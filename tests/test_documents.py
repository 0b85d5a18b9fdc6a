"""The code in documents runs as it stands, and what documents name exists."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml
from build_docs import ALONG, GENERATED
from run_page import PICTURE, run_page

import torchcno
from torchcno import MODELS, PROBLEMS, Fields, Normalization, RunConfig, train_run
from torchcno.cli import main
from torchcno.data.rpb_files import ARCHIVES
from torchcno.metrics import relative_l1
from torchcno.runs import pretrained
from torchcno.runs.verdict import Verdict

ROOT = Path(__file__).parents[1]
DOCUMENTS = ROOT / "docs"
PAGES = {
    str(path.relative_to(ROOT)): path
    for pattern in ("*.md", "docs/**/*.md", "validation/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
}
MADE = {DOCUMENTS / name for name in GENERATED}  # from the code, when the site is built
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


@pytest.mark.usefixtures("as_outside_tests")  # as a reader runs it
def test_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHCNO_DATA", str(tmp_path / "data"))
    few = replace(ARCHIVES["poisson"], train=16, val_start=16, test_start=20, test=4)
    monkeypatch.setitem(ARCHIVES, "poisson", few)
    write_published_files(tmp_path / "rpb")
    names, _ = run_page(DOCUMENTS / "own-data.md")
    test = names["test"]
    scale = relative_l1(test.outputs.mean(0, keepdim=True).expand_as(test.outputs), test.outputs)
    assert relative_l1(names["v"], test.outputs.float()).median() < 0.5 * scale.median()
    linear = names["linear"](test.inputs, names["best"])
    assert relative_l1(names["v"], test.outputs.float()).median() < (
        relative_l1(linear, test.outputs).median()
    )
    assert names["operator"].normalization == Normalization.fit(names["published"]["train"])
    assert names["theirs"].normalization == Normalization(*CONSTANTS.values())
    assert names["theirs"].predict(names["published"]["ood"].inputs).shape == (4, 1, 64, 64)


EXAMPLES = {
    path.stem: path
    for path in (*sorted((DOCUMENTS / "examples").glob("*.md")), DOCUMENTS / "time.md")
}


@pytest.mark.usefixtures("as_outside_tests")  # as a reader runs it
@pytest.mark.filterwarnings("ignore:.*channel 1 is:torchcno.data.statistics.OddData")  # flow
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_go_from_a_file_to_predictions(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "large":  # the set takes 16 MB
        for module in ("sizes", "runs.loading", "runs.verdict"):
            monkeypatch.setattr(f"torchcno.{module}.available_memory", lambda: 14_000_000)
    names, _ = run_page(EXAMPLES[name])
    verdicts = read_verdicts(tmp_path)
    assert verdicts
    assert all(verdict is not None and verdict.beats for verdict in verdicts.values()), verdicts
    if name == "flow":
        for together, alone in zip(names["both"], names["alone"], strict=True):
            assert together < 1.2 * alone
    if name == "time":
        errors = json.loads(Path("runs/fronts/rollout.json").read_text())["errors"]
        last = {one["name"]: one["metrics"]["relative_l1"][-1] for one in errors}
        assert last["network"] < 0.5 * min(last["persistence"], last["linear map"])
        assert Path("runs/fronts/rollout.gif").stat().st_size > 1000
    if name == "large":
        with pytest.raises(ValueError, match="of memory"):
            Fields.open("large.h5", inputs="a", outputs="u", layout="periodic", dimension=2)


def read_verdicts(folder: Path) -> dict[str, Verdict]:
    """Whether the runs of a page learnt, by their names."""
    results = {
        path.parent.name: json.loads(path.read_text())
        for path in (folder / "runs").glob("*/result.json")
    }
    # That of a search has none: it is of many runs.
    return {name: Verdict(**one["verdict"]) for name, one in results.items() if "verdict" in one}


RUN = {  # pages that show what their code prints
    str(path.relative_to(DOCUMENTS)): path
    for pattern in ("index.md", "tutorials/*.md", "concepts/*.md")
    for path in sorted(DOCUMENTS.glob(pattern))
}


@pytest.mark.usefixtures("as_outside_tests")  # as a reader runs it
@pytest.mark.timeout(600)  # that of clusters starts processes
@pytest.mark.parametrize("page", RUN)
def test_tutorials_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHCNO_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(PROBLEMS, "reaction", None)  # taken back, whatever a page puts there
    monkeypatch.setitem(MODELS, "small", None)
    _, text = run_page(RUN[page])
    assert all(verdict.beats for verdict in read_verdicts(tmp_path).values())
    shown = [target for target in PICTURE.findall(text) if not target.startswith("../")]
    if page != "index.md":
        assert all(list(tmp_path.rglob(Path(target).name)) for target in shown), "drawn by the page"


@pytest.mark.usefixtures("as_outside_tests")  # as a reader runs it
def test_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its code, with a small network in the place of the one that takes a GPU minutes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHCNO_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(torchcno, "train_run", train_small)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    shipped, own, benchmark = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(shipped, "README.md", "exec"), names)
    assert relative_l1(names["v"], names["u"].float()).item() < 0.05
    exec(compile(own, "README.md", "exec"), names)
    v, truth = names["v"], names["val"].outputs.float()
    assert relative_l1(v, truth).median() < 0.5 * relative_l1(0 * truth, truth).median()
    exec(compile(benchmark, "README.md", "exec"), names)
    assert names["result"]["problem"] == "poisson"


def test_export_and_publish(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of the page, and its code with what they wrote, for a small network."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_run, tmp_path / "package" / "poisson")
    monkeypatch.setattr(pretrained, "WEIGHTS", tmp_path / "package")
    text = (DOCUMENTS / "export.md").read_text(encoding="utf-8")
    for command in re.findall(r"^    cno (export poisson .*)$", text, re.MULTILINE):
        assert main([*command.split(), "--size", "64,64"]) == 0
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(code, "export.md", "exec"), names)
    v, w = names["v"], names["w"].detach().numpy()
    assert abs(v - w).max() < 1e-4 * abs(w).max()
    assert v[:, 0].shape == names["u"].shape


def train_small(config: RunConfig, out: str) -> dict[str, Any]:
    """`train_run` on the same problem, with a network that learns in a second."""
    small = RunConfig.resolve(config.problem, config.model, config.preset, resolution=24)
    network = replace(small.architecture, levels=1, width=4, lift_width=4, neck_blocks=1)
    recipe = replace(small.train, epochs=1, samples=8, batch_size=4)
    return train_run(replace(small, architecture=network, train=recipe), out)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Files that are linked exist, and have the headings that links name."""
    text = re.sub(r"```.*?```", "", PAGES[page].read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, heading = target.partition("#")
        if not name.startswith(("http:", "https:")):
            linked = PAGES[page].parent / name if name else PAGES[page]
            if linked.resolve() in MADE:
                continue
            assert linked.exists(), f"{page} links to {target}, which is not there"
            assert not heading or heading in anchors_of(linked)


def test_the_site_builds_and_fetches_nothing() -> None:
    """Every page has its place, no link is dead, and a reader's browser asks no one else."""
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    placed = set(re.findall(r"[\w/-]+\.md", str(yaml.safe_load(site)["nav"])))
    pages = {str(path.relative_to(DOCUMENTS)) for path in DOCUMENTS.rglob("*.md")}
    notes = {page for page in pages if page.startswith("notes/")}  # their index lists them
    assert pages - placed <= notes, "name them in the nav of mkdocs.yml"
    assert placed - pages - set(GENERATED) == {f"repository/{name}.md" for name in ALONG}
    build = subprocess.run(
        [sys.executable, ROOT / "tools" / "build_docs.py"], capture_output=True, text=True
    )
    assert build.returncode == 0, build.stdout + build.stderr
    fetched = re.compile(r"<(?:script|img|iframe)[^>]* src=\"?http|<link[^>]* href=\"?http")
    for path in (ROOT / "build" / "docs" / "site").rglob("*.html"):
        assert not fetched.search(path.read_text(encoding="utf-8")), path


def anchors_of(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_files_that_pages_name_exist(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf-8")
    named = re.findall(r"\b((?:validation|benchmarks|results|tests|docs)/[a-z0-9_./-]+\.\w+)", text)
    assert not [name for name in named if not (ROOT / name).exists()]


MATHEMATICS = (DOCUMENTS / "mathematics.md").read_text(encoding="utf-8")


def test_the_theorems_have_their_tests() -> None:
    """The tests that docs/mathematics.md names beside its statements exist."""
    paths = list((ROOT / "tests").rglob("test_*.py"))
    files = {path.stem for path in paths}
    tests = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    named = set(re.findall(r"\btest_\w+", MATHEMATICS))
    assert named
    assert not {name for name in named if name not in files and f"def {name}(" not in tests}


@pytest.mark.parametrize(
    "name",
    sorted(set(re.findall(r"`((?:spectral|evaluation|operators|models)\.[\w.]+)`", MATHEMATICS))),
)
def test_the_definitions_have_their_functions(name: str) -> None:
    found, words = import_module("torchcno"), name.split(".")
    for i, word in enumerate(words):
        path = "torchcno." + ".".join(words[: i + 1])
        found = getattr(found, word) if hasattr(found, word) else import_module(path)
