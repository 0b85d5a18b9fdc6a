"""The code in documents runs as it stands, and their numbers are those of results."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from torchcno import PROBLEMS, Normalization
from torchcno.data.rpb_files import ARCHIVES
from torchcno.evaluation.errors import published_error
from torchcno.metrics import relative_l1
from torchcno.paper.published import SEEDED, SEEDS
from torchcno.runs.config import differences
from torchcno.runs.folder import RunFolder, read_config

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


RESULTS = DOCUMENTS.parent / "results"


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def of_tables(table: str, column: str, *labels: str) -> Any:
    """A number of the report: of the row whose first words are `labels`."""
    (row,) = (
        row
        for row in read("report/report.json")["tables"][table]
        if list(row.values())[: len(labels)] == list(labels)
    )
    return row["values"][column]


def slower(bench: str, section: str, fused: str, plain: str) -> float:
    """In percent, what filters add to a step."""
    return 100 * (read(bench)[section][fused]["ratios"][plain] - 1)


def changes(model: str, by: str) -> float:
    return of_tables("resolution", "any grids", model, by)


def apart(problem: str, model: str = "CNO") -> float:
    """The largest test error of a model over the least, of its initialisations."""
    ends = of_tables("table-1", model, problem, "In", "ours, paper, seeds")
    return ends["most"] / ends["least"]


def l1(run: str, statistic: str) -> float:
    """A run's error out of distribution, of scaled fields."""
    errors = read(f"runs/{run}/result.json")["errors"]["ood"]
    return errors[f"relative_l1_{statistic}_percent"]["normalized"]


def filters(problem: str) -> float:
    """The error out of distribution without filters over the CNO's."""
    row = (problem, "Out", "ours, paper")
    plain, cno = (of_tables("table-13", column, *row) for column in ("CNO w/o filters", "CNO"))
    return plain / cno


STAIRS = "discontinuous-transport-fno-sampled"
STATED = {
    r"on an H200: ([\d.]+) ms, (\d+) % more": lambda: (
        read("bench-h200.json")["training"]["fused"]["milliseconds"],
        slower("bench-h200.json", "training", "fused", "no-filters"),
    ),
    r"bench-h200.json\); (\d+) % in": lambda: (
        slower("bench-ablations-h200.json", "training", "fused", "no-filters"),
    ),
    r"at 128² (\d+) % in": lambda: (
        slower("bench-h200-rows.json", "sizes", "fused-128", "no-filters-128"),
    ),
    r"changes by ([\d.]+) % \(`paper`\) and ([\d.]+) % \(`best`\)": lambda: tuple(
        100 * (changes("CNO", f"ours, {preset}") - 1) for preset in ("paper", "best")
    ),
    r"that of FNO by (\d+) %, that of U-Net by a factor of ([\d.]+)": lambda: (
        100 * (changes("FNO", "ours, paper") - 1),
        changes("UNet", "ours, paper"),
    ),
    r"Navier-Stokes fields take it ([\d.]+) ms each, our solver ([\d.]+) ms": lambda: tuple(
        read("bench-h200.json")["inference"][row]["milliseconds_a_sample"]
        for row in ("navier-stokes-64-throughput", "navier-stokes-solver-128-throughput")
    ),
    r"off by (\d+) to (\d+) % \(CNO\), (\d+) % \(FNO\) and (\d+) % \(U-Net\)": lambda: tuple(
        100 * audit["translations"][-1]["error"]
        for audit in read("audit-navier-stokes.json")["audits"]
    ),
    r"these are ([\d.]+) and ([\d.]+) % on navier-stokes, ([\d.]+) and ([\d.]+) % on": lambda: (
        tuple(
            of_tables("table-1-physical", "CNO", problem, split, "ours, best")
            for problem in ("Navier-Stokes equations", "Poisson equation")
            for split in ("In", "Out")
        )
    ),
    r"has ([\d.]+) on Allen-Cahn out of distribution, and a mean of ([\d.]+)": lambda: (
        l1("allen-cahn-cno-best-0", "median"),
        l1("allen-cahn-cno-best-0", "mean"),
    ),
    r"CNO by `paper` have means of ([\d.]+), ([\d.]+) and ([\d.]+)\.": lambda: tuple(
        l1(f"allen-cahn-{model}-paper-0", "mean") for model in ("unet", "fno", "cno")
    ),
    r"hangs on seed \(([\d.]+) to ([\d.]+)\)": lambda: tuple(
        of_tables("table-1", "FNO", "Poisson equation", "Out", "ours, paper, seeds")[end]
        for end in ("least", "most")
    ),
    r"airfoil flows on an H200 in (\d+) s": lambda: (read("airfoil-data.json")["seconds"],),
    r"lie (\d+) % apart on wave, (\d+) % on navier-stokes, (\d+) % on darcy": lambda: tuple(
        100 * (apart(problem) - 1)
        for problem in ("Wave equation", "Navier-Stokes equations", "Darcy flow")
    ),
    r"a factor of ([\d.]+), ([\d.]+), (\d), (\d) and (\d) on smooth transport, airfoil": lambda: (
        apart("Smooth transport"),
        apart("Compressible Euler"),
        apart("Poisson equation"),
        apart("Allen-Cahn equation"),
        apart("Discontinuous transport"),
    ),
    r"U-Net's lie (\d+) to (\d+) % apart": lambda: (
        100 * (apart("Navier-Stokes equations", "UNet") - 1),
        100 * (apart("Allen-Cahn equation", "UNet") - 1),
    ),
    r"are ([\d.]+) times as large on navier-stokes, ([\d.]+) times on darcy": lambda: (
        filters("Navier-Stokes equations"),
        filters("Darcy flow"),
    ),
    r"with stairs FNO has ([\d.]+) and ([\d.]+), published": lambda: tuple(
        published_error(by_resolution["64"])
        for by_resolution in read(f"trials/{STAIRS}/errors.json")[STAIRS]["errors"].values()
    ),
    r"no answer has mean errors below ([\d.]+) and ([\d.]+) %": lambda: tuple(
        row["least_mean_error_percent"] for row in read("validation-airfoil-masks.json").values()
    ),
    r"and the best one about ([\d.]+) and ([\d.]+)\.": lambda: tuple(
        row["likely_mean_error_percent"] for row in read("validation-airfoil-masks.json").values()
    ),
    r"exact solution misses by ([\d.]+) to ([\d.]+) %": lambda: tuple(
        read("validation-disks.json")["test"]["percent"]["sampled"].values()
    ),
}


