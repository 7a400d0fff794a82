"""Keep the rules that every dataset of events keeps, whatever its file format.

- `__init__` is light: it keeps paths, labels and offsets; pulses are read when they are asked for.
- A file is opened by the process that reads it. Processes that share a handle share its position,
  and most handles cannot be sent to a worker at all.
- `__getitems__` gets the indices of a whole batch and fetches them with as few requests as it can.
- What was read is compared with its checksum: most formats would hand out wrong numbers in silence.

The formats differ in one thing only: what must be read to get at one event.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from course_utils.loading.events.labels import read_labels
from keepfed.files import exists
from keepfed.loaders.workers import LazyFile
from keepfed.measure.spans import stage

Pulses = NDArray[np.float32]  # (n, 4): time in ns, charge in photoelectrons, sensor_id, auxiliary

# the columns of the pulses, and the smallest types that hold them, where a format has types
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
    """B events, as wide as the T pulses of the longest."""

    pulses: torch.Tensor  # float32 (B, T, 4), zeros behind the last pulse of an event
    mask: torch.Tensor  # bool (B, T), true where there is a pulse
    n_pulses: torch.Tensor  # int64 (B,)
    event_id: torch.Tensor  # int64 (B,)
    run_id: torch.Tensor  # int64 (B,)
    energy: torch.Tensor  # float32 (B,), log10 of GeV
    direction: torch.Tensor  # float32 (B, 3)
    kind: torch.Tensor  # int64 (B,)


def pad_collate(samples: Sequence[Sample]) -> Batch:
    """Pad all events of a batch to the longest and say in `mask` which pulses are real."""
    pulses = pad_sequence([sample["pulses"] for sample in samples], batch_first=True)
    n_pulses = torch.tensor([sample["n_pulses"] for sample in samples], device="cpu")
    return {
        "pulses": pulses,
        "mask": torch.arange(pulses.shape[1], device="cpu") < n_pulses[:, None],
        "n_pulses": n_pulses,
        "event_id": torch.tensor([sample["event_id"] for sample in samples], device="cpu"),
        "run_id": torch.tensor([sample["run_id"] for sample in samples], device="cpu"),
        "energy": torch.tensor([sample["energy"] for sample in samples], device="cpu"),
        "direction": torch.stack([sample["direction"] for sample in samples]),
        "kind": torch.tensor([sample["kind"] for sample in samples], device="cpu"),
    }


class Events(Dataset[Sample]):
    """What all share; each says where its file is, how to open it and how to read pulses."""

    entry: str  # the file or folder of the format, beside events.parquet

    def __init__(self, folder: str | Path, *, fs: Any = None, entry: str | None = None):
        """Read the labels, and no pulses.

        Args:
            folder: events as make_events writes them.
            fs: fsspec file system to read from, such as `slow_storage(...)`; None: local disk.
            entry: a file or folder in `folder` that differs in its options; None: the usual one.

        Raises:
            FileNotFoundError: the folder holds no events, or not in this format.
            OSError: the labels, or the places of the events, are corrupted.
        """
        self.folder, self.fs = str(folder), fs
        self.entry = entry or self.entry
        self.labels = read_labels(folder, fs)
        if not exists(self.path, fs):
            raise FileNotFoundError(
                f"There is no {self.path}; `python -m course_data.convert_events --help` says how "
                "to add a file format."
            )
        self._lazy = LazyFile(self._open, self.path, fs)
        try:
            self._find()
        except Exception as error:
            raise self._cannot_be_read(0, self.index_path) from error

    @property
    def path(self) -> str:
        """The file or folder that holds the pulses."""
        return f"{self.folder}/{self.entry}"

    @property
    def index_path(self) -> str:
        """The file that tells where the pulses of each event are."""
        return self.path

    def path_of(self, index: int) -> str:
        """Return the file that holds the pulses of one event."""
        return self.path

    @property
    def file(self) -> Any:
        """The file, opened by this very process: a forked worker opens its own."""
        return self._lazy.file

    def close(self) -> None:
        """Close the file in this process; the next event opens it again."""
        self._lazy.close()

    @staticmethod
    def _open(path: str, fs: Any) -> Any:
        """Open `path`; no method of an instance, so that file and dataset end together."""
        raise NotImplementedError

    def _find(self) -> None:
        """Read where the pulses of each event are, if that takes more than the labels."""

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return the samples of one batch; DataLoader prefers this to `__getitem__`.

        Raises:
            OSError: the pulses of an event are missing or not as they were written.
        """
        wanted = [range(len(self))[index] for index in indices]
        try:
            pulses = self._read(wanted)
        except Exception as error:  # corrupted bytes make each library fail in ways of its own
            if half := len(wanted) // 2:  # until the error names the event at fault
                return self.__getitems__(wanted[:half]) + self.__getitems__(wanted[half:])
            raise self._cannot_be_read(wanted[0], self.path_of(wanted[0])) from error
        return [self._sample(*found) for found in zip(wanted, pulses, strict=True)]

    def _sample(self, index: int, pulses: Pulses) -> Sample:
        labels = self.labels
        # equal bytes of another type are not what was written
        typed = pulses.dtype == np.float32 and pulses.shape[1:] == (4,)
        if not typed or zlib.crc32(pulses.data) != labels.crc32[index]:
            raise self._cannot_be_read(index, self.path_of(index))
        return {
            "pulses": torch.from_numpy(pulses),
            "n_pulses": len(pulses),
            "event_id": int(labels.event_id[index]),
            "run_id": int(labels.run_id[index]),
            "energy": float(labels.energy[index]),
            "direction": torch.tensor(labels.direction[index], device="cpu"),
            "kind": int(labels.kind[index]),
        }

    def _cannot_be_read(self, index: int, path: str) -> OSError:
        return OSError(
            f"Event {index} cannot be read, {path} is missing or corrupted; to see what to do "
            f"about it, run `python -m course_data.make_events --check --out {self.folder}`."
        )


