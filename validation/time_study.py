"""Which training makes rollouts last: one step, all lead times, push-forward, or the direct map?

    python validation/time_study.py --budget 3000             3000 seconds of runs, on the GPU
    python validation/time_study.py --small --device cpu      tiny networks on 16 points, to try it
    python validation/time_study.py --table                   the table of what ran
    python validation/time_study.py --picture FILE.png        and the picture

Trains CNO, FNO and U-Net on trajectories of navier-stokes (both components, snapshots every 0.1 to
t = 1, 750 trajectories) and of burgers, from several seeds, in equally many steps of one batch.
Then rolls each out to t = 2, twice the horizon of training. Every finished run is a line of `--out`
(configuration, seconds, errors against time, device); a run that is there is not made again, and
one that was interrupted goes on from its checkpoint. Seeds come one after the other, and of a seed
the longest runs first. A run that would not end within the budget is left out.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcno import PROBLEMS, RunConfig, load, train_run
from torchcno.arithmetic import arithmetic
from torchcno.data.dataset import load_trajectories
from torchcno.data.trajectories import Trajectories
from torchcno.disk import write_atomically
from torchcno.evaluation.rollout import (
    RolloutErrors,
    error_at,
    measure_rollout,
    persist,
    roll_out_linearly,
)
from torchcno.metrics import relative_l1
from torchcno.models import count_parameters
from torchcno.problems import Problem
from torchcno.problems.evolution import Evolution
from torchcno.runs.choose import choose_conditioning, choose_network, count_windows
from torchcno.runs.presets import training_row
from torchcno.runs.rollout import EvolutionOperator
from torchcno.runs.rollout_errors import solve_at_cost, timed
from torchcno.training import Diverged, Hardware, Recipe
from torchcno.training.hardware import device_name, pick_device

MODELS = ("cno", "fno", "unet")
LABELS = {"cno": "CNO", "fno": "FNO", "unet": "UNet"}
TIMES = tuple(round(0.1 * i, 10) for i in range(11))  # of training
LONGER = tuple(round(0.1 * i, 10) for i in range(21))  # of evaluation

# How each training differs from the common recipe.
WAYS: dict[str, dict[str, Any]] = {
    "one-step": {},
    "all-to-all": {"lead_times": "all-to-all"},
    "push-forward": {"unroll": 2, "unroll_gradients": "last"},
    "direct": {"lead_times": "direct"},
}
HUGE = 1e12  # the values of a rollout that is no longer finite
# Forward and backward passes of a step, for guesses of its time: 1 forward, 2 backward.
PASSES = {"one-step": 3, "all-to-all": 3, "push-forward": 6, "direct": 3}


@dataclass(frozen=True)
class Study:
    """What is trained on one problem."""

    problem: Evolution
    resolution: int
    augmentation: str  # a symmetry of the problem
    samples: int  # training trajectories
    small: bool = False


def studies(small: bool) -> dict[str, Study]:
    """The problems, or tiny ones that a CPU solves in seconds."""
    navier_stokes, burgers = PROBLEMS["navier-stokes"], PROBLEMS.get("burgers")
    flow: Any = navier_stokes(components="uv", **({"N": 32} if small else {}))  # type: ignore[call-arg]
    found = {"navier-stokes": Study(flow, 16 if small else 64, "odd-reflections", 750, small)}
    if burgers is not None:
        waves: Any = burgers(**({"N": 64, "nu": 5e-3} if small else {}))  # type: ignore[call-arg]
        found["burgers"] = Study(waves, 32 if small else 256, "translations", 512, small)
    if small:
        found = {name: replace(one, samples=12) for name, one in found.items()}
    return found


@dataclass(frozen=True)
class Run:
    """One training."""

    problem: str
    model: str
    way: str
    seed: int
    steps: int  # of one batch
    small: bool

    @property
    def key(self) -> str:
        """What tells it from others."""
        return f"{self.problem}-{self.model}-{self.way}-{self.steps}-{self.seed}"


def configure(run: Run, study: Study, data: Path | None, device: str) -> RunConfig:
    """Everything that decides a run: the common recipe, and what its way changes."""
    own = training_row(run.model, "navier-stokes", "best")
    kept = ("optimizer", "learning_rate", "weight_decay")
    batch = 4 if run.small else 32
    recipe = Recipe(
        **{name: own[name] for name in kept if name in own},
        batch_size=batch,
        samples=study.samples,
        normalization="symmetric",
        schedule="cosine",
        warmup=0.01,
        augmentation=study.augmentation,
        patience=None,
        **WAYS[run.way],
    )
    per_epoch = count_windows(study.samples, TIMES, recipe) // batch
    epochs = max(1, round(run.steps / per_epoch))
    recipe = replace(
        recipe,
        epochs=epochs,
        evaluate_every=max(1, epochs // 20),
        averaging_half_life=max(0.1, epochs / 100),
    )
    told = choose_conditioning(TIMES, recipe)
    problem, states = study.problem, study.samples * len(TIMES)
    grid, size = problem.grid(study.resolution), {}
    if run.small:
        size = {"width": 4, "levels": 1, "skip_blocks": 1, "neck_blocks": 1, "lift_width": 4,
                "modes": 4, "layers": 2, "channels": 4}  # fmt: skip
    if problem.name == "navier-stokes" and not run.small:  # the sizes of the paper
        resolved = RunConfig.resolve(problem, run.model, resolution=study.resolution)
        architecture = replace(resolved.architecture, **told)
    else:
        known = choose_network(run.model, states, grid, problem.channels)
        names = {field.name for field in fields(known)}
        fits = {name: value for name, value in size.items() if name in names}
        architecture = choose_network(run.model, states, grid, problem.channels, **fits, **told)
    return RunConfig(
        problem=problem,
        model=run.model,
        architecture=architecture,
        train=recipe,
        seed=run.seed,
        resolution=study.resolution,
        data=data,
        hardware=Hardware(accelerator=device),
        times=TIMES,
    )


def plan(
    problems: Iterable[str],
    models: Iterable[str],
    ways: Iterable[str],
    seeds: int,
    steps: int,
    small: bool,
) -> list[Run]:
    """All runs: seed by seed, and of a seed those with the most passes first."""
    runs = [
        Run(problem, model, way, seed, steps, small)
        for seed in range(seeds)
        for problem in problems
        for model in models
        for way in ways
    ]
    order = list(problems)
    return sorted(runs, key=lambda r: (r.seed, order.index(r.problem), -PASSES[r.way]))


def evaluate(
    operator: EvolutionOperator, truth: Trajectories, way: str, problem: Problem
) -> RolloutErrors:
    """The errors of the rollout to twice the horizon."""
    made, seconds = timed(
        lambda: roll_out(operator, truth, way), next(operator.parameters()).device
    )
    return measure_rollout(way, made, truth, problem.invariants, seconds)


def roll_out(operator: EvolutionOperator, truth: Trajectories, way: str) -> Tensor:
    """The rollout; from where it is no longer finite, a huge number, so that errors are huge."""
    states: list[Tensor] = []
    try:
        for _, state in operator.rollout_steps(truth.at(0), truth.times, way=way):
            states.append(state)
    except ValueError as error:
        if "NaN or infinite" not in str(error):
            raise
    missing = len(truth.times) - len(states)
    return torch.stack([*states, *[torch.full_like(states[0], HUGE)] * missing], dim=1)


def published_error_at_one(
    operator: EvolutionOperator, truth: Trajectories, scale: Tensor
) -> float:
    """Table 1's error of the first channel at t = 1: the median relative L1 error, scaled, in %."""
    low, high = scale
    made = roll_out(operator, truth.select_times([0, 10]), "auto")[:, -1, :1]
    last = truth.at(list(truth.times.tolist()).index(1.0))[:, :1]
    return 100 * float(
        relative_l1((made - low) / (high - low), (last - low) / (high - low)).median()
    )


