"""Keep samples in memory that all workers share, and never give one up for another.

    events = SampleCache(MemmapEvents(folder, fs=lustre), megabytes=500)
    loader = DataLoader(events, batch_size=64, shuffle=True, num_workers=4, ...)

An epoch asks for each sample once. A cache that evicts what was used longest ago therefore throws
away each sample just before it is needed again; one that keeps what it has is hit as often as its
share of the data.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import Any, Generic, TypeVar

import torch
from torch.multiprocessing import get_context
from torch.utils.data import Dataset

from keepfed.errors import KeepfedError
from keepfed.limits import known, memory_free
from keepfed.loaders.workers import shm_free

T = TypeVar("T")

_COUNTERS = ("hits", "misses", "samples", "nbytes", "taken")
_WRITING = -1  # the end of a sample that is not there yet; 0: nobody has begun with it
_PATIENCE = 5.0  # seconds: a worker that was killed with the lock in hand never gives it back


class SampleCache(Dataset[T], Generic[T]):
    """A dataset in front of another one: what fits into the memory is asked for only once.

    All workers fill and read the same memory, whatever the start method, also over the epochs of
    workers that do not persist. Nothing is ever evicted; what comes when it is full is asked for
    each time. Augment behind the cache, not before, or each sample is augmented once and for all.

    A worker that is killed while it writes leaves no half sample: where a sample begins and ends is
    noted last. Each asking gives a new sample, so that to change one changes no other.
    """

    def __init__(self, dataset: Any, megabytes: float):
        """Take the memory, and keep nothing yet.

        Args:
            dataset: a map-style dataset whose samples can be pickled.
            megabytes: 10^6 bytes to take; on Linux they are part of /dev/shm.

        Raises:
            ValueError: `megabytes` is not more than nothing.
            KeepfedError: there is not so much memory to share.
        """
        self.source, self.capacity = dataset, int(megabytes * 1e6)
        if self.capacity <= 0:
            raise ValueError(f"A cache of {megabytes:g} MB keeps nothing; give it some megabytes.")
        free = min(room for room in (shm_free(), known(memory_free), 2**63) if room is not None)
        if self.capacity > free:
            raise KeepfedError(
                f"The cache shall take {megabytes:,.0f} MB, and this machine has {free / 1e6:,.0f} "
                "MB of memory free to share; give it less, and leave some for the batches."
            )
        self._memory = _reserved(self.capacity)
        self._places = _shared(len(dataset), 2)  # where the sample begins and ends
        self._counted = _shared(len(_COUNTERS))
        # one of "fork" could not be sent to a spawned worker, while a forked one inherits any
        self._lock = get_context("spawn").Lock()
        self._lock_is_lost = False

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> T:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[T]:
        """Return the samples of one batch; those that are missing are asked for in one go."""
        wanted = [range(len(self))[index] for index in indices]
        found = {index: self._look_up(index) for index in dict.fromkeys(wanted)}
        missing = [index for index in wanted if found[index] is None]
        fetched = self._fetch(missing)
        with suppress(TimeoutError):  # nothing more is kept or counted: that needs the lock
            found_here = len(wanted) - len(missing)
            self._keep(
                dict(zip(missing, fetched, strict=True)), hits=found_here, misses=len(missing)
            )
        new = iter(fetched)
        contents = (found[index] for index in wanted)
        return [next(new) if content is None else from_bytes(content) for content in contents]

    def __repr__(self) -> str:
        """Show how full it is and how often it was hit."""
        return (
            f"SampleCache: {self.counters()['samples']:,} of {len(self):,} samples, "
            f"{self.nbytes / 1e6:,.1f} of {self.capacity / 1e6:,.1f} MB, {self.hit_share:.0%} hits"
        )

    def counters(self) -> dict[str, int]:
        """Return hits and misses since the last reset, and the samples and bytes that it keeps."""
        return dict(zip(_COUNTERS, self._counted.tolist(), strict=True))

    @property
    def hit_share(self) -> float:
        """The share of samples that were found here; 0 before the first."""
        hits, misses = self._counted[:2].tolist()
        return float(hits / max(hits + misses, 1))

    @property
    def nbytes(self) -> int:
        """The bytes of what it keeps."""
        return self.counters()["nbytes"]

    def reset_counters(self) -> None:
        """Count hits and misses from zero, for all workers; what is kept stays."""
        self._counted[:2] = 0

    def _fetch(self, indices: list[int]) -> list[T]:
        if indices and hasattr(self.source, "__getitems__"):
            samples: list[T] = self.source.__getitems__(indices)
            return samples
        return [self.source[index] for index in indices]

    def _look_up(self, index: int) -> memoryview | None:
        begin, end = self._places[index].tolist()
        return self._bytes()[begin:end] if end > 0 else None

    def _keep(self, samples: Mapping[int, T], **counted: int) -> None:
        """Keep what there is room for, and count."""
        kept = self.counters()
        left = self.capacity - kept["taken"]
        is_full = left * kept["samples"] < kept["nbytes"]  # less left than a sample takes
        contents = {} if is_full else {index: to_bytes(sample) for index, sample in samples.items()}
        with self._locked():
            self._add(**counted)
            places = self._take(contents)
        if not places:
            return
        memory = self._bytes()
        for index, (begin, end) in places.items():
            memory[begin:end] = contents[index]
        with self._locked():
            for index, (begin, end) in places.items():
                self._places[index, 0] = begin
                self._places[index, 1] = end
                self._add(samples=1, nbytes=end - begin)

    def _take(self, contents: Mapping[int, bytes]) -> dict[int, tuple[int, int]]:
        """Reserve memory for what no other worker keeps, as far as it goes."""
        places = {}
        for index, content in contents.items():
            begin = self.counters()["taken"]
            end = begin + len(content)
            if self._places[index, 1] == 0 and end <= self.capacity:
                self._places[index, 1] = _WRITING
                self._add(taken=len(content))
                places[index] = begin, end
        return places

    def _bytes(self) -> memoryview:
        return self._memory.numpy().data

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock; give up for good, with a TimeoutError, if nobody gives it back."""
        if self._lock_is_lost or not self._lock.acquire(timeout=_PATIENCE):
            self._lock_is_lost = True
            raise TimeoutError
        try:
            yield
        finally:
            self._lock.release()

    def _add(self, **amounts: int) -> None:
        for name, amount in amounts.items():
            self._counted[_COUNTERS.index(name)] += amount


def _reserved(nbytes: int) -> torch.Tensor:
    """Return shared memory, uint8 (nbytes,).

    The undocumented function only reserves the pages. If a torch does not have it, the documented
    one copies the new memory into shared memory, so that all pages are occupied at once.
    """
    reserve: Any = getattr(torch.UntypedStorage, "_new_shared", None)
    if reserve is None:
        reserve = lambda size: torch.UntypedStorage(size, device="cpu").share_memory_()  # type: ignore[no-untyped-call]  # noqa: E731
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(reserve(nbytes))


def _shared(*shape: int) -> torch.Tensor:
    """Return zeros, int64, that all processes see."""
    zeros = torch.zeros(shape, dtype=torch.int64, device="cpu")
    return zeros.share_memory_()  # type: ignore[no-untyped-call,no-any-return]


def to_bytes(sample: Any) -> bytes:
    """Return a sample as bytes: anything that can be pickled.

    A tensor takes the way of an array, which is many times faster than that of torch, and a view
    goes without the rest of its storage.
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
            except (RuntimeError, TypeError):  # what NumPy does not have: gradients, bfloat16, CUDA
                return NotImplemented
        return NotImplemented
