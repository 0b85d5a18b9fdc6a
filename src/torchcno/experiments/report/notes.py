"""What a reader has to know of the errors of Table 1: of the data behind them, and of chance."""

from collections.abc import Sequence

from torchcno.experiments import paper
from torchcno.experiments.report.cells import SPLIT_TITLES, percent
from torchcno.experiments.report.results import Results
from torchcno.experiments.studies import planned

LOPSIDED = 3.0  # times the median: from there on a mean error is told


def notes_on_table_1(results: Results, cases: Sequence[tuple[str, str]]) -> str:
    """All of them, in one paragraph."""
    said = (
        lopsided(results, cases),
        stairs(results),
        fewer_fronts(results),
        harder_darcy(results),
        undetermined(results),
    )
    return "".join(f" {one}" for one in said if one)


def lopsided(results: Results, cases: Sequence[tuple[str, str]]) -> str:
    """Where the median hides that many samples are far worse."""
    found = []
    for problem, split in cases:
        for budget in results.budgets:
            for model in paper.COMPARED:
                run = planned(budget, problem, model)
                median, mean = results.error(run, split), results.mean_error(run, split)
                if median is not None and mean is not None and mean > LOPSIDED * median:
                    found.append(
                        f"{paper.MODEL_TITLES[model]} ({budget.name}) on "
                        f"{paper.PROBLEM_TITLES[problem]}, {SPLIT_TITLES[split].lower()}: "
                        f"median {percent(median).text}, mean {percent(mean).text}"
                    )
    if not found:
        return ""
    return (
        f"A median hides what lies above it. Where the mean is over {LOPSIDED:g} times as large: "
        f"{'; '.join(found)}."
    )


def stairs(results: Results) -> str:
    """What the published errors of discontinuous transport hold besides the networks' own."""
    measured = results.extra("validation-disks.json")
    if measured is None:
        return ""
    least, most = (
        " and ".join(f"{row['percent']['sampled'][answer]:.2f}" for row in measured.values())
        for answer in ("disk", "moved")
    )
    return (
        "On discontinuous transport the text has sampled disks, with stairs, on which "
        f"even the true disk has errors of {least} (in and out) and the input translated exactly "
        f"{most}; ours have none (python validation/disks.py)."
    )


def fewer_fronts(results: Results) -> str:
    """That the published Allen-Cahn data cannot be ours, where the numbers show it."""
    measured = results.extra("validation-output-space.json")
    if measured is None:
        return ""
    don = measured["allen-cahn"]["deeponet"]
    if any(
        don[split]["floor_percent"] <= don[split]["published_percent"] for split in SPLIT_TITLES
    ):
        return ""
    floors, published = (
        " and ".join(percent(don[split][f"{which}_percent"]).text for split in SPLIT_TITLES)
        for which in ("floor", "published")
    )
    return (
        f"On Allen-Cahn the published data are not ours: no network with the {don['dimensions']} "
        f"functions of DON has errors below {floors} (in and out) on ours, and {published} are "
        "published (python validation/output_space.py)."
    )


def harder_darcy(results: Results) -> str:
    """That Darcy flow is harder here, whatever the network, where the numbers show it."""
    measured = results.extra("validation-darcy.json")
    if measured is None:
        return ""
    ours = next(iter(measured["readings"].values()))["[0, 1]"]["regression"]
    published = measured["published"]["ffnn"]
    if any(ours[split] <= published[split] for split in SPLIT_TITLES):
        return ""
    regression, ffnn = (
        " and ".join(percent(errors[split]).text for split in SPLIT_TITLES)
        for errors in (ours, published)
    )
    return (
        f"Our Darcy flow is harder than the published one: kernel regression has {regression} on "
        f"it, where FFNN is published with {ffnn} (python validation/darcy_readings.py)."
    )


def undetermined(results: Results) -> str:
    """What no network can know of a flow past an airfoil."""
    measured = results.extra("validation-airfoil-masks.json")
    if measured is None:
        return ""
    least, likely = (
        " and ".join(f"{row[f'{which}_mean_error_percent']:.2f}" for row in measured.values())
        for which in ("least", "likely")
    )
    return (
        "Of an airfoil networks see its cells, and airfoils with the same cells have other flows: "
        f"no answer has mean errors below {least} (in and out), and the best one about {likely} "
        "(python validation/airfoil_masks.py)."
    )
