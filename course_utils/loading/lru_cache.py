"""Keep the samples that were asked for last: what most caches do, and what no epoch needs."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any, TypeVar

from course_utils.loading.cached_dataset import CachedDataset
from course_utils.loading.sample_bytes import to_bytes

T = TypeVar("T")


class LruCache(CachedDataset[T]):
    """A cache that makes room by giving up what was used longest ago; each process has its own.

    Over a set in order that is a little larger than the cache it never hits: each sample goes just
    before its turn comes again. Use `SampleCache` for training.
    """

    def __init__(self, dataset: Any, megabytes: float):
        """Keep nothing yet; the arguments and errors are those of `CachedDataset`."""
        super().__init__(dataset, megabytes)
        self._contents: OrderedDict[int, bytes] = OrderedDict()
        self._counters: Counter[str] = Counter()

    def reset_counters(self) -> None:
        """Count hits and misses from zero; what is kept stays."""
        self._counters["hits"] = self._counters["misses"] = 0

    def _look_up(self, index: int) -> bytes | None:
        if index in self._contents:
            self._contents.move_to_end(index)
        return self._contents.get(index)

    def _keep(self, samples: Mapping[int, T]) -> None:
        for index, sample in samples.items():
            content = to_bytes(sample)
            if len(content) <= self.capacity:
                self._contents[index] = content
                self._counters["nbytes"] += len(content)
                while self._counters["nbytes"] > self.capacity:
                    _, oldest = self._contents.popitem(last=False)
                    self._counters["nbytes"] -= len(oldest)

    def _count(self, *, hits: int, misses: int) -> None:
        self._counters.update(hits=hits, misses=misses)

    def _counter(self, name: str) -> int:
        return len(self._contents) if name == "samples" else self._counters[name]
