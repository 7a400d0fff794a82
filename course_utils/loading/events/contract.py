"""Base classes for datasets of events, with rules that hold for every file format.

- `__init__` is light. It reads paths, labels and offsets. Pulses are read on request.
- The process that reads a file opens it. Processes that share a handle share its position, and
  most handles cannot be pickled for a worker.
- `__getitems__` gets the indices of a whole batch and reads them with as few requests as possible.
- Every event is checked against its checksum, because most formats would silently return wrong
  numbers.

The formats differ only in how much must be read for one event.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from course_utils.loading.events.labels import CHECK, read_labels
from keepfed.checks import position
from keepfed.loaders.workers import LazyFile
from keepfed.measure.spans import stage
from keepfed.reading import read_error

Pulses = NDArray[np.float32]  # (n, 4): time in ns, charge in photoelectrons, sensor_id, auxiliary

# columns of the pulses, with the smallest types that hold them, for formats with types
PULSE = {"time": "float32", "charge": "float32", "sensor_id": "int16", "auxiliary": "bool"}


class Sample(TypedDict):
    """One event."""

    pulses: torch.Tensor  # float32 (n_pulses, 4)
    n_pulses: int
    event_id: int
    run_id: int
    energy: float  # log10 of the energy in GeV
    direction: torch.Tensor  # float32 (3,), points to where the particle came from
    kind: int  # 0 cascade, 1 track


class Batch(TypedDict):
    """B events, padded to the T pulses of the longest one."""

    pulses: torch.Tensor  # float32 (B, T, 4), zeros after the last pulse
    mask: torch.Tensor  # bool (B, T), true where there is a pulse
    n_pulses: torch.Tensor  # int64 (B,)
    event_id: torch.Tensor  # int64 (B,)
    run_id: torch.Tensor  # int64 (B,)
    energy: torch.Tensor  # float32 (B,), log10 of GeV
    direction: torch.Tensor  # float32 (B, 3)
    kind: torch.Tensor  # int64 (B,)


def pad_collate(samples: Sequence[Sample]) -> Batch:
    """Pad all events of a batch to the longest one; `mask` marks the real pulses."""
    pulses = pad_sequence([sample["pulses"] for sample in samples], batch_first=True)

    def column(name: str) -> torch.Tensor:
        return torch.tensor([sample[name] for sample in samples], device="cpu")  # type: ignore[literal-required]

    return {
        "pulses": pulses,
        "mask": torch.arange(pulses.shape[1], device="cpu") < column("n_pulses")[:, None],
        "n_pulses": column("n_pulses"),
        "event_id": column("event_id"),
        "run_id": column("run_id"),
        "energy": column("energy"),
        "direction": torch.stack([sample["direction"] for sample in samples]),
        "kind": column("kind"),
    }


class Events(Dataset[Sample]):
    """Base class. Subclasses define the file, how to open it and how to read pulses."""

    entry: str  # file or folder of the format, next to events.parquet
    pulses_in, index_in = "", ""  # files with the pulses and their positions, if it is a folder

    def __init__(self, folder: str | Path, *, fs: Any = None, entry: str | None = None):
        """Read the labels, but no pulses.

        Args:
            folder: Folder that make_events has written.
            fs: fsspec file system to read from, such as `slow_storage(...)`. None: local disk.
            entry: File or folder in `folder`, for variants of a format. None: the default one.

        Raises:
            FileNotFoundError: If the folder contains no events, or not in this format.
            OSError: If the labels or the index of the events is corrupted.
        """
        self.folder, self.fs = str(folder), fs
        self.entry = entry or self.entry
        self.labels = read_labels(folder, fs)
        if not (os.path.exists(self.path) if fs is None else fs.exists(self.path)):
            raise FileNotFoundError(
                f"{self.path} does not exist. To add a file format, see `python -m "
                "data_scripts.convert_events --help`. If the file was deleted, run `python -m "
                f"data_scripts.make_events --check --out {self.folder}`."
            )
        self._lazy = LazyFile(self._open, self.path, fs)
        try:
            self._find()
        except Exception as error:
            raise self._cannot_be_read(None, self.index_path, error) from error

    @property
    def path(self) -> str:
        """File or folder that contains the pulses."""
        return f"{self.folder}/{self.entry}{self.pulses_in}"

    @property
    def index_path(self) -> str:
        """File that contains the positions of the events."""
        return f"{self.folder}/{self.entry}{self.index_in}"

    def path_of(self, index: int) -> str:
        """Return the file that contains the pulses of one event."""
        return self.path

    @property
    def file(self) -> Any:
        """The file, opened by this process. A forked worker opens it again."""
        return self._lazy.file

    def close(self) -> None:
        """Close the file in this process. The next event opens it again."""
        self._lazy.close()

    @staticmethod
    def _open(path: str, fs: Any) -> Any:
        """Open `path` in a static method, so that the file does not keep the dataset alive."""
        raise NotImplementedError

    def _find(self) -> None:
        """Read the positions of the events, if the format has an index."""

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return the samples of one batch; DataLoader prefers this to `__getitem__`.

        Raises:
            OSError: If the pulses of an event are missing or changed.
        """
        wanted = [position(index, len(self), self.folder) for index in indices]
        try:
            pulses = self._read(wanted)
        except Exception as error:  # libraries raise different errors for corrupted bytes
            if half := len(wanted) // 2:  # bisect, so that the error names the damaged event
                return self.__getitems__(wanted[:half]) + self.__getitems__(wanted[half:])
            raise self._cannot_be_read(wanted[0], self.path_of(wanted[0]), error) from error
        return [self._sample(*event) for event in zip(wanted, pulses, strict=True)]

    def _sample(self, index: int, pulses: Pulses) -> Sample:
        labels = self.labels
        # The same bytes with a different type are also wrong.
        typed = pulses.dtype == np.float32 and pulses.shape[1:] == (4,)
        if not typed or zlib.crc32(pulses.data) != labels.crc32[index]:
            wrong = ValueError("its checksum is wrong")
            raise self._cannot_be_read(index, self.path_of(index), wrong)
        return {
            "pulses": torch.from_numpy(pulses),
            "n_pulses": len(pulses),
            "event_id": int(labels.event_id[index]),
            "run_id": int(labels.run_id[index]),
            "energy": float(labels.energy[index]),
            "direction": torch.tensor(labels.direction[index], device="cpu"),
            "kind": int(labels.kind[index]),
        }

    def _cannot_be_read(self, index: int | None, path: str, error: Exception) -> OSError:
        return read_error(error, path, index, step=CHECK.format(self.folder))


