"""The sections of an audit: one small measurement each, or why it was left out.

Errors are medians over samples of the physical relative L1 error, as fractions.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from torchcno.data.fields import Fields
from torchcno.data.samples import Samples
from torchcno.evaluation.conformal import coverage, likely_coverage
from torchcno.evaluation.errors import sample_errors
from torchcno.evaluation.ood import KnownInputs, auroc, detection_rate, rank_correlation
from torchcno.evaluation.resolution import on_grid
from torchcno.evaluation.spectra import NO_TRUTH, BandError, error_by_band
from torchcno.evaluation.timing import median_seconds
from torchcno.evaluation.translation import translated
from torchcno.metrics import relative_l1
from torchcno.models.ensemble import Ensemble
from torchcno.problems.problem import Problem
from torchcno.runs.config import RunConfig
from torchcno.runs.loading import load_predicted
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.own import OwnData
from torchcno.runs.trust import relative_spread
from torchcno.spectral import resample

AMPLITUDES = (0.5, 0.8, 1.0, 1.25, 2.0)  # times the inputs
NOISES = (0.0, 0.001, 0.01, 0.03, 0.1)  # of the inputs' root mean square
# Steps of the grid, along every axis. 0.382 is no whole step of any finer grid inside a network.
SHIFTS = (0.0, 0.25, 0.382, 0.5, 1.0)
RESOLUTIONS = (0.5, 0.75, 1.0, 1.5, 2.0)  # of the training's points per axis
CONFIDENCES = (0.5, 0.8, 0.9, 0.95)
COARSER = (1.0, 0.75, 0.5, 0.375, 0.25)  # of the solver's points per axis and steps
FEW = 4  # samples that are solved anew
NO_SOLVER = "no solver is known for these data"
CERTAIN = 0.999  # that a coverage below its limits is no chance


@dataclass(frozen=True)
class ErrorCurve:
    """The error against one thing that changes."""

    against: str
    at: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    coverage: tuple[float, ...] = ()  # of the 90 % bound on the relative error, where measured
    samples: int = 0
    left_out: str | None = None


@dataclass(frozen=True)
class SpectrumErrors:
    """At which wavenumbers predictions are wrong, by split."""

    bands: Mapping[str, tuple[BandError, ...]] = field(default_factory=dict)
    left_out: str | None = None


@dataclass(frozen=True)
class Coverage:
    """How often the bands of one confidence hold on a split."""

    split: str
    confidence: float
    samples: int
    relative: float  # the share of samples whose relative error is within the bound
    everywhere: float  # the share of samples that lie within their band at every point
    pointwise: float  # the share of points within their band, mean over samples
    likely: tuple[float, float]  # of `relative` and `everywhere`, if all are drawn alike

    @property
    def holds(self) -> bool:
        """Whether the bands hold as often as they say, up to chance."""
        return min(self.relative, self.everywhere) >= self.likely[0]


@dataclass(frozen=True)
class Calibration:
    """What the bands are, and how often they hold."""

    samples: int = 0  # of validation
    bounds: Mapping[str, float] = field(default_factory=dict)  # on relative errors, by confidence
    coverages: tuple[Coverage, ...] = ()
    left_out: str | None = None

    @property
    def holds(self) -> bool | None:
        """Whether bands hold on samples of the training's kind; None: not measured."""
        inside = [one for one in self.coverages if one.split != "ood"]
        return all(one.holds for one in inside) if inside else None


@dataclass(frozen=True)
class Detection:
    """Whether scores tell inputs out of distribution from others."""

    auroc: float | None = None
    by_kind: Mapping[str, float] = field(default_factory=dict)
    alarms_inside: float | None = None  # the share with a score of 0.95 or more: 5 % expected
    alarms_outside: float | None = None
    scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # by split
    left_out: str | None = None


