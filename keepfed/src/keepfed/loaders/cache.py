"""Cache samples in memory that all workers share, without ever evicting one.

    events = SampleCache(MemmapEvents(folder, fs=lustre), megabytes=500)
    loader = DataLoader(events, batch_size=64, shuffle=True, num_workers=4, ...)

An epoch reads each sample once, so a cache that evicts the oldest sample evicts it just before it
is needed. Without eviction, the hit rate is the share of the data that fits.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Generic, TypeVar

import torch
from torch.multiprocessing import get_context
from torch.utils.data import Dataset

from keepfed.checks import position
from keepfed.errors import KeepfedError
from keepfed.limits import known, memory_free
from keepfed.loaders.workers import shm_free

T = TypeVar("T")

_PATIENCE = 5.0  # seconds to wait for the lock, which a killed worker never releases


class SampleCache(Dataset[T], Generic[T]):
    """Dataset that reads each sample of another dataset only once, if the sample fits into memory.

    All workers fill and read the same memory, with every start method and over all epochs, even if
    workers do not persist. Samples are never evicted. When the cache is full, further samples are
    read each time. Augment after the cache. Otherwise each sample is augmented only once.

    If a worker is killed while it writes, no partial sample is served, because the position of a
    sample is stored last. Each access returns a new sample, so modifying it is safe.
    """

    def __init__(self, dataset: Any, megabytes: float):
        """Reserve the memory. The cache is empty at first.

        Args:
            dataset: A map-style dataset whose samples can be pickled.
            megabytes: Size of the cache in units of 10^6 bytes. On Linux it is part of /dev/shm.

        Raises:
            ValueError: If `megabytes` is not positive.
            KeepfedError: If there is too little shared memory.
        """
        self.source, self.capacity = dataset, int(megabytes * 1e6)
        if self.capacity <= 0:
            raise ValueError(f"`megabytes` must be greater than 0, but is {megabytes:g}.")
        free = min(room for room in (shm_free(), known(memory_free), 2**63) if room is not None)
        if self.capacity > free:
            raise KeepfedError(
                f"The cache needs {megabytes:,.0f} MB, but only {free / 1e6:,.0f} MB of shared "
                "memory are free. Make the cache smaller, and leave space for the batches."
            )
        self._memory = _reserved(self.capacity)
        self._places = _shared(len(dataset), 2)  # begin and end of each sample
        self._stored = _shared(2)  # number of cached samples, and their bytes
        # a lock of the "fork" context cannot be sent to a spawned worker, but this one works in all
        self._lock = get_context("spawn").Lock()
        self._lock_is_lost = False

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> T:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[T]:
        """Return the samples of one batch. Missing samples are read with one request."""
        wanted = [position(index, len(self), "the cached dataset") for index in indices]
        contents = {index: self._look_up(index) for index in wanted}
        missing = [index for index in wanted if contents[index] is None]
        samples = self._fetch(missing)
        if missing:
            self._keep(dict(zip(missing, samples, strict=True)))
        new = iter(samples)
        cached = (contents[index] for index in wanted)
        return [next(new) if content is None else from_bytes(content) for content in cached]

    def __repr__(self) -> str:
        """Return a summary of the size."""
        return (
            f"SampleCache: {self.samples:,} of {len(self):,} samples, "
            f"{self.nbytes / 1e6:,.1f} of {self.capacity / 1e6:,.1f} MB"
        )

    @property
    def samples(self) -> int:
        """The number of cached samples."""
        return int(self._stored[0])

    @property
    def nbytes(self) -> int:
        """The bytes of the cached samples."""
        return int(self._stored[1])

    def _fetch(self, indices: list[int]) -> list[T]:
        if indices and hasattr(self.source, "__getitems__"):
            samples: list[T] = self.source.__getitems__(indices)
            return samples
        return [self.source[index] for index in indices]

    def _look_up(self, index: int) -> memoryview | None:
        begin, end = self._places[index].tolist()
        return self._bytes()[begin:end] if end else None

    def _keep(self, samples: Mapping[int, T]) -> None:
        """Cache the samples that fit, or none without the lock."""
        cached, nbytes = self._stored.tolist()
        if (self.capacity - nbytes) * cached < nbytes:  # no space for an average sample
            return
        contents = {index: to_bytes(sample) for index, sample in samples.items()}
        if self._lock_is_lost or not self._lock.acquire(timeout=_PATIENCE):
            self._lock_is_lost = True
            return
        try:
            for index, content in contents.items():
                begin = self.nbytes
                end = begin + len(content)
                if not self._places[index, 1] and end <= self.capacity:
                    self._bytes()[begin:end] = content
                    self._places[index, 0] = begin
                    self._places[index, 1] = end
                    self._stored += torch.tensor([1, len(content)], device="cpu")
        finally:
            self._lock.release()

    def _bytes(self) -> memoryview:
        return self._memory.numpy().data


def _reserved(nbytes: int) -> torch.Tensor:
    """Return shared memory, uint8 (nbytes,), whose pages the private function only reserves."""
    reserve: Any = getattr(torch.UntypedStorage, "_new_shared", None)
    if reserve is None:
        reserve = lambda size: torch.UntypedStorage(size, device="cpu").share_memory_()  # type: ignore[no-untyped-call]  # noqa: E731
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(reserve(nbytes))


def _shared(*shape: int) -> torch.Tensor:
    """Return int64 zeros in shared memory."""
    zeros = torch.zeros(shape, dtype=torch.int64, device="cpu")
    return zeros.share_memory_()  # type: ignore[no-untyped-call,no-any-return]


def to_bytes(sample: Any) -> bytes:
    """Return a sample as bytes. It may be any object that can be pickled.

    Tensors are pickled as NumPy arrays, which is many times faster than torch's own method and
    leaves out the rest of the storage of a view.
    """
    buffer = BytesIO()
    _Pickler(buffer, protocol=5).dump(sample)
    return buffer.getvalue()


def from_bytes(content: bytes | memoryview) -> Any:
    """Return a new sample that shares no memory with the bytes."""
    return pickle.loads(content)


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is torch.Tensor:
            try:
                return torch.from_numpy, (obj.numpy(),)
            except (RuntimeError, TypeError):  # not supported by NumPy: gradients, bfloat16, CUDA
                return NotImplemented
        return NotImplemented
