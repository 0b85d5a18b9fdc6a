"""Fields that stay in their files and are read a range of samples at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import overload

import torch
from torch import Tensor

from torchcno.data.fields import Fields, Index, as_index, split_numbers
from torchcno.grids import Grid
from torchcno.sizes import refuse_without_memory

GAP = 8  # numbers that are read and thrown away rather than reading twice


@dataclass(frozen=True)
class StoredFields:
    """Fields on a disk: as `Fields`, but that nothing is in memory before it is read.

    `stored[:80]` and `stored.split(…)` are `StoredFields` of fewer samples, `stored[3]` is the pair
    of one sample, and `load` reads all of them.
    """

    read_range: Callable[[int, int], Fields]  # the samples start … stop − 1 of the source
    total: int  # samples of the source
    channels: tuple[int, int]  # of inputs and outputs
    grid: Grid
    sample_bytes: int  # of one pair in memory
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    numbers: Tensor | None = None  # the samples that these are, by number; None: all in order
    chunk: int = 16  # neighbours that the source reads about as fast as one of them

    def __len__(self) -> int:
        return self.total if self.numbers is None else len(self.numbers)

    @property
    def nbytes(self) -> int:
        """What all of them take in memory."""
        return len(self) * self.sample_bytes

    @overload
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]: ...
    @overload
    def __getitem__(self, index: Index) -> "StoredFields": ...
    def __getitem__(self, index: int | Index) -> "tuple[Tensor, Tensor] | StoredFields":
        at = as_index(index)
        chosen = self.all_numbers[at]
        if isinstance(at, int):
            return self.read(chosen.reshape(1))[0]
        if not len(chosen):
            raise ValueError(f"no sample is left of {len(self)}; give at least one.")
        return replace(self, numbers=chosen)

    @property
    def all_numbers(self) -> Tensor:
        """The numbers of the samples in the source."""
        return torch.arange(self.total) if self.numbers is None else self.numbers

    def split(self, *counts: int, seed: int | None = 0) -> "tuple[StoredFields, ...]":
        """So many samples each, drawn without repetition by `seed`; None: in their order."""
        return tuple(self[numbers] for numbers in split_numbers(len(self), counts, seed))

    def read(self, numbers: Tensor) -> Fields:
        """The samples of these numbers in the source, in that order.

        Neighbours are read together: files are fast along their own order.
        """
        ordered, places = numbers.sort()
        ends = (ordered.diff() > GAP).nonzero().flatten() + 1
        parts = []
        for run in ordered.tensor_split(ends):
            start, stop = int(run[0]), int(run[-1]) + 1
            block = self.read_range(start, stop)
            parts.append(block if len(run) == stop - start else block[run - start])
        joined = join_fields(parts)
        return joined if torch.equal(ordered, numbers) else joined[places.argsort()]

    def blocks(self, size: int) -> Iterator[Fields]:
        """All samples in the order of the source, `size` at a time."""
        for numbers in self.all_numbers.sort().values.split(size):
            yield self.read(numbers)

    def load(self) -> Fields:
        """All samples, in memory; refused where they do not fit."""
        refuse_without_memory(
            2 * self.nbytes,
            f"to read {len(self)} samples",
            "take fewer (stored[:1000]), or train on them from the disk: open_stored(...) in place "
            "of Fields.open(...)",
        )
        return self.read(self.all_numbers)


def join_fields(parts: list[Fields]) -> Fields:
    """Samples of one kind after each other."""
    if len(parts) == 1:
        return parts[0]
    mask = None
    if parts[0].mask is not None:
        mask = torch.cat([part.mask for part in parts])
    return replace(
        parts[0],
        inputs=torch.cat([part.inputs for part in parts]),
        outputs=torch.cat([part.outputs for part in parts]),
        mask=mask,
    )


def in_memory(fields: Fields | StoredFields) -> Fields:
    """Fields that are read already, or now."""
    return fields if isinstance(fields, Fields) else fields.load()