@dataclass(frozen=True)
class Spread:
    """Whether an ensemble's spread tells its error: rank correlations over samples, by split."""

    correlation: Mapping[str, float] = field(default_factory=dict)
    over_error: Mapping[str, float] = field(default_factory=dict)  # median of spread / error
    left_out: str | None = None


@dataclass(frozen=True)
class BreakEven:
    """After how many solves the network has paid for its data and training, in seconds."""

    error: float | None = None  # the network's
    network_seconds: float | None = None  # per sample
    solver_seconds: float | None = None
    coarse_seconds: float | None = None  # of the solver coarsened to the network's error
    coarse_share: float | None = None  # of its points per axis and steps
    coarse_error: float | None = None
    data_seconds: float | None = None
    training_seconds: float | None = None  # None: not kept with the weights
    solves: float | None = None  # None: never
    device: str = ""
    left_out: str | None = None


@dataclass(frozen=True)
class TrustPage:
    """All sections of one run."""

    shift: ErrorCurve
    amplitude: ErrorCurve
    noise: ErrorCurve
    resolution: ErrorCurve
    spectrum: SpectrumErrors
    calibration: Calibration
    detection: Detection
    spread: Spread
    break_even: BreakEven
    seconds: float = 0.0

    @property
    def curves(self) -> tuple[ErrorCurve, ...]:
        """The errors against one thing each."""
        return self.shift, self.amplitude, self.noise, self.resolution


@dataclass(frozen=True)
class Subject:
    """What is measured: an operator, with samples that are new to it."""

    operator: TrainedOperator
    config: RunConfig
    test: Fields
    split: str  # that `test` is of
    ood: Fields | None
    device: torch.device
    training_seconds: float | None = None

    @property
    def problem(self) -> Problem:
        """The problem of the run."""
        return self.config.problem

    def errors(self, fields: Fields, u: Tensor | None = None) -> Tensor:
        """The physical relative L1 error of each prediction, where outputs count.

        From the inputs of `fields`, or from `u` in their place.
        """
        prediction = self.operator.apply_to(fields.inputs if u is None else u)
        scaling, mask = self.operator.error_scaling, self.problem.mask
        return sample_errors(prediction, fields, scaling, mask)["relative_l1"]["physical"].cpu()

    def where_it_counts(self, prediction: Tensor, fields: Fields) -> Tensor:
        """A prediction that is right wherever outputs do not count."""
        counts, truth = fields.counts(self.problem.mask), fields.outputs.to(prediction)
        return prediction if counts is None else prediction.where(counts.to(truth.device), truth)

    @cached_property
    def predictions(self) -> dict[str, Tensor]:
        """Of the splits there are."""
        return {split: self.operator.apply_to(one.inputs) for split, one in self.splits.items()}

    @property
    def splits(self) -> dict[str, Fields]:
        """The fields by split."""
        return {self.split: self.test} | ({} if self.ood is None else {"ood": self.ood})

    def bound(self, confidence: float) -> float | None:
        """The bound on relative errors; None where there are too few validation samples."""
        try:
            bands = None if self.operator.trust is None else self.operator.trust.bands
            return None if bands is None else bands.bound_relative(confidence)
        except ValueError:
            return None

    def curve(self, against: str, points: Sequence[tuple[float, Tensor]]) -> ErrorCurve:
        """A curve of the errors of samples, and how often the 90 % bound holds for them."""
        bound = self.bound(0.9)
        return ErrorCurve(
            against,
            tuple(at for at, _ in points),
            tuple(float(errors.quantile(0.5)) for _, errors in points),
            () if bound is None else tuple(float((e <= bound).double().mean()) for _, e in points),
            max((len(errors) for _, errors in points), default=0),
        )