def shorten(errors: RolloutErrors) -> dict[str, Any]:
    """What a line keeps: all but the spectra of most times."""
    said = errors.as_dict()
    said["spectra"] = {
        f"{t:g}": said["spectra"][j] for j, t in enumerate(errors.times) if t in (0.0, 1.0, 2.0)
    }
    return said


def append(path: Path, line: dict[str, Any]) -> None:
    """One more line, whole or not at all."""
    before = path.read_bytes() if path.exists() else b""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, before + json.dumps(line).encode() + b"\n")


def read(path: Path) -> list[dict[str, Any]]:
    """The lines so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def quiet_rollouts() -> None:
    """Rollouts beyond the horizon leave the training range: the study measures how far."""
    import warnings

    from torchcno import OutOfRange

    warnings.simplefilter("ignore", OutOfRange)


def train_one(run: Run, study: Study, arguments: argparse.Namespace, truth: Trajectories) -> None:
    """Train, roll out, and write the line."""
    config = configure(run, study, arguments.data, arguments.device)
    folder = arguments.folder / run.key
    start = time.perf_counter()
    result = train_run(config, folder, splits=("val",), mode="either")
    trained = time.perf_counter() - start
    device = pick_device(arguments.device)
    operator = load(folder, device)
    assert isinstance(operator, EvolutionOperator)
    last = load_trajectories(
        study.problem, "train", TIMES, samples=study.samples, resolution=study.resolution,
        folder=arguments.data, device=device,
    ).at(-1)[:, 0]  # fmt: skip
    with arithmetic(config.train.precision):
        ways = {"direct": ("auto",), "all-to-all": ("auto", "steps")}.get(run.way, ("auto",))
        seen = truth.select_times([0, 10, 20]) if run.way == "direct" else truth
        errors = {way: evaluate(operator, seen, way, study.problem) for way in ways}
        published = published_error_at_one(operator, truth, torch.stack([last.min(), last.max()]))
    steps = (count_windows(study.samples, TIMES, config.train) // config.train.batch_size) * (
        config.train.epochs
    )
    append(
        arguments.out,
        {
            **asdict(run),
            "key": run.key,
            "device": device_name(device),
            "parameters": count_parameters(operator.network).reals,
            "recipe": asdict(config.train),
            "steps_made": steps,
            "seconds": trained,
            "seconds_per_epoch": result["seconds_per_epoch"],
            "milliseconds_per_step": 1e3
            * result["seconds_per_epoch"]
            * config.train.epochs
            / steps,
            "best_epoch": result["best_epoch"],
            "best_validation_error": result["best_validation_error"],
            "published_error_percent": published,
            "rollouts": {way: shorten(one) for way, one in errors.items()},
        },
    )
    best = errors["auto"]
    print(
        f"{run.key}: {trained:.0f} s, L1 {100 * error_at(best, 1.0):.2f} % at t = 1, "
        f"{100 * error_at(best, 2.0):.2f} % at t = 2, correlated until {best.correlated_until:.2f}",
        flush=True,
    )


def measure_others(
    name: str, study: Study, arguments: argparse.Namespace, truth: Trajectories
) -> None:
    """Persistence, the linear map, and the solver that takes as long as a network: lines, once."""
    known = {line["key"] for line in read(arguments.out)}
    device, key = pick_device(arguments.device), f"{name}-others"
    if key in known:
        return
    train, val = (
        load_trajectories(
            study.problem, split, TIMES, resolution=study.resolution, folder=arguments.data,
            samples=study.samples if split == "train" else len(truth), device=device,
        )
        for split in ("train", "val")
    )  # fmt: skip
    networks = [
        one["rollouts"]["auto"]["seconds"] for one in read(arguments.out)
        if one.get("problem") == name and one.get("way") == "one-step"
    ]  # fmt: skip
    seconds = statistics.median(networks) if networks else 0.0
    label, solved, spent = solve_at_cost(
        study.problem, "test", truth, study.resolution, device, seconds
    )
    made = {"persistence": persist(truth), "linear map": roll_out_linearly(train, val, truth)}
    errors = [
        measure_rollout(other, states, truth, study.problem.invariants)
        for other, states in made.items()
    ]
    errors.append(measure_rollout(label, solved, truth, study.problem.invariants, spent))
    append(
        arguments.out,
        {
            "key": key,
            "problem": name,
            "device": device_name(device),
            "network_seconds": seconds,
            "others": [shorten(one) for one in errors],
        },
    )


def run_study(arguments: argparse.Namespace) -> None:
    """Train what the budget allows."""
    quiet_rollouts()
    begun = time.perf_counter()
    found = {n: s for n, s in studies(arguments.small).items() if n in arguments.problems}
    truths = {}
    for name, study in found.items():
        start = time.perf_counter()
        device, counts = pick_device(arguments.device), (8 if arguments.small else 128)
        for split, times, samples in (
            ("train", TIMES, study.samples), ("val", TIMES, None), ("test", LONGER, counts),
        ):  # fmt: skip
            made = load_trajectories(
                study.problem, split, times, samples=samples, resolution=study.resolution,
                folder=arguments.data, device=device,
            )  # fmt: skip
        truths[name] = made
        print(f"{name}: data in {time.perf_counter() - start:.0f} s", flush=True)
    per_epoch = {
        name: one.samples * (len(TIMES) - 1) // (4 if arguments.small else 32)
        for name, one in found.items()
    }
    runs = [
        run
        for name in found
        for run in plan(
            [name], arguments.models, arguments.ways, arguments.seeds,
            arguments.epochs * per_epoch[name], arguments.small,
        )
    ]  # fmt: skip
    runs.sort(key=lambda run: run.seed)
    for run in runs:
        done = read(arguments.out)
        if run.key in {line["key"] for line in done}:
            continue
        left = arguments.budget - (time.perf_counter() - begun)
        alike = [
            line["seconds"] / PASSES[line["way"]] * PASSES[run.way]
            for line in done
            if (line.get("problem"), line.get("model")) == (run.problem, run.model)
        ]
        if left <= 0 or (alike and statistics.median(alike) > left):
            print(f"{run.key}: left out, {left:.0f} s are left of the budget", flush=True)
            continue
        try:
            train_one(run, found[run.problem], arguments, truths[run.problem])
        except Diverged as error:
            print(f"{run.key}: {error}", flush=True)
    for name, study in found.items():
        measure_others(name, study, arguments, truths[name])


def make_table(lines: Sequence[dict[str, Any]]) -> str:
    """Means over seeds, a row per problem, model and training, as Markdown."""
    runs = [line for line in lines if "rollouts" in line]
    head = (
        "| problem | model | training | L1 at t = 1, % | L1 at t = 2, % | correlated until | "
        "ms per step | seeds |\n| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
    )
    rows = []
    for problem, model, way in dict.fromkeys((r["problem"], r["model"], r["way"]) for r in runs):
        same = [r for r in runs if (r["problem"], r["model"], r["way"]) == (problem, model, way)]
        rows.append(
            f"| {problem} | {LABELS[model]} | {way} | {_spread(same, 1.0)} | {_spread(same, 2.0)} "
            f"| {statistics.mean(r['rollouts']['auto']['correlated_until'] for r in same):.2f} | "
            f"{statistics.mean(r['milliseconds_per_step'] for r in same):.1f} | {len(same)} |"
        )
    for line in lines:
        for one in line.get("others", ()):
            rows.append(
                f"| {line['problem']} | {one['name']} | | {_at(one, 1.0):.3g} "
                f"| {_at(one, 2.0):.3g} | {one['correlated_until']:.2f} | | |"
            )
    return head + "\n".join(rows) + "\n"


def _at(rollout: dict[str, Any], t: float, metric: str = "relative_l1") -> float:
    """The error at a time, in percent."""
    times = rollout["times"]
    return 100 * rollout["metrics"][metric][min(range(len(times)), key=lambda j: abs(times[j] - t))]


def _spread(runs: Sequence[dict[str, Any]], t: float) -> str:
    """The mean over seeds, and the deviation where there are several."""
    values = [_at(run["rollouts"]["auto"], t) for run in runs]
    mean = f"{statistics.mean(values):.3g}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2g}"


def draw(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Error against time: a row per problem, a panel per model, a line per training."""
    from matplotlib.figure import Figure

    from torchcno.runs.pictures.drawing import COLOURS, INK, save_figure, styled, tidy

    runs = [line for line in lines if "rollouts" in line]
    problems, models = (list(dict.fromkeys(r[key] for r in runs)) for key in ("problem", "model"))
    others = {line["problem"]: line["others"] for line in lines if "others" in line}
    with styled:
        figure = Figure(figsize=(4 * len(models), 3 * len(problems)), layout="constrained")
        grid = figure.subplots(len(problems), len(models), squeeze=False, sharex=True)
        for row, problem in zip(grid, problems, strict=True):
            for axes, model in zip(row, models, strict=True):
                for way, colour in zip(WAYS, COLOURS, strict=False):
                    chosen = (problem, model, way)
                    same = [r for r in runs if (r["problem"], r["model"], r["way"]) == chosen]
                    draw_curves(axes, [r["rollouts"]["auto"] for r in same], way, colour)
                for other, line in zip(others.get(problem, ()), (":", "--", "-."), strict=False):
                    draw_curves(axes, [other], other["name"], INK, line)
                axes.axvline(TIMES[-1], color=INK, lw=0.8, ls=":")
                low = min(min(line.get_ydata()) for line in axes.lines[:-1])  # type: ignore[type-var]
                axes.set(yscale="log", ylim=(0.7 * low, 300), title=f"{problem}, {LABELS[model]}")
                tidy(axes, legend=False)
            row[0].set_ylabel("relative L1 error, %")
            lines = {line.get_label(): line for axes in row for line in axes.lines}
            named = [lines[way] for way in (*WAYS, *(o["name"] for o in others.get(problem, ())))
                     if way in lines]  # fmt: skip
            row[-1].legend(handles=named, loc="center left", bbox_to_anchor=(1, 0.5))
        for axes in grid[-1]:
            axes.set_xlabel("time")
    save_figure(figure, path)


