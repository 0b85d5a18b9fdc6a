"""What a reader has to know of the errors of Table 1: of the data behind them, and of chance."""

from collections.abc import Sequence

from torchcno.paper import published as paper
from torchcno.paper.report.cells import SPLIT_TITLES, percent
from torchcno.paper.report.other_files import DARCY, DISKS, FRONTS, MASKS, Both
from torchcno.paper.report.results import Results
from torchcno.paper.studies import planned

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
    measured = results.only(DISKS)
    if measured is None:
        return ""
    least, most = map(_in_and_out, measured)
    return (
        "On discontinuous transport the text has sampled disks, with stairs, on which "
        f"even the true disk has errors of {least} (in and out) and the input translated exactly "
        f"{most}; ours have none (python validation/disks.py)."
    )


def fewer_fronts(results: Results) -> str:
    """That the published Allen-Cahn data cannot be ours, where the numbers show it."""
    measured = results.only(FRONTS)
    if measured is None:
        return ""
    functions, floors, published = measured
    if not _above(floors, published):
        return ""
    return (
        f"On Allen-Cahn the published data are not ours: no network with the {functions} functions "
        f"of DON has errors below {_in_and_out(floors)} (in and out) on ours, and "
        f"{_in_and_out(published)} are published (python validation/output_space.py)."
    )


def harder_darcy(results: Results) -> str:
    """That Darcy flow is harder here, whatever the network, where the numbers show it."""
    measured = results.only(DARCY)
    if measured is None or not _above(*measured):
        return ""
    regression, ffnn = map(_in_and_out, measured)
    return (
        f"Our Darcy flow is harder than the published one: kernel regression has {regression} on "
        f"it, where FFNN is published with {ffnn} (python validation/darcy_readings.py)."
    )


def undetermined(results: Results) -> str:
    """What no network can know of a flow past an airfoil."""
    measured = results.only(MASKS)
    if measured is None:
        return ""
    least, likely = map(_in_and_out, measured)
    return (
        "Of an airfoil networks see its cells, and airfoils with the same cells have other flows: "
        f"no answer has mean errors below {least} (in and out), and the best one about {likely} "
        "(python validation/airfoil_masks.py)."
    )


def _above(ours: Both, published: Both) -> bool:
    """Whether ours are larger, in and out of distribution."""
    return all(a > b for a, b in zip(ours, published, strict=True))


def _in_and_out(errors: Both) -> str:
    return " and ".join(percent(error).text for error in errors)