def measure_shift(subject: Subject) -> ErrorCurve:
    """The error of inputs that are moved by part of a grid step; the truth moves with them."""
    against, grid = "shift in grid steps", subject.test.grid
    if set(grid.layouts) != {"periodic"}:
        return ErrorCurve(against, left_out="the grid is not periodic")
    if isinstance(subject.problem, OwnData) or "translations" not in subject.problem.symmetries:
        return ErrorCurve(against, left_out="it is not known that solutions move with their inputs")
    u, v = (one.double() for one in subject.test[:FEW])
    points = []
    for steps in SHIFTS:
        by = (steps,) * len(grid.shape)
        moved = Fields(translated(u, by).float(), translated(v, by), grid)
        points.append((steps, subject.errors(moved)))
    return subject.curve(against, points)


def measure_amplitude(subject: Subject) -> ErrorCurve:
    """The error of multiples of inputs, solved anew."""
    against, problem = "factor on the input", subject.problem
    if isinstance(problem, OwnData):
        return ErrorCurve(against, left_out=NO_SOLVER)
    if not problem.scales:
        why = f"a multiple of an input of {problem.name} is no other input"
        return ErrorCurve(against, left_out=why)
    points = []
    for factor in AMPLITUDES:
        fields = Fields(*solve_scaled(subject, factor), subject.test.grid)
        points.append((factor, subject.errors(fields)))
    return subject.curve(against, points)


def solve_scaled(subject: Subject, factor: float) -> tuple[Tensor, Tensor]:
    """The first test inputs, times `factor`, and their outputs by the solver."""
    problem, resolution = subject.problem, subject.config.resolution
    states = factor * draw_states(problem, resolution, subject.device)
    outputs = torch.cat([problem.solve(one) for one in states.split(1)])
    u, v = (problem.restrict(problem.observe(one), resolution) for one in (states, outputs))
    return u.float().cpu(), v.float().cpu()


def draw_states(
    problem: Problem, resolution: Any, device: torch.device, on: Problem | None = None
) -> Tensor:
    """The first states of the test set on the solver's grid for `resolution`.

    `on` is the problem whose solver's grid it is, where that has been coarsened.
    """
    samples = Samples.of(problem, "test", problem.resolution)
    here = on or problem
    grid = here.solver_grid(resolution)
    generators = [Generator().manual_seed(samples.sample_seed(i)) for i in range(FEW)]
    return torch.cat([here.sample_inputs(grid, 1, one) for one in generators]).to(device)


def measure_noise(subject: Subject) -> ErrorCurve:
    """The error where inputs are measured with noise; the truth is that of the clean ones."""
    u = subject.test.inputs
    rms = u.double().square().flatten(2).mean(2).sqrt().reshape(*u.shape[:2], *[1] * (u.ndim - 2))
    noise = torch.randn(u.shape, generator=Generator().manual_seed(0))
    points = []
    for level in NOISES:
        noisy = (u.cpu() + level * rms.cpu() * noise).float()
        points.append((level, subject.errors(subject.test, noisy)))
    return subject.curve("noise over the input's size", points)


def measure_resolution(subject: Subject) -> ErrorCurve:
    """The error on coarser and finer grids, of the same functions."""
    against, config, problem = "points per axis", subject.config, subject.problem
    is_own = isinstance(problem, OwnData)
    sizes = [round(share * config.resolution) for share in RESOLUTIONS if not is_own or share <= 1]
    if subject.test.mask is not None:
        return ErrorCurve(against, left_out="fields with a mask are not resampled")
    finest = subject.test[:FEW] if is_own else load_predicted(
        config, subject.operator, subject.split, FEW, subject.device, max(sizes)
    )  # fmt: skip
    points = []
    for size in sizes:
        try:
            points.append((float(size), subject.errors(on_grid(finest, size))))
        except ValueError:  # a network that takes its own grid alone
            continue
    return subject.curve(against, points)


def measure_spectrum(subject: Subject) -> SpectrumErrors:
    """The error by bands of wavenumbers."""
    found, layout = {}, subject.test.grid.layout
    for split, fields in subject.splits.items():
        prediction = subject.where_it_counts(subject.predictions[split].double(), fields)
        found[split] = tuple(error_by_band(prediction, fields.outputs, layout))
    return SpectrumErrors(found)