def draw_curves(
    axes: Any, rollouts: Sequence[dict[str, Any]], name: str, colour: str, line: str = "-"
) -> None:
    """The mean over seeds, and the span between them."""
    if not rollouts:
        return
    times = rollouts[0]["times"][1:]
    curves = 100 * torch.tensor([one["metrics"]["relative_l1"][1:] for one in rollouts])
    mark = "o" if name == "direct" else ""
    axes.plot(times, curves.mean(0), color=colour, ls=line, label=name, marker=mark, ms=4)
    if len(rollouts) > 1:
        low, high = curves.min(0).values, curves.max(0).values
        axes.fill_between(times, low, high, color=colour, alpha=0.2, lw=0)


def main() -> None:
    """Run the study, or show what ran."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/time-study.jsonl"))
    parser.add_argument("--folder", type=Path, default=Path("runs/time-study"), help="of the runs")
    parser.add_argument("--data", type=Path, help="folder of data files")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--epochs", type=int, default=40, help="of one-step training; equal steps for all"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds, data included")
    parser.add_argument("--problems", nargs="+", default=["navier-stokes", "burgers"])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--small", action="store_true", help="tiny networks and grids, to try it")
    parser.add_argument("--table", action="store_true", help="print the table of --out, and stop")
    parser.add_argument("--picture", type=Path, help="draw --out to this file, and stop")
    arguments = parser.parse_args()
    if arguments.table:
        print(make_table(read(arguments.out)), end="")
    if arguments.picture:
        draw(read(arguments.out), arguments.picture)
    if not (arguments.table or arguments.picture):
        run_study(arguments)


if __name__ == "__main__":
    main()