class RowEvents(Events):
    """All pulses in one table: event i has its rows offsets[i] to offsets[i + 1]."""

    offsets: NDArray[np.int64]
    max_gap = 4096  # rows between two events: to read them along costs less than one more request

    def _rows(self, first: int, last: int) -> Pulses:
        raise NotImplementedError

    def _in_order(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Refuse offsets that nobody wrote; those below are never compared with a checksum."""
        if len(offsets) != len(self) + 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
            raise ValueError("the offsets do not rise from 0, one for each event and one more")
        return offsets

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        found = {}
        with stage("read"):
            for run in neighbours(indices, self.offsets, self.max_gap):
                first = self.offsets[run[0]]
                rows = self._rows(first, self.offsets[run[-1] + 1])
                for index in run:
                    start, stop = self.offsets[index : index + 2] - first
                    found[index] = rows[start:stop]
            return [found[index].copy() for index in indices]


def neighbours(
    indices: Sequence[int], offsets: NDArray[np.int64], max_gap: int
) -> Iterator[list[int]]:
    """Yield the events that one request can fetch: sorted, with gaps of at most `max_gap` rows."""
    run: list[int] = []
    for index in sorted(set(indices)):
        if run and offsets[index] - offsets[run[-1] + 1] > max_gap:
            yield run
            run = []
        run.append(index)
    if run:
        yield run


class GroupEvents(Events):
    """The least that can be read is a group of events."""

    def _place(self, index: int) -> tuple[int, int]:
        """Return the group of an event, and its number in there."""
        raise NotImplementedError

    def _group(self, group: int) -> list[Pulses]:
        raise NotImplementedError

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        places = {index: self._place(index) for index in sorted(set(indices))}
        groups = {group: self._group(group) for group in sorted({g for g, _ in places.values()})}
        found = {index: groups[group][row] for index, (group, row) in places.items()}
        return [found[index].copy() for index in indices]
