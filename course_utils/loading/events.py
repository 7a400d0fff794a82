"""Keep the rules that every dataset of the course keeps, whatever its file format.

- `__init__` is light: it keeps paths, labels and offsets; pulses are read when they are asked for.
- A file is opened by the process that reads it. Processes that share a handle share its position,
  and most handles cannot be sent to a worker at all.
- `__getitems__` gets the indices of a whole batch and fetches them with as few requests as it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from course_utils.loading.labels import exists, read_labels
from course_utils.loading.lazy_file import LazyFile

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
    """What the four share; each says where its file is, how to open it and how to read pulses."""

    file_name: str

    def __init__(self, folder: str | Path, *, fs: Any = None):
        """Read the labels, and no pulses.

        Args:
            folder: events as make_events writes them.
            fs: fsspec file system to read from, such as `slow_storage(...)`; None: local disk.

        Raises:
            FileNotFoundError: the folder holds no events, or not in this format.
        """
        self.folder, self.fs = str(folder), fs
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
        return [self._sample(*found) for found in zip(wanted, self._read(wanted), strict=True)]

    @property
    def path(self) -> str:
        """The file or folder that holds the pulses."""
        return f"{self.folder}/{self.file_name}"

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

    @contextmanager
    def _blaming(self, index: int, path: str) -> Iterator[None]:
        """Say which file and which event could not be read, and what to do about it."""
        try:
            yield
        except (OSError, ValueError, KeyError, EOFError, BadZipFile, pa.ArrowException) as error:
            raise OSError(
                f"Event {index} cannot be read, {path} is missing or corrupted; to see what to do "
                f"about it, run `python -m data_scripts.make_events --check --out {self.folder}`."
            ) from error

    def _sample(self, index: int, pulses: Pulses) -> Sample:
        labels = self.labels
        return {
            "pulses": torch.from_numpy(pulses),
            "n_pulses": len(pulses),
            "event_id": int(labels.event_id[index]),
            "run_id": int(labels.run_id[index]),
            "energy": float(labels.energy[index]),
            "direction": torch.tensor(labels.direction[index]),
            "kind": int(labels.kind[index]),
        }