def measure_calibration(subject: Subject) -> Calibration:
    """How often bands hold in and out of distribution."""
    trust, operator = subject.operator.trust, subject.operator
    if trust is None:
        return Calibration(left_out="bands were not calibrated")
    n, found, bounds = len(trust.bands), [], {}
    for confidence in CONFIDENCES:
        bound = subject.bound(confidence)
        if bound is None:  # too few validation samples
            continue
        bounds[f"{confidence:g}"] = bound
        for split, fields in subject.splits.items():
            value = subject.predictions[split]
            spread = relative_spread(operator, fields.inputs, trust.bands.scale)
            band = trust.bound(value, confidence, operator.grid.layout, spread)
            counts = fields.counts(subject.problem.mask)
            error = value - fields.outputs.cpu()
            counts = None if counts is None else counts.cpu().expand_as(error)
            relative = sample_errors(value, fields, operator.error_scaling, subject.problem.mask)
            all_points = coverage(error, band.half_width_everywhere, counts)
            found.append(
                Coverage(
                    split,
                    confidence,
                    len(value),
                    _share(relative["relative_l1"]["physical"].cpu() <= band.relative_error),
                    _share(all_points == 1),
                    float(coverage(error, band.half_width, counts).mean()),
                    likely_coverage(n, confidence, len(value), CERTAIN),
                )
            )
    if not found:
        why = f"{n} validation samples are too few for confidence {CONFIDENCES[0]:g}"
        return Calibration(n, left_out=why)
    return Calibration(n, bounds, tuple(found))


def _share(held: Tensor) -> float:
    return float(held.double().mean())


def measure_detection(subject: Subject) -> Detection:
    """Whether the scores of inputs out of distribution are higher."""
    trust, operator = subject.operator.trust, subject.operator
    if trust is None:
        return Detection(left_out="the training's inputs were not kept")
    found = {}
    for split, fields in subject.splits.items():
        spread = relative_spread(operator, fields.inputs, trust.bands.scale)
        u = fields.inputs.cpu()
        found[split] = trust.inputs.distances_of(u, operator.grid.layout, spread)
    return detect(trust.inputs, found, subject.split)


def detect(
    known: KnownInputs, distances: Mapping[str, Mapping[str, Tensor]], split: str
) -> Detection:
    """What distances of inputs tell, by split: those of `split`, and of `ood` where there are."""
    scores = {name: known.scores(one) for name, one in distances.items()}
    kept = {name: tuple(one.tolist()) for name, one in scores.items()}
    inside = detection_rate(scores[split])
    if "ood" not in distances:
        why = "there is no set out of distribution"
        return Detection(alarms_inside=inside, scores=kept, left_out=why)
    here, there = distances[split], distances["ood"]
    return Detection(
        auroc(known.combine(here), known.combine(there)),
        {kind: auroc(here[kind], there[kind]) for kind in here},
        inside,
        detection_rate(scores["ood"]),
        kept,
    )


def measure_spread(subject: Subject) -> Spread:
    """Whether inputs on which members disagree are those on which their mean is wrong."""
    if not isinstance(subject.operator.network, Ensemble):
        return Spread(left_out="one network has no spread; train with --members 5")
    correlation, over_error = {}, {}
    for split, fields in subject.splits.items():
        spread = subject.operator.spread(fields.inputs).double()
        truth = fields.outputs.double().cpu()
        error = subject.where_it_counts(subject.predictions[split].double(), fields) - truth
        sizes = [one.flatten(1).square().mean(1).sqrt() for one in (spread, error)]
        correlation[split] = rank_correlation(*sizes)
        over_error[split] = float((sizes[0] / sizes[1]).quantile(0.5))
    return Spread(correlation, over_error)


