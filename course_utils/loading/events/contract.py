"""Keep the rules that every dataset of the course keeps, whatever its file format.

- `__init__` is light: it keeps paths, labels and offsets; pulses are read when they are asked for.
- A file is opened by the process that reads it. Processes that share a handle share its position,
  and most handles cannot be sent to a worker at all.
- `__getitems__` gets the indices of a whole batch and fetches them with as few requests as it can.
- What was read is compared with its checksum: most formats would hand out wrong numbers in silence.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from course_utils.loading.events.labels import exists, read_labels
from course_utils.loading.workers import LazyFile

Pulses = NDArray[np.float32]  # (n, 4): time in ns, charge in photoelectrons, sensor_id, auxiliary


class Sample(TypedDict):
    """One event."""

    pulses: torch.Tensor  # float32 (n_pulses, 4)
    n_pulses: int
    event_id: int
    run_id: int
    energy: float  # log10 of the energy in GeV
    direction: torch.Tensor  # float32 (3,), points to where the particle came from
    kind: int  # 0 cascade, 1 track


class Events(Dataset[Sample]):
    """What all share; each says where its file is, how to open it and how to read pulses."""

    # the file or folder of each variant; the first is the usual one
    variants: ClassVar[Mapping[str, str]]

    def __init__(self, folder: str | Path, *, fs: Any = None, variant: str | None = None):
        """Read the labels, and no pulses.

        Args:
            folder: events as make_events writes them.
            fs: fsspec file system to read from, such as `slow_storage(...)`; None: local disk.
            variant: one of `variants`; None: the first.

        Raises:
            FileNotFoundError: the folder holds no events, or not in this format.
            ValueError: there is no such variant.
        """
        self.folder, self.fs = str(folder), fs
        self.variant = variant or next(iter(self.variants))
        if self.variant not in self.variants:
            raise ValueError(
                f"{type(self).__name__} has no variant {variant!r}; take one of "
                f"{', '.join(self.variants)}."
            )
        self.labels = read_labels(folder, fs)
        if not exists(self.path, fs):
            raise FileNotFoundError(
                f"There is no {self.path}; `python -m data_scripts.convert_events --help` says how "
                "to add a file format."
            )
        self._lazy = LazyFile(self._open, self.path, fs)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return the samples of one batch; DataLoader prefers this to `__getitem__`."""
        wanted = [range(len(self))[index] for index in indices]
        pulses = self._read_or_blame(wanted)
        return [self._sample(*found) for found in zip(wanted, pulses, strict=True)]

    @property
    def path(self) -> str:
        """The file or folder that holds the pulses."""
        return f"{self.folder}/{self.variants[self.variant]}"

    def path_of(self, index: int) -> str:
        """Return the file that holds the pulses of one event."""
        return self.path

    @property
    def file(self) -> Any:
        """The file, opened by this very process: a forked worker opens its own."""
        return self._lazy.file

    @staticmethod
    def _open(path: str, fs: Any) -> Any:
        """Open `path`; no method of an instance, so that file and dataset end together."""
        raise NotImplementedError

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        raise NotImplementedError

    def _read_or_blame(self, indices: Sequence[int]) -> list[Pulses]:
        """Read a batch; if it fails, halve it until the error names the event at fault."""
        try:
            return self._read(indices)
        except OSError:
            if len(indices) <= 1:
                raise
            half = len(indices) // 2
            return self._read_or_blame(indices[:half]) + self._read_or_blame(indices[half:])

    @contextmanager
    def _blaming(self, index: int, path: str | None = None) -> Iterator[None]:
        """Say which file (None: that of the event) and which event could not be read."""
        try:
            yield
        except Exception as error:  # corrupted bytes make each library fail in ways of its own
            raise self._corrupted(index, path) from error

    def _corrupted(self, index: int, path: str | None = None) -> OSError:
        return OSError(
            f"Event {index} cannot be read, {path or self.path_of(index)} is missing or corrupted; "
            "to see what to do about it, run `python -m data_scripts.make_events --check --out "
            f"{self.folder}`."
        )

    def _sample(self, index: int, pulses: Pulses) -> Sample:
        labels = self.labels
        if labels.crc32 is not None and not _is_whole(pulses, labels.crc32[index]):
            raise self._corrupted(index)
        return {
            "pulses": torch.from_numpy(pulses),
            "n_pulses": len(pulses),
            "event_id": int(labels.event_id[index]),
            "run_id": int(labels.run_id[index]),
            "energy": float(labels.energy[index]),
            "direction": torch.tensor(labels.direction[index]),
            "kind": int(labels.kind[index]),
        }


def _is_whole(pulses: Pulses, crc32: np.uint32) -> bool:
    """Tell whether these are the pulses that were written; equal bytes of another type are not."""
    typed = pulses.dtype == np.float32 and pulses.shape[1:] == (4,)
    return bool(typed and zlib.crc32(pulses.data) == crc32)