@pytest.mark.parametrize("pattern", STATED)
def test_numbers_in_the_readme_are_measured(pattern: str) -> None:
    text = " ".join((DOCUMENTS.parent / "README.md").read_text(encoding="utf-8").split())
    (found,) = re.finditer(pattern, text)
    for said, measured in zip(found.groups(), STATED[pattern](), strict=True):
        assert is_rounded(said, measured)


def cells_of(section: str) -> Iterator[tuple[str, str, str]]:
    """Row, column and content of every cell in the tables of a section of training.md."""
    text = (DOCUMENTS / "training.md").read_text(encoding="utf-8").replace("**", "")
    (part,) = re.findall(rf"^## {section}\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    for table in re.findall(r"(?:^\|.*\n)+", part, re.MULTILINE):
        lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines())
        heads, _, *rows = lines
        for label, *cells in rows:
            yield from ((label, *cell) for cell in zip(heads[1:], cells, strict=True))


def runs_of_seed(problem: str, network: str) -> list[str]:
    model, seed = network.replace("-", "").lower().split()
    return [f"{problem.replace(' ', '-')}-{model}-paper-{seed}"]


def runs_of_samples(samples: str, network: str) -> list[str]:
    problem, model = network.lower().split(", ")
    tag = f"-samples{samples}" if samples.isdigit() else ""
    return [f"{problem}-{model}-paper-0{tag}"]


def runs_of_ablation(problem: str, network: str) -> list[str]:
    tags = {"CNO": "", "without filters": "-no-filters", "without blocks across": "-no-skip-blocks"}
    run = f"{problem.replace(' ', '-')}-cno{tags[network]}-paper"
    return [f"{run}-{seed}" for seed in range(3 if network == "CNO" else 1)]


@pytest.mark.parametrize(
    ("section", "runs_of", "told"),
    [
        ("How much is chance", runs_of_seed, r"(?!vorticity).*-(cno|fno|unet)-paper-[012]"),
        ("Fewer samples", runs_of_samples, r"(poisson|wave)-(cno|fno)-paper-0(-samples\d+)?"),
        ("Ablations", runs_of_ablation, r".*-cno-no-(filters|skip-blocks)-paper-0"),
    ],
)
def test_tables_of_runs_are_measured(
    section: str, runs_of: Callable[[str, str], list[str]], told: str
) -> None:
    """Every cell is that of its finished runs, and no finished run is left out."""
    finished = {path.parent.name for path in RESULTS.glob("runs/*/result.json")}
    seen = set()
    for row, column, cell in cells_of(section):
        if "±" not in cell:  # which are published
            runs = finished.intersection(runs_of(row, column))
            assert_measured(cell, [read(f"runs/{run}/result.json") for run in runs])
            seen |= runs
    assert not {run for run in finished if re.fullmatch(told, run)} - seen