class RowEvents(Events):
    """All pulses in one table: event i is rows offsets[i] to offsets[i + 1]."""

    offsets: NDArray[np.int64]
    max_gap = 4096  # rows between two events that cost less than another request

    def _rows(self, first: int, last: int) -> Pulses:
        raise NotImplementedError

    def _in_order(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Check that offsets increase from 0, because they are not covered by a checksum."""
        if len(offsets) != len(self) + 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
            raise ValueError("the offsets do not increase from 0, or there are too few or many")
        return offsets

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        pulses = {}
        with stage("read"):
            for run in neighbors(indices, self.offsets, self.max_gap):
                first = self.offsets[run[0]]
                rows = self._rows(first, self.offsets[run[-1] + 1])
                for index in run:
                    start, stop = self.offsets[index : index + 2] - first
                    pulses[index] = rows[start:stop]
            return [pulses[index].copy() for index in indices]


def neighbors(
    indices: Sequence[int], offsets: NDArray[np.int64], max_gap: int
) -> Iterator[list[int]]:
    """Yield groups of sorted events that one request can read (gaps up to `max_gap` rows)."""
    run: list[int] = []
    for index in sorted(set(indices)):
        if run and offsets[index] - offsets[run[-1] + 1] > max_gap:
            yield run
            run = []
        run.append(index)
    if run:
        yield run


class GroupEvents(Events):
    """Format whose smallest readable unit is a group of events."""

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the group of an event, and its index in that group."""
        raise NotImplementedError

    def _group(self, group: int) -> list[Pulses]:
        raise NotImplementedError

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        places = {index: self._locate(index) for index in sorted(set(indices))}
        groups = {group: self._group(group) for group in sorted({g for g, _ in places.values()})}
        pulses = {index: groups[group][row] for index, (group, row) in places.items()}
        return [pulses[index].copy() for index in indices]
