"""Load events of different lengths almost as fast as records of one size: gather, then pad."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from course_utils.loading.events import Batch, MemmapEvents
from course_utils.loading.fast.mapped import map_array
from course_utils.loading.fast.mapped_loader import MappedLoader

PULSE = np.complex128  # as good as four float32: one number is gathered faster than a row of four


class RaggedEvents(MemmapEvents):
    """Events of which a whole batch is read at once, padded as `pad_collate` does it.

    The pulses of an event are compared with their checksum when this process first reads it.
    """

    def __init__(self, folder: str | Path):
        """Read the labels and the offsets.

        Raises:
            FileNotFoundError: the folder holds no events, or not in this format.
            OSError: pulses and offsets do not belong together, or a file is cut short.
        """
        super().__init__(folder)
        self.counts = np.diff(self.offsets)
        ends = self.offsets[[0, -1]].tolist()
        if len(self.counts) != len(self) or ends != [0, len(self.file)] or self.counts.min() < 0:
            raise self._corrupted(0)
        labels = self.labels
        self.columns = {
            "event_id": torch.tensor(labels.event_id, dtype=torch.int64),
            "run_id": torch.tensor(labels.run_id, dtype=torch.int64),
            "energy": torch.tensor(labels.energy, dtype=torch.float32),
            "direction": torch.tensor(labels.direction, dtype=torch.float32),
            "kind": torch.tensor(labels.kind, dtype=torch.int64),
        }
        self.unchecked = np.full(len(self), labels.crc32 is not None)

    @staticmethod
    def _open(path: str, fs: Any) -> Any:
        return map_array(path)

    def buffer(self, batch_size: int) -> torch.Tensor:
        """Return memory for padded pulses; it grows to what the largest batch takes."""
        return torch.empty(0, dtype=torch.complex128)

    def read(self, indices: torch.Tensor, buffer: torch.Tensor) -> Batch:
        """Return the events at `indices`, int64 (batch,), their pulses as a view of `buffer`.

        Raises:
            OSError: the pulses of an event are not those that were written.
        """
        wanted = indices.numpy()
        counts = self.counts[wanted]
        packed = self._gather(wanted, counts)
        size, width = len(wanted), int(counts.max())
        padded = buffer.resize_(size * width).zero_()
        padded.index_copy_(0, _runs(np.arange(size) * width, counts), packed)
        n_pulses = torch.from_numpy(counts)
        return {
            "pulses": padded.view(torch.float32).view(size, width, 4),
            "mask": torch.arange(width) < n_pulses[:, None],
            "n_pulses": n_pulses,
            "event_id": self.columns["event_id"][indices],
            "run_id": self.columns["run_id"][indices],
            "energy": self.columns["energy"][indices],
            "direction": self.columns["direction"][indices],
            "kind": self.columns["kind"][indices],
        }

    def _gather(self, wanted: NDArray[np.int64], counts: NDArray[np.int64]) -> torch.Tensor:
        """Return the pulses of these events, one after the other."""
        pulses = torch.from_numpy(self.file.view(PULSE)[:, 0])
        packed = pulses.index_select(0, _runs(self.offsets[wanted], counts))
        ends = counts.cumsum()
        for place in np.flatnonzero(self.unchecked[wanted]):
            last = int(ends[place])
            self._check(int(wanted[place]), packed[last - int(counts[place]) : last])
        return packed

    def _check(self, index: int, pulses: torch.Tensor) -> None:
        assert self.labels.crc32 is not None
        if zlib.crc32(pulses.numpy().data) != self.labels.crc32[index]:
            raise self._corrupted(index)
        self.unchecked[index] = False


def _runs(first: NDArray[np.int64], counts: NDArray[np.int64]) -> torch.Tensor:
    """Return first[0], first[0] + 1, ... in all counts[0] numbers, then those from first[1] on."""
    ends = counts.cumsum()
    return torch.from_numpy(np.repeat(first - (ends - counts), counts) + np.arange(ends[-1]))


class RaggedLoader(MappedLoader[Batch]):
    """Load a folder of events in shuffled batches, the same as `pad_collate` makes.

    Their pulses are a view of a buffer; all else is in memory of its own.
    """

    opens = RaggedEvents
