"""The rows of metrics.jsonl as curves for TensorBoard."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

from torchcno.disk import make_own_folder
from torchcno.training.epochs import Epoch


class EventFile:
    """A listener for the epochs of a run: a curve for every number of a row, over the epochs."""

    def __init__(self, folder: Path) -> None:
        """Draw into `folder`, which is made with the first epoch; refuse without TensorBoard."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError(
                "TensorBoard's curves need its package: pip install 'torchcno[log]', "
                "or leave out --tensorboard; metrics.jsonl has the same numbers."
            ) from error
        self._folder, self._open = folder, partial(SummaryWriter, folder)
        self._writer: SummaryWriter | None = None

    def __call__(self, epoch: Epoch) -> None:
        """Draw a row, and bring it to the disk: a checkpoint may come next that counts it."""
        if self._writer is None:
            make_own_folder(self._folder)
            # What a killed run drew of this epoch and of later ones, after its last checkpoint,
            # counts no more.
            self._writer = self._open(purge_step=epoch.epoch)
        for name, value in asdict(epoch).items():
            if name != "epoch" and value is not None:
                self._writer.add_scalar(name, value, epoch.epoch)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