def measure_break_even(subject: Subject) -> BreakEven:
    """The network against the solver coarsened to the network's error, one sample at a time."""
    problem, operator, resolution = subject.problem, subject.operator, subject.config.resolution
    if isinstance(problem, OwnData):
        return BreakEven(left_out=NO_SOLVER)
    if subject.config.times:
        words = "a run on trajectories is compared with the solver by cno evaluate RUN --rollout"
        return BreakEven(left_out=words)
    if problem.coarsened(0.5) is None:
        return BreakEven(left_out=f"the solver of {problem.name} has no coarser form")
    few = subject.test[:FEW]
    error, v = float(subject.errors(few).quantile(0.5)), few.outputs
    one = few.inputs[:1].to(subject.device)
    with torch.inference_mode():
        network = median_seconds(lambda: operator(one), subject.device, 5)
    solver = time_solver(subject, problem, resolution)
    seconds, share, coarse_error = solver, 1.0, 0.0
    for smaller in COARSER[1:]:
        coarse = problem.coarsened(smaller)
        # A solver that stays as it is gets a coarser grid.
        points = max(4, round(smaller * resolution)) if coarse is problem else resolution
        try:
            found = solve_test_coarsely(subject, coarse, points)
        except ValueError:  # a grid that does not hold the inputs, or steps that are unstable
            continue
        its_error = float(relative_l1(found, v.double().cpu()).quantile(0.5))
        if its_error <= error:
            taken = time_solver(subject, coarse, points)
            if taken < seconds:
                seconds, share, coarse_error = taken, smaller, its_error
    counts = problem.samples
    known = subject.config.train.samples or counts["train"]
    data = (known + counts["val"]) * solver
    paid = data + (subject.training_seconds or 0.0)
    return BreakEven(
        error,
        network,
        solver,
        seconds,
        share,
        coarse_error,
        data,
        subject.training_seconds,
        paid / (seconds - network) if seconds > network else None,
        subject.device.type,
    )


def time_solver(subject: Subject, problem: Any, resolution: int) -> float:
    """Seconds of one sample by the solver for a grid of `resolution`."""
    state = draw_states(subject.problem, resolution, subject.device, problem)[:1]
    return median_seconds(lambda: problem.solve(state), subject.device, 3)


def solve_test_coarsely(subject: Subject, coarse: Any, points: int) -> Tensor:
    """The first test outputs by a coarsened solver, resampled to the grid of the data."""
    states = draw_states(subject.problem, points, subject.device, coarse)
    outputs = torch.cat([coarse.solve(one) for one in states.split(1)])
    there = coarse.restrict(coarse.observe(outputs), points)
    return resample(there, subject.test.grid.shape, subject.test.grid.layout).cpu()


SECTIONS: dict[str, Callable[[Subject], Any]] = {
    "shift": measure_shift,
    "amplitude": measure_amplitude,
    "noise": measure_noise,
    "resolution": measure_resolution,
    "spectrum": measure_spectrum,
    "calibration": measure_calibration,
    "detection": measure_detection,
    "spread": measure_spread,
    "break_even": measure_break_even,
}


def measure_page(subject: Subject) -> TrustPage:
    """All sections, in their order."""
    start = time.perf_counter()
    page = TrustPage(**{name: measure(subject) for name, measure in SECTIONS.items()})
    return replace(page, seconds=time.perf_counter() - start)


def describe_page(page: TrustPage) -> dict[str, list[str]]:
    """What each section found, in sentences, by title."""
    curves = [line for curve in page.curves for line in _describe_curve(curve)]
    return {
        "Errors": curves,
        "Spectrum": _describe_spectrum(page.spectrum),
        "Bands": _describe_calibration(page.calibration),
        "Inputs out of distribution": _describe_detection(page.detection),
        "Spread": _describe_spread(page.spread),
        "Break-even": _describe_break_even(page.break_even),
    }


def _describe_curve(curve: ErrorCurve) -> list[str]:
    if curve.left_out:
        return [f"Error against {curve.against}: left out, {curve.left_out}."]
    pairs = zip(curve.at, curve.errors, strict=True)
    said = ", ".join(f"{percent(error)} at {at:g}" for at, error in pairs)
    return [f"Error against {curve.against} ({curve.samples} samples): {said}."]


