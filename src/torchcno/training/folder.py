"""The files of a training: metrics.jsonl, model.safetensors and checkpoint/."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from torchcno.disk import (
    append_row,
    explained,
    flush_file,
    make_folder,
    make_own_folder,
    read_bytes,
    read_rows,
    refuse_link,
    sweep,
    unseal_rows,
    write_atomically,
)
from torchcno.training.checkpoint import load_tensors, save_tensors
from torchcno.training.state import Progress


class TrainingFolder:
    """A folder in which `fit` keeps its rows, its best weights and its state."""

    def __init__(self, path: str | Path, run: str | Path | None = None) -> None:
        self.path = Path(path)
        self.run = self.path if run is None else Path(run)  # the run of which it is all or a part
        self.metrics = self.path / "metrics.jsonl"  # a row of JSON per epoch
        self.weights = self.path / "model.safetensors"  # the best ones on validation
        self.checkpoint = self.path / "checkpoint" / "state.safetensors"  # all to go on from
        self.traces: tuple[Path, ...] = (self.metrics, self.checkpoint.parent)

    @property
    def has_begun(self) -> bool:
        """Whether a training began here. Weights alone are those of an export, say."""
        return any(trace.exists() for trace in self.traces)

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a state to go on from."""
        return self.checkpoint.exists()

    def claim(self) -> None:
        """Start a new training here; refuse to write over another."""
        if self.has_begun:
            raise ValueError(
                f"{self.path} holds a run already; go on with it (`cno resume {self.run}`, or "
                "resume=True) or choose another folder."
            )
        if self.weights.exists():
            raise ValueError(
                f"{self.weights} is there, without the run that made it; choose another folder."
            )
        make_folder(self.path)

    def append(self, row: Mapping[str, Any]) -> int:
        """Add a row to the metrics; the bytes they have now."""
        return append_row(self.metrics, row)

    def rows(self) -> list[dict[str, Any]]:
        """The metrics so far, but for a row that is being written."""
        return read_rows(self.metrics)

    def save(
        self, state: Mapping[str, Tensor], note: Mapping[str, Any], best: Mapping[str, Tensor]
    ) -> None:
        """Put the state of the run in the checkpoint, and the best weights so far beside it."""
        if self.metrics.exists():
            flush_file(self.metrics)  # rows that the checkpoint counts are on the disk before it
        make_own_folder(self.checkpoint.parent)
        save_tensors(self.checkpoint, state, note)
        if best:
            save_tensors(self.weights, best)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """State and note of the last `save`; None where there was none."""
        self.refuse_lone_weights()
        if not self.checkpoint.exists():
            return None
        state, note = load_tensors(self.checkpoint)
        noted = note if isinstance(note, dict) else {}  # another program's may be anything
        lacking = [key for key in ("protocol", "progress") if not isinstance(noted.get(key), dict)]
        groups = {name.partition("/")[0] for name in state}
        lacking += [group for group in ("model", "loss", "random") if group not in groups]
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
        """Refuse weights without a checkpoint: to begin again would be to write over them."""
        if self.weights.exists() and not self.has_checkpoint:
            raise ValueError(
                f"{self.weights} is there, and no {self.checkpoint} to go on from: it was removed, "
                "or the run diverged before the first one. Use the weights as they are, bring the "
                f"checkpoint back, or move {self.path} away and start again, with a smaller "
                "learning rate where it diverged."
            )

    def rewind(self, metrics_bytes: int, best: Mapping[str, Tensor]) -> None:
        """Forget what a killed run wrote after the checkpoint that is now gone on from."""
        make_folder(self.path)  # of a run that never began
        refuse_link(self.metrics)
        content = read_bytes(self.metrics) if self.metrics.exists() else b""
        size = len(content)
        if size < metrics_bytes:
            raise ValueError(
                f"{self.metrics} has {size} bytes, of {metrics_bytes} that the checkpoint counts: "
                "rows are lost. Put the file back, or start again in another folder."
            )
        unseal_rows(self.metrics, content[:metrics_bytes])  # which refuses damaged ones
        if size > metrics_bytes:
            write_atomically(self.metrics, content[:metrics_bytes])
        for path in (self.metrics, self.checkpoint, self.weights):
            sweep(path)
        if best:
            save_tensors(self.weights, best)  # in place of the others: a full disk leaves those
        else:
            with explained(self.weights, "removed"):
                self.weights.unlink(missing_ok=True)
