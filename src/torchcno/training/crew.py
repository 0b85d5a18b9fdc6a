"""Networks that are trained together: in one graph, or taking turns."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NoReturn, TypeVar

import torch
from torch import Tensor

from torchcno.operators import side_by_side
from torchcno.training.epochs import Diverged, Epoch, TrainingRun
from torchcno.training.hardware import is_captured
from torchcno.training.interruption import Interrupted
from torchcno.training.step import graphed

T = TypeVar("T")


class Crew:
    """Runs that go on together: in one graph, or taking turns."""

    def __init__(
        self,
        runs: Sequence[TrainingRun],
        is_shared: bool,
        begin_again: Callable[[TrainingRun, Diverged], TrainingRun | None],
    ) -> None:
        self.runs = list(runs)
        self.is_shared = is_shared  # whether the steps of several runs are one graph
        self.begin_again = begin_again  # what takes the place of a run that diverged
        self.diverged: dict[int, Diverged] = {}  # by the number of the run
        self.group: list[TrainingRun] = []  # the runs whose turn it is
        first = self.runs[0]
        self.is_alone = first.fabric.world_size == 1
        self.advance: Callable[[], object] = self._advance
        self.judge: Callable[[], list[Tensor]] = self._judge
        if is_captured(first.recipe, first.fabric.device, first.fabric.world_size):
            self.advance = graphed(self._advance, self._changed, self._key)
            self.judge = graphed(self._judge, state=self._key, warm_up=1)

    @property
    def waiting(self) -> list[TrainingRun]:
        """The runs that are not over."""
        return [run for run in self.runs if run.number not in self.diverged and not run.finished]

    def go(
        self, stopping: Callable[[], bool], on_epoch: Callable[[int, Epoch], None] | None
    ) -> None:
        """Train to the end, an epoch at a time; the runs that are furthest behind come first."""
        fabric = self.runs[0].fabric
        while waiting := self.waiting:
            behind = min(run.position for run in waiting)
            group = [run for run in waiting if run.position == behind]
            self.group = group if self.is_shared else group[:1]
            self.train_epoch(stopping)
            for run in self.group:
                run.draw_ahead()
            for run, epoch in self.close_epoch():
                if on_epoch is not None and fabric.is_global_zero:
                    on_epoch(run.number, epoch)
            # Processes have to agree on it, or those that go on would wait for the others.
            if bool(self.waiting) and fabric.broadcast(stopping()):
                self.interrupt()
            for run in self.group:
                if fabric.broadcast(run.finished or run.due):
                    self.attempt(run, run.save)

    def train_epoch(self, stopping: Callable[[], bool]) -> None:
        """The steps of the current epoch that are still to do."""
        for run in self.group:
            run.begin_epoch(len(self.group))
        while self.group and self.group[0].position[1] < self.group[0].steps_per_epoch:
            for run in self.group:
                run.train.load(run.state.progress.batch)
            self.advance()
            for run in self.group:
                run.state.progress.batch += 1
            if self.is_alone and stopping():
                self.interrupt()
            for run in self.group if self.is_alone else ():
                if run.due:
                    self.attempt(run, run.save)

    def close_epoch(self) -> list[tuple[TrainingRun, Epoch]]:
        """Judge the epoch of every run of the group, and note it down."""
        losses = {run.number: self.attempt(run, run.mean_loss) for run in self.group}
        errors: dict[int, float] = {}
        if self.group and self.group[0].is_to_be_judged:
            judged = torch.stack(self.judge()).tolist()
            errors = {run.number: error for run, error in zip(self.group, judged, strict=True)}
        closed = []
        for run in self.group:
            loss = losses[run.number]
            assert loss is not None
            epoch = self.attempt(run, partial(run.close_epoch, loss, errors.get(run.number)))
            if epoch is not None:
                closed.append((run, epoch))
        return closed

    def attempt(self, run: TrainingRun, work: Callable[[], T]) -> T | None:
        """What comes of `work` on a run; None where it diverged, and has left the group."""
        try:
            return work()
        except Diverged as error:
            self.group = [other for other in self.group if other is not run]
            again = self.begin_again(run, error)
            if again is None:
                self.diverged[run.number] = error
            else:
                self.runs[run.number] = again
            return None

    def interrupt(self) -> NoReturn:
        """Save all that is not over, and say how to go on."""
        first = self.waiting[0]
        epoch, epochs = first.position[0] + 1, first.recipe.epochs
        for run in self.waiting:
            self.attempt(run, run.save)
        commands = dict.fromkeys(f"cno resume {run.folder.run}" for run in self.runs)
        raise Interrupted(
            f"stopped in epoch {epoch} of {epochs}; everything is saved. "
            f"Go on with the same call and resume=True; with a run of `cno train` by: "
            f"{', '.join(commands)}"
        )

    def _advance(self) -> None:
        side_by_side([run.step for run in self.group if run.step is not None])

    def _judge(self) -> list[Tensor]:
        return side_by_side([run.judge for run in self.group])

    def _changed(self) -> Iterator[Tensor]:
        return chain.from_iterable(run.changed_tensors() for run in self.group)

    def _key(self) -> Hashable:
        """What a graph is for: these runs, in what Python decides about them."""
        return tuple((run.number, run.recipe.precision, run.modes) for run in self.group)