def _describe_spectrum(spectrum: SpectrumErrors) -> list[str]:
    return [
        f"{split}: "
        + ", ".join(
            f"{percent(band.relative) if band.relative < NO_TRUTH else 'no truth'} at |k| "
            + (f"{band.low}" if band.high - band.low == 1 else f"{band.low} to {band.high - 1}")
            for band in bands
            if band.share > 0.01
        )
        + " (bands with 1 % of the error or more)."
        for split, bands in spectrum.bands.items()
    ]


def _describe_calibration(found: Calibration) -> list[str]:
    if found.left_out:
        return [f"Left out: {found.left_out}."]
    bounds = ", ".join(f"{percent(e)} with confidence {c}" for c, e in found.bounds.items())
    said = [f"By {found.samples} validation samples, relative errors are at most {bounds}."]
    for one in found.coverages:
        if one.confidence != 0.9:
            continue
        low, high = one.likely
        promise = (
            "nothing is promised there, for these inputs are drawn otherwise."
            if one.split == "ood"
            else f"{percent(low)} to {percent(high)} are likely where samples are drawn alike."
        )
        said.append(
            f"On {one.split} ({one.samples} samples) the 90 % bound holds for "
            f"{percent(one.relative)}, the 90 % band at all points for {percent(one.everywhere)}, "
            f"and at {percent(one.pointwise)} of the points; {promise}"
        )
    return [*said, judge_bands(found)]


def judge_bands(found: Calibration) -> str:
    """Whether bands hold, in a sentence: the part of the verdict that is about them."""
    return {
        None: "It was not measured whether error bands hold.",
        True: "The bands hold on samples of its own kind.",
        False: "The bands do NOT hold on samples of its own kind.",
    }[found.holds]


def _describe_detection(found: Detection) -> list[str]:
    said = []
    if found.alarms_inside is not None:
        said.append(
            f"A score of 0.95 or more: {percent(found.alarms_inside)} of inputs of the training's "
            "kind, where 5 % are expected."
        )
    if found.left_out or found.auroc is None or found.alarms_outside is None:
        return [*said, f"Detection: left out, {found.left_out}."]
    kinds = ", ".join(f"{kind} {value:.3f}" for kind, value in found.by_kind.items())
    return [
        *said,
        f"Out of distribution: {percent(found.alarms_outside)}. AUROC {found.auroc:.3f} ({kinds}).",
    ]


def _describe_spread(found: Spread) -> list[str]:
    if found.left_out:
        return [f"Left out: {found.left_out}."]
    return [
        f"On {split} the rank correlation of spread and error is {value:.2f}, and the spread is "
        f"{percent(found.over_error[split])} of the error."
        for split, value in found.correlation.items()
    ]


def _describe_break_even(found: BreakEven) -> list[str]:
    if found.left_out or found.solver_seconds is None:
        return [f"Left out: {found.left_out}."]
    assert found.network_seconds is not None
    assert found.coarse_seconds is not None
    said = [
        f"One sample on {found.device}: network {milliseconds(found.network_seconds)}, solver "
        f"{milliseconds(found.solver_seconds)}, solver coarsened to the network's error of "
        f"{percent(found.error or 0.0)}: {milliseconds(found.coarse_seconds)} "
        f"({found.coarse_share:g} of its points or steps)."
    ]
    trained = (
        "training is not counted, its time was not kept"
        if found.training_seconds is None
        else f"training took {found.training_seconds:.3g} s"
    )
    if found.solves is None:
        return [*said, f"It never pays for its data in time: the solver is faster ({trained})."]
    return [*said, f"It has paid for its data after {found.solves:,.0f} solves ({trained})."]


def percent(share: float) -> str:
    """A fraction in percent."""
    return f"{100 * share:.3g} %"


def milliseconds(seconds: float) -> str:
    """A time."""
    return f"{1e3 * seconds:.3g} ms"
