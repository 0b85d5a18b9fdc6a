"""Results as one table: a row per finished run, and the arrays that figures need of it.

    RESULTS/runs.jsonl             a row per run: what it was, its errors, its time, its versions
    RESULTS/arrays/<problem>.npz   curves, errors of every sample, examples, spectra

A row names its arrays by their content, so that samples which many runs share are kept once. Run
folders beside the table (`RESULTS/runs/<name>`, `RESULTS/trials/<name>`) are read as well, and go
before rows of the same name; `collect` puts them into the table.
"""

import hashlib
import json
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchcno.disk import read_json, write_arrays, write_atomically
from torchcno.evaluation.resolution import ResolutionCurve
from torchcno.locks import locked
from torchcno.runs.config import RunConfig, differences, read_tree
from torchcno.runs.evidence import Examples
from torchcno.runs.folder import KEYS, Damage, RunFolder, check_errors
from torchcno.runs.measurements import RESOLUTIONS, SPECTRA, Measurement, Spectra, read_spectra

TABLE = "runs.jsonl"
GROUPS = ("runs", "trials")  # folders of runs: those of studies, and single ones
CURVE = ("epoch", "train_loss", "validation_error", "seconds")  # columns of a run's curve

Array = NDArray[Any]


@dataclass(frozen=True)
class Record:
    """A finished run: its row of the table, and how to get the arrays that the row names."""

    row: Mapping[str, Any]
    load: Callable[[str], Array]

    @property
    def name(self) -> str:
        """The name of its folder, `<problem>-<model>-<budget>-<seed>[-tag]` in a study."""
        return str(self.row["name"])

    def __getitem__(self, key: str) -> Any:
        return self.row[key]

    def error(
        self, split: str, space: str = "normalized", statistic: str = "median"
    ) -> float | None:
        """The relative L1 error in percent; None: not measured, or not finite."""
        return known_error(self.row["errors"].get(split), space, statistic)

    def mean_field_error(self, split: str, space: str = "normalized") -> float | None:
        """The same of the mean training output, whatever the input."""
        return known_error(self.row.get("mean_field_errors", {}).get(split), space)

    def sample_errors(self, split: str, space: str = "normalized") -> Array | None:
        """The relative L1 error of every sample, a fraction."""
        return self._array(f"errors/{split}/{space}")

    def curve(self) -> Array | None:
        """A row per epoch, of the columns `CURVE`."""
        return self._array("curve")

    def examples(self, split: str) -> Examples | None:
        """The first samples, in physical values; the prediction is that of the first one."""
        own = self._arrays(f"examples/{split}/")
        if not own.keys() >= EXAMPLE_FIELDS:
            return None
        examples = Examples.from_arrays(own)
        return replace(examples, prediction=examples.prediction[: len(own["error"])])

    def resolutions(self) -> ResolutionCurve | None:
        """The published error against the resolution (figure 2, right)."""
        found = self.row["resolution"]
        return None if found is None else ResolutionCurve.of_json(self.name, found)

    def spectra(self) -> Spectra | None:
        """Spectra of truth and prediction (figure 2, left)."""
        arrays = self._arrays("spectra/")
        return Spectra.from_arrays(arrays) if arrays else None

    def _array(self, key: str) -> Array | None:
        digest = self.row["arrays"].get(key)
        return None if digest is None else self.load(digest)

    def _arrays(self, start: str) -> dict[str, Array]:
        """The arrays, and the numbers, whose names begin so."""
        return {
            key.removeprefix(start): self.load(value) if isinstance(value, str) else np.array(value)
            for key, value in self.row["arrays"].items()
            if key.startswith(start)
        }


EXAMPLE_FIELDS = {"input", "output", "error"}


def known_error(
    summary: Mapping[str, Any] | None, space: str = "normalized", statistic: str = "median"
) -> float | None:
    """A statistic of the relative L1 error in percent; None: not measured, or not finite."""
    value = (summary or {}).get(f"relative_l1_{statistic}_percent", {}).get(space)
    return float(value) if value is not None and math.isfinite(value) else None


@dataclass(frozen=True)
class Records:
    """The table of a folder of results, and the run folders beside it."""

    rows: list[dict[str, Any]]
    files: Mapping[str, Mapping[str, Array]]  # arrays by problem and digest
    damages: Mapping[str, Damage]  # what cannot be read, by run, or by file of the table

    def __iter__(self) -> Any:
        for row in self.rows:
            yield Record(row, self.files.get(row["problem"], {}).__getitem__)


def read_records(folder: Path) -> Records:
    """All finished runs of a folder of results. Damaged ones are named, and stop no one else."""
    rows, damages = read_table(folder / TABLE)
    files: dict[str, dict[str, Array]] = {}
    for path in sorted(folder.glob("arrays/*.npz")):
        try:
            files[path.stem] = _read_arrays(path)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            damages[f"arrays/{path.name}"] = Damage(path, str(error))
    there = sorted(path for group in GROUPS for path in folder.glob(f"{group}/*"))
    for run in (path for path in there if RunFolder(path).result_file.exists()):
        damage = RunFolder(run).damage()
        rows = [row for row in rows if (row["group"], row["name"]) != (run.parent.name, run.name)]
        if damage is not None:
            damages[run.name] = damage
            continue
        row, arrays = read_run(run)
        rows.append(row)
        files.setdefault(row["problem"], {}).update(arrays)
    for row in rows:  # a damaged file of arrays takes its figures with it, and nothing else
        known = files.get(row["problem"], {})
        row["arrays"] = {
            key: value
            for key, value in row["arrays"].items()
            if not isinstance(value, str) or value in known
        }
    return Records(sorted(rows, key=lambda row: (row["group"], row["name"])), files, damages)


