"""What the caches of samples share: look first, ask the source for the rest, and count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from torch.utils.data import Dataset

from course_utils.loading.sample_bytes import from_bytes

T = TypeVar("T")


class CachedDataset(Dataset[T], Generic[T]):
    """A map-style dataset in front of another one, with the same samples.

    Each asking gives a new sample, so that to change one, as augmentation does, changes no other.
    """

    def __init__(self, dataset: Any, megabytes: float):
        """Remember the source.

        Args:
            dataset: a map-style dataset whose samples can be pickled.
            megabytes: 10^6 bytes that the samples may take.

        Raises:
            ValueError: `megabytes` is not more than nothing.
        """
        self.source, self.capacity = dataset, int(megabytes * 1e6)
        if self.capacity <= 0:
            raise ValueError(f"A cache of {megabytes:g} MB keeps nothing; give it some megabytes.")

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
        self._count(hits=len(wanted) - len(missing), misses=len(missing))
        if missing:
            self._keep(dict(zip(missing, fetched, strict=True)))
        new = iter(fetched)
        contents = (found[index] for index in wanted)
        return [next(new) if content is None else from_bytes(content) for content in contents]

    def __repr__(self) -> str:
        """Show how full it is and how often it was hit."""
        return (
            f"{type(self).__name__}: {self.samples:,} of {len(self):,} samples, "
            f"{self.nbytes / 1e6:,.1f} of {self.capacity / 1e6:,.1f} MB, {self.hit_share:.0%} hits"
        )

    @property
    def hits(self) -> int:
        """Samples that were found here since the last reset."""
        return self._counter("hits")

    @property
    def misses(self) -> int:
        """Samples that the source had to give since the last reset."""
        return self._counter("misses")

    @property
    def hit_share(self) -> float:
        """The share of samples that were found here; 0 before the first."""
        return self.hits / max(self.hits + self.misses, 1)

    @property
    def samples(self) -> int:
        """How many samples it keeps."""
        return self._counter("samples")

    @property
    def nbytes(self) -> int:
        """The bytes of what it keeps."""
        return self._counter("nbytes")

    def reset_counters(self) -> None:
        """Count hits and misses from zero; what is kept stays."""
        raise NotImplementedError

    def _fetch(self, indices: list[int]) -> list[T]:
        if indices and hasattr(self.source, "__getitems__"):
            samples: list[T] = self.source.__getitems__(indices)
            return samples
        return [self.source[index] for index in indices]

    def _look_up(self, index: int) -> bytes | memoryview | None:
        raise NotImplementedError

    def _keep(self, samples: Mapping[int, T]) -> None:
        raise NotImplementedError

    def _count(self, *, hits: int, misses: int) -> None:
        raise NotImplementedError

    def _counter(self, name: str) -> int:
        raise NotImplementedError
