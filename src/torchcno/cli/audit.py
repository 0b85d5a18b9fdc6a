"""`cno audit`: is a trained run one operator, whatever its grid?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from torchcno.cli import MISSED
from torchcno.cli.arguments import (
    PICTURES,
    Data,
    Device,
    Json,
    Numbers,
    Runs,
    check_target,
    describe,
)
from torchcno.cli.terminal import show_table

if TYPE_CHECKING:
    from torchcno.evaluation.aliasing import Audit
    from torchcno.evaluation.symmetries import Symmetry
    from torchcno.runs.sections import TrustPage

SHOWN = 5  # layers in the table; the JSON file has all


def audit(
    runs: Runs,
    /,
    *,
    threshold: Annotated[float, describe("fail if an error is larger than this")] = 0.01,
    samples: Annotated[int, describe("samples to look at")] = 4,
    split: Annotated[str | None, describe("which samples: train, val, test or ood", "test")] = None,
    resolutions: Annotated[
        Numbers, describe("points per axis to compare", "half to twice as trained")
    ] = (),
    new_samples: Annotated[
        int, describe("samples of test and ood on which bands and scores are tried")
    ] = 64,
    aliasing_only: Annotated[bool, describe("leave out all but aliasing and shifts")] = False,
    page: Annotated[Path | None, describe("write a page with pictures", "", "FILE.html")] = None,
    symmetries: Annotated[bool, describe("tell which symmetries the data have, and stop")] = False,
    json: Json = None,
    plot: Annotated[Path | None, describe("draw the runs side by side", "", "FILE")] = None,
    data: Data = None,
    device: Device = "auto",
) -> int:
    """Measure how far trained runs can be trusted.

      aliasing    predictions compared between grids, under translations by part
                  of a grid step, and layer by layer
      errors      against shift, amplitude, noise, resolution and wavenumber
      bands       how often error bands hold, in and out of distribution
      inputs      whether inputs out of distribution are told from others
      break-even  after how many solves the network has paid for its data

    What cannot be measured says why. The exit code is 1 if an aliasing error end
    to end is above the threshold, or if bands do not hold on test data.

    examples:
      cno audit runs/p1
      cno audit darcy --page trust.html
      cno audit runs/cno runs/fno runs/unet --plot audit.png --json audit.json
      cno audit runs/p1 --threshold 0.05 --aliasing-only && echo alias-free enough
      cno audit runs/p1 --symmetries
    """
    from torchcno.disk import write_json
    from torchcno.runs.audit import audit_report, audit_run, audit_trust, find_run_symmetries
    from torchcno.runs.evaluate import run_names
    from torchcno.runs.folder import read_config
    from torchcno.runs.pretrained import find_run

    if not runs:
        raise ValueError("name the folder of a run, or of several, or a network such as poisson.")
    runs = tuple(find_run(run) for run in runs)
    check_target(plot, PICTURES)
    check_target(json, [".json"])
    check_target(page, [".html"])
    if page and aliasing_only:
        raise ValueError("--page needs all sections; leave --aliasing-only out.")
    if new_samples < 1:
        raise ValueError(f"--new-samples is {new_samples}; use 1 or more.")
    if not threshold > 0:
        raise ValueError(f"--threshold is {threshold}; give a positive number such as 0.01.")
    if symmetries:
        if json or plot or page:
            raise ValueError("--symmetries has no --json, --plot or --page; leave them out.")
        for name, run in zip(run_names(runs), runs, strict=True):
            show_symmetries(name, find_run_symmetries(run, device=device))
        return 0
    audits = []
    pages: list[TrustPage | None] = []
    for name, run in zip(run_names(runs), runs, strict=True):
        found = audit_run(
            run,
            split=split,
            samples=samples,
            resolutions=resolutions,
            device=device,
            name=name,
            data=data,
        )
        show_audit(found, threshold)
        audits.append(found)
        trust = None
        if not aliasing_only and not read_config(run).times:
            trust = audit_trust(run, samples=new_samples, device=device, data=data)
            show_page(trust)
            if trust.calibration.holds is False:
                print(f"{name}: FAILS, its error bands hold less often than they say.")
        pages.append(trust)
    content = audit_report(audits, threshold, pages)
    if json:
        write_json(content, json)
        print(f"All numbers are in {json}.")
    if plot:
        from torchcno.runs.pictures.drawing import save_figure
        from torchcno.runs.pictures.equivalence import draw_audits

        save_figure(draw_audits(audits), plot)
        print(f"Drawn to {plot}.")
    if page and None in pages:
        raise ValueError("--page has no runs on trajectories; leave them out.")
    if page:
        from torchcno.runs.pictures.trust import write_audit_page

        write_audit_page(content, audits, pages, page)
        print(f"The page is {page}.")
    return 0 if content["passed"] else MISSED


def show_page(page: TrustPage) -> None:
    """What the sections found."""
    from torchcno.runs.sections import describe_page

    for title, lines in describe_page(page).items():
        print(f"\n{title}")
        for line in lines:
            print(f"  {line}")
    print(f"({page.seconds:.0f} s)")


def show_symmetries(name: str, found: Sequence[Symmetry]) -> None:
    """A row per symmetry, and how to train with those that hold."""
    rows = []
    for one in found:
        errors = ("–" if e is None else f"{100 * e:.3g} %" for e in (one.error, one.moved))
        rows.append((one.name, *errors, one.verdict))
    show_table(f"{name}: errors on new samples", ["symmetry", "as they are", "moved", ""], rows)
    holding = [one.name for one in found if one.holds]
    if holding:
        print(f"To train with them: --train.augmentation {' or '.join(holding)}")


def show_audit(found: Audit, threshold: float) -> None:
    """The tables of one audit, and its verdict."""
    rows = [
        (
            " × ".join(map(str, rung.size)),
            "refused" if rung.folded is None else f"{rung.folded:.2e}",
            "" if rung.aliasing is None else f"{rung.aliasing:.2e}",
        )
        for rung in found.ladder
    ]
    finest = " × ".join(map(str, found.reference or ()))
    title = f"{found.name}: aliasing error against {finest}"
    show_table(title, ["grid", "in its band", "in all"], rows)
    if found.translations:
        moves = [(f"{t.steps:g} steps", f"{t.error:.2e}") for t in found.translations]
        show_table("error under a translation", ["by", "error"], moves)
    worst = sorted(found.layers, key=lambda layer: layer.folded, reverse=True)[:SHOWN]
    if worst:
        title = f"energy folded back: {len(worst)} of {len(found.layers)} layers"
        layers = [(layer.name, layer.kind, f"{layer.folded:.2e}") for layer in worst]
        show_table(title, ["layer", "kind", "share"], layers)
    for rung in found.ladder:
        if rung.failure:
            print(f"{rung.size[-1]} points: {rung.failure}")
    for note in found.notes:
        print(f"note: {note}")
    if found.worst is None:
        print(f"{found.name}: NOT MEASURED, which does not pass.")
    else:
        passed = "passes" if found.passes(threshold) else "FAILS"
        largest = f"the largest error is {found.worst:.2e} of {threshold:g} allowed."
        print(f"{found.name}: {passed}, {largest}")