def read_table(path: Path) -> tuple[list[dict[str, Any]], dict[str, Damage]]:
    """The rows of the file that are whole, and the lines that are not."""
    rows, damages = [], {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            lacking = [key for key in (*KEYS, *OF_FOLDER) if key not in row]
            if lacking:
                raise ValueError(f"it lacks {', '.join(lacking)}")
            check_errors(row["errors"])
        except (ValueError, TypeError, AttributeError) as error:
            damages[f"{path.name}, line {number}"] = Damage(path, str(error))
        else:
            rows.append(row)
    return rows, damages


# What a row has beyond result.json.
OF_FOLDER = ("name", "group", "config", "weights", "resolution", "measured", "foreign", "arrays")


def read_run(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The row of the finished run in `folder`, and its arrays by their digests."""
    run = RunFolder(folder)
    measured = [m.file for m in (RESOLUTIONS, SPECTRA) if m.is_made(folder)]
    arrays = _arrays_of(run, SPECTRA.file in measured)
    # A number stands in the row itself.
    names = {key: float(a) if a.ndim == 0 else digest(a) for key, a in arrays.items()}
    result = run.result() or {}
    config = read_tree(run.config_file) if run.config_file.exists() else None
    row = {
        "name": folder.name,
        "group": folder.parent.name,
        **result,
        "data_version": config and config["problem"].get("version", 1),  # of its recipe
        "config": config and {**config, "data": None},  # where they lay is no part of a result
        "weights": result.get("weights") or (run.hash_weights() if run.weights.exists() else None),
        "resolution": read_json(run.resolution_file) if RESOLUTIONS.file in measured else None,
        "measured": measured,
        "foreign": [m.file for m in (RESOLUTIONS, SPECTRA) if m.is_foreign(folder)],
        "arrays": names,
    }
    return row, {digest(a): a for a in arrays.values() if a.ndim}


def _arrays_of(run: RunFolder, with_spectra: bool) -> dict[str, Array]:
    """What tables and figures may want of a run beyond its row."""
    arrays: dict[str, Array] = {}
    rows = run.rows()
    if rows:
        curve = [[math.nan if (v := row.get(c)) is None else v for c in CURVE] for row in rows]
        arrays["curve"] = np.array(curve, np.float32)
    arrays |= {f"errors/{key}": a for key, a in _read_arrays(run.errors_file).items()}
    if run.path.name.endswith("-0"):  # the first initialisation, on all samples: those of figures
        for key, array in _read_arrays(run.examples_file).items():
            arrays[f"examples/{key}"] = array[:1] if key.endswith("error") else array
    spectra = read_spectra(run.path) if with_spectra else None
    if spectra is not None:
        kept = replace(spectra, error=None, weights=None).to_arrays()
        arrays |= {f"spectra/{name}": array for name, array in kept.items()}
    return arrays


def _read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file; none where there is no file."""
    if not path.exists():
        return {}
    with path.open("rb") as file, np.load(file) as arrays:
        return dict(arrays)


def digest(array: Array) -> str:
    """A name that arrays of the same content share, and others do not."""
    head = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def collect(folder: Path) -> Records:
    """Put the run folders beside the table into it."""
    with locked(folder):
        records = _read_undamaged(folder)
        write_records(records.rows, records.files, folder)
    return records


def drop(folder: Path, unwanted: Callable[[Record], bool]) -> None:
    """Take rows out of the table, and the arrays that no other row names.

    >>> drop(Path("results"), lambda record: record["problem"] == "wave")
    """
    with locked(folder):
        records = _read_undamaged(folder)
        kept = [dict(record.row) for record in records if not unwanted(record)]
        write_records(kept, records.files, folder)


def find_recorded(
    folder: Path, planned: Mapping[str, RunConfig], measurement: Measurement | None = None
) -> set[str]:
    """The planned runs, by name, that the table of `folder` has and of which no folder is there.

    A row counts if it is of the same configuration and has the measurement that is wanted.
    """
    rows, _ = read_table(folder / TABLE)
    there = {row["name"]: row for row in rows if row["group"] == "runs"}
    return {
        name
        for name, config in planned.items()
        if (row := there.get(name)) is not None
        and not (folder / "runs" / name).exists()
        and (measurement is None or measurement.file in row["measured"])
        and not find_changes(row, config)
    }


def find_changes(row: Mapping[str, Any], planned: RunConfig) -> list[str]:
    """What makes the run of a row another than the planned one, in words; of the same: nothing."""
    if row["config"] is None:
        return ["its configuration is not there"]
    try:
        changed = differences(RunConfig.from_tree(row["config"]), planned)
    except (ValueError, TypeError) as error:  # on other data, or of another version of torchcno
        return [str(error).partition(";")[0]]
    return [f"{key} is {there}, not {meant}" for key, (there, meant) in changed.items()]


def _read_undamaged(folder: Path) -> Records:
    """The records, of which nothing is lost when they are written again."""
    records = read_records(folder)
    for damage in records.damages.values():
        if damage.file.parent in (folder, folder / "arrays"):
            raise ValueError(f"{damage}; bring back a whole copy: git checkout {damage.file}")
    return records


def write_records(
    rows: Sequence[Mapping[str, Any]], files: Mapping[str, Mapping[str, Array]], folder: Path
) -> None:
    """Write the table: arrays first, so that no row ever names one that is not there."""
    for problem, there in files.items():
        named = {
            value
            for row in rows
            if row["problem"] == problem
            for value in row["arrays"].values()
            if isinstance(value, str)
        }
        path = folder / "arrays" / f"{problem}.npz"
        if named:
            write_arrays({name: there[name] for name in sorted(named)}, path)
        else:
            path.unlink(missing_ok=True)
    lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    write_atomically(folder / TABLE, lines.encode())
