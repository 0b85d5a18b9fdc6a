"""The files of a run: metrics.jsonl, model.safetensors and checkpoint/."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from torchcno.training.checkpoint import load_tensors, save_tensors
from torchcno.training.state import Progress


@dataclass(frozen=True)
class RunFolder:
    """A folder in which one run keeps its rows, its best weights and its state."""

    path: Path

    @property
    def metrics(self) -> Path:
        """A row of JSON an epoch."""
        return self.path / "metrics.jsonl"

    @property
    def weights(self) -> Path:
        """The best weights on validation."""
        return self.path / "model.safetensors"

    @property
    def checkpoint(self) -> Path:
        """Everything that a run needs to go on."""
        return self.path / "checkpoint" / "state.safetensors"

    @property
    def has_begun(self) -> bool:
        """Whether the folder holds a run; a configuration alone is one that never began.

        One whose data could not be made, say.
        """
        names = (self.metrics.name, "checkpoint", "result.json")
        return any((self.path / name).exists() for name in names)

    def claim(self) -> None:
        """Start a new run here; refuse where there is one."""
        if self.has_begun:
            raise ValueError(
                f"{self.path} holds a run already; go on with it (`cno resume {self.path}`) "
                "or choose another folder."
            )
        self.refuse_weights()
        self.path.mkdir(parents=True, exist_ok=True)

    def refuse_weights(self) -> None:
        """Refuse to write over weights without a run: those of `cno export`, say."""
        if self.weights.exists():
            raise ValueError(
                f"{self.weights} is there, without the run that made it; choose another folder."
            )

    def append(self, row: Mapping[str, Any]) -> int:
        """Add a row to the metrics; the bytes they have now."""
        with self.metrics.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return self.metrics.stat().st_size

    def rows(self) -> list[dict[str, Any]]:
        """The metrics so far, but for a row that is being written."""
        lines = self.metrics.read_text().splitlines(keepends=True) if self.metrics.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def save(
        self, state: Mapping[str, Tensor], note: Mapping[str, Any], best: Mapping[str, Tensor]
    ) -> None:
        """Put the state of the run in the checkpoint, and the best weights so far beside it."""
        if self.metrics.exists():
            # Rows that the checkpoint counts have to be on the disk before it is.
            with self.metrics.open("rb") as file:
                os.fsync(file.fileno())
        save_tensors(self.checkpoint, state, note)
        self.save_best(best)

    def save_best(self, best: Mapping[str, Tensor]) -> None:
        """Put the best weights in their file, where there are any yet."""
        if best:
            save_tensors(self.weights, best)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """State and note of the last `save`; None where there was none.

        Weights without a checkpoint are refused: to begin again would be to write over them.
        """
        self.refuse_lone_weights()
        if not self.checkpoint.exists():
            return None
        state, note = load_tensors(self.checkpoint)
        lacking = _lacking(state, note)
        if lacking:
            raise ValueError(
                f"{self.checkpoint} holds no state of a run: it lacks {', '.join(lacking)}; bring "
                "back the file that was saved there, or train again in another folder."
            )
        unknown = note["progress"].keys() - {field.name for field in fields(Progress)}
        if unknown:
            raise ValueError(
                f"{self.checkpoint} is of another version of torchcno: its progress has "
                f"{', '.join(sorted(unknown))}, which this one does not know; install that version "
                "to go on, or train again in another folder."
            )
        return state, note

    def refuse_lone_weights(self) -> None:
        """Refuse to go on where there are weights and no checkpoint."""
        if self.weights.exists() and not self.checkpoint.exists():
            raise ValueError(
                f"{self.weights} is there, and no {self.checkpoint} to go on from: it was removed, "
                "or the run diverged before the first one. Use the weights as they are, bring the "
                f"checkpoint back, or move {self.path} away and start again, with a smaller "
                "learning rate where it diverged."
            )

    def rewind(self, metrics_bytes: int, best: Mapping[str, Tensor]) -> None:
        """Forget what a killed run wrote after the checkpoint that is now gone on from."""
        size = self.metrics.stat().st_size if self.metrics.exists() else 0
        if size < metrics_bytes:
            raise ValueError(
                f"{self.metrics} has {size} bytes, of {metrics_bytes} that the checkpoint counts: "
                "rows are lost. Put the file back, or start again in another folder."
            )
        if size:
            os.truncate(self.metrics, metrics_bytes)
        for path in (self.checkpoint, self.weights):
            for left in path.parent.glob(f"{path.name}.*.part"):  # by a kill in mid-write
                left.unlink(missing_ok=True)
        if best:
            self.save_best(best)  # in place of the others: a full disk leaves those
        else:
            self.weights.unlink(missing_ok=True)


def _lacking(state: Mapping[str, Tensor], note: Any) -> list[str]:
    """What every checkpoint has, and this file, another program's say, has not."""
    noted = note if isinstance(note, Mapping) else {}
    notes = [key for key in ("protocol", "progress") if not isinstance(noted.get(key), Mapping)]
    groups = {name.partition("/")[0] for name in state}
    return notes + [group for group in ("model", "loss", "random") if group not in groups]
