"""Arrays of NumPy in files: .npz archives and .npy files."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchcno.data.readers.source import Opened, Variable
from torchcno.disk import refuse_bomb


def read_npz(path: Path) -> Opened:
    """The arrays of an archive, read whole: it is compressed, as a rule."""
    try:
        with zipfile.ZipFile(path) as parts:
            claimed = sum(part.file_size for part in parts.infolist())
        refuse_bomb(path, path.stat().st_size, claimed)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged, or holds other things than arrays of numbers; save it anew by "
            "numpy.savez."
        ) from error
    return Opened(str(path), {name: Variable(array) for name, array in arrays.items()})


def open_npy(path: Path) -> NDArray[Any]:
    """The array of a .npy file, which is read when it is sliced."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(
            f"{path} is damaged, or holds no array of numbers; save it anew by numpy.save."
        ) from error