def assert_measured(cell: str, results: list[Any]) -> None:
    """Of "0.63 / 0.70 (529)": errors in and out of distribution, and epochs.

    Of several runs, "0.47–0.91 / 0.50–4.32": the least error and the largest.
    """
    if not results:
        assert cell == ""
        return
    found = re.fullmatch(r"(\S+) / (\S+)(?: \((\d+)\))?", cell)
    assert found, f"{cell!r} is not what its runs came to"
    *errors, epochs = found.groups()
    for said, split in zip(errors, ("test", "ood"), strict=True):
        measured = [published_error(result["errors"][split]) for result in results]
        least, _, most = said.partition("–")
        assert is_rounded(least, min(measured))
        assert is_rounded(most or least, max(measured))
    assert epochs is None or {int(epochs)} == {result["epochs"] for result in results}


def test_seeds_of_the_paper_are_as_published() -> None:
    published = [one for one in cells_of("How much is chance") if not one[1][-1].isdigit()]
    assert len(published) == len(SEEDS) * len(SEEDED)
    for problem, column, cell in published:
        model = column.removeprefix("published: ").replace("-", "").lower()
        said = SEEDS[problem.replace(" ", "-")][model]
        assert cell == f"{said.mean:.2f} ± {said.std:.2f}"


def test_what_frozen_statistics_bring_is_measured() -> None:
    text = (DOCUMENTS / "training.md").read_text(encoding="utf-8").replace("**", "")
    (table,) = re.findall(r"^\| small CNO, Muon.*\n.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    for line in table.splitlines():
        label, *said = (cell.strip() for cell in line.strip("|").split("|"))
        problem = label.split(",")[0].replace(" ", "-")
        rows = read(f"validation-recipes-{problem}-small.json")
        for part, number in zip(("", "0.1", "0.25", "0.5", "0.75"), said, strict=True):
            tag = f" frozen_statistics={part}" if part else ""
            row = rows[f"optimizer=muon learning_rate=0.004{tag}"]
            assert is_rounded(number, row["validation_error_percent"])
    (found,) = re.findall(
        r"loss of ([\d.]+) % on 256 training samples .* of ([\d.]+) % on the same .* median of "
        r"([\d.]+) on the test set to ([\d.]+) with .* to ([\d.]+) with frozen",
        " ".join(text.split()),
    )
    shipped, batch, frozen = read("validation-statistics-poisson.json").values()
    whose = ("statistics_of_the_batch", "its_own_statistics")
    losses = (shipped[f"loss_with_{statistics}_percent"] for statistics in whose)
    medians = (row["test"]["median"] for row in (shipped, batch, frozen))
    for said, measured in zip(found, (*losses, *medians), strict=True):
        assert is_rounded(said, measured)


def test_freezing_statistics_is_all_that_made_smooth_transport_better() -> None:
    """Two runs that differ in one field, the same until it acts, and every number said of them."""
    names = "runs/smooth-transport-cno-best-0", "trials/smooth-transport-cno-muon"
    configs = [read_config(RESULTS / name) for name in names]
    assert differences(*configs) == {"train.frozen_statistics": (0.5, 0.0)}
    frozen, free = (RunFolder(RESULTS / name).rows() for name in names)
    keys, epoch = ("train_loss", "validation_error"), 300
    assert all(a[key] == b[key] for a, b in zip(frozen[:epoch], free, strict=False) for key in keys)
    before, after = frozen[epoch - 1], frozen[epoch:]
    results = [read(f"{name}/result.json")["errors"] for name in names]
    errors = [published_error(result[split]) for result in results for split in ("test", "ood")]
    measured = [
        errors[2] / errors[0],
        epoch,
        len(frozen),
        100 * before["train_loss"],
        100 * after[0]["train_loss"],
        after[9]["validation_error"] / before["validation_error"],
        400,  # where the fall begins, by eye
        *(100 * rows[-1][key] for rows in (frozen, free) for key in keys),
        *errors,
    ]
    text = (DOCUMENTS / "training.md").read_text(encoding="utf-8")
    (part,) = re.findall(r"^\*\*It made the test error of smooth .*?\n\n", text, re.S | re.M)
    for said, number in zip(re.findall(r"\d+(?:\.\d+)?", part), measured, strict=True):
        assert is_rounded(said, number)


def is_rounded(said: str, measured: float) -> bool:
    digit = 10.0 ** int(Decimal(said).as_tuple().exponent)
    return abs(float(said) - measured) <= 0.501 * digit
