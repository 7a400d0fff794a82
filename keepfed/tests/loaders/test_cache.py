"""Caches of samples: the same samples, fewer requests, and no eviction."""

import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from keepfed.errors import KeepfedError
from keepfed.loaders import cache as loading_cache
from keepfed.loaders.cache import SampleCache, from_bytes, to_bytes
from tests.loaders.staging.staging_sources import start

unix = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")


class Rows(Dataset[torch.Tensor]):
    """Dataset of samples of 1,000 bytes with their index; lists the requested indices."""

    def __init__(self, count: int = 100):
        self.count, self.asked = count, list[list[int]]()

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, indices: Sequence[int]) -> list[torch.Tensor]:
        self.asked.append(list(indices))
        return [torch.full((125,), index, dtype=torch.int64) for index in indices]


ROW = len(to_bytes(torch.zeros(125, dtype=torch.int64)))


def cache_of(source: Any, samples: int = 100) -> SampleCache[Any]:
    return SampleCache(source, (samples * ROW + 10) / 1e6)


def values(samples: list[torch.Tensor]) -> list[int]:
    return [int(sample[0]) for sample in samples]


def test_missing_samples_of_a_batch_are_requested_together_once() -> None:
    rows = Rows()
    cache = cache_of(rows)
    cache.__getitems__([3, 1])
    assert values(cache.__getitems__([5, 1, -1, 3, 5])) == [5, 1, 99, 3, 5]
    assert rows.asked == [[3, 1], [5, 99, 5]]
    assert cache.samples == 4
    cache[3].zero_()  # does not change other samples
    for _ in range(2):
        assert values([cache[index] for index in range(100)]) == list(range(100))
    assert len(rows.asked) == 2 + 96
    assert (cache.samples, cache.nbytes) == (100, 100 * ROW)


def test_source_without_batches_is_read_sample_by_sample() -> None:
    source = ["a", "b", "c"]
    cache: SampleCache[str] = SampleCache(source, 1)
    for _ in range(2):
        assert cache.__getitems__([2, 0]) == ["c", "a"]
        source[:] = ["", "", ""]  # everything comes from the cache
    with pytest.raises(IndexError):
        cache[3]


def test_share_of_hits_is_the_share_of_the_data_that_fits() -> None:
    rows = Rows()
    cache = cache_of(rows, 60)
    for epoch in range(5):
        rows.asked.clear()
        for index in torch.randperm(100).tolist():
            cache[index]
        assert len(rows.asked) == (40 if epoch else 100)
    assert repr(cache) == "SampleCache: 60 of 100 samples, 0.1 of 0.1 MB"
    larger_than_all: SampleCache[Any] = SampleCache(rows, 0.0005)
    assert values([larger_than_all[3], larger_than_all[3]]) == [3, 3]
    assert larger_than_all.samples == 0


class Counted(Dataset[torch.Tensor]):
    """Dataset whose sample n is n; counts the reads of all workers."""

    def __init__(self) -> None:
        self.reads = torch.zeros(60, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return len(self.reads)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.reads[index] += 1
        return torch.tensor(index)


@pytest.mark.slow
def test_workers_read_each_sample_once_in_all_epochs(start_method: str) -> None:
    source = Counted()
    cache = SampleCache(source, 1)
    how: Any = {"num_workers": 2, "multiprocessing_context": start_method}
    how["persistent_workers"] = start_method != "fork"  # other start methods take seconds
    loader = DataLoader(cache, batch_size=5, shuffle=True, **how)
    for _ in range(2):
        assert sorted(torch.cat(list(loader)).tolist()) == list(range(60))
    assert source.reads.tolist() == [1] * 60
    assert cache.samples == 60


def fill(cache: SampleCache[Any], seed: int) -> None:
    for indices in torch.randperm(400, generator=torch.Generator().manual_seed(seed)).split(10):
        cache.__getitems__(indices.tolist())


@unix
def test_four_concurrent_writers_store_each_sample_once() -> None:
    cache = cache_of(Rows(400), 400)
    processes = [start(fill, cache, seed) for seed in range(4)]
    for process in processes:
        process.join()
    assert (cache.samples, cache.nbytes) == (400, 400 * ROW)
    assert values(cache.__getitems__(range(400))) == list(range(400))


def fill_and_die(cache: SampleCache[Any]) -> None:
    """Get killed when half of the first sample is written."""
    memory = cache._bytes()

    class HalfWritten:
        def __setitem__(self, place: slice, content: bytes) -> None:
            memory[place.start : place.start + len(content) // 2] = content[: len(content) // 2]
            os.kill(os.getpid(), signal.SIGKILL)

    cache._bytes = HalfWritten  # type: ignore[method-assign,assignment]
    cache.__getitems__([1, 2, 3])


@unix
def test_killed_worker_leaves_no_partial_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading_cache, "_PATIENCE", 0.01)  # it holds the lock forever
    cache = cache_of(Rows())
    process = start(fill_and_die, cache)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    for _ in range(2):
        assert values(cache.__getitems__([1, 2, 3, 4])) == [1, 2, 3, 4]
    assert cache.samples == 0


def test_lock_of_a_dead_worker_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading_cache, "_PATIENCE", 0.01)
    cache = cache_of(Rows())
    cache.__getitems__([1, 2])
    cache._lock.acquire()
    assert values(cache.__getitems__([1, 2, 3])) == [1, 2, 3]
    assert values(cache.__getitems__([3, 2, 1])) == [3, 2, 1]
    assert cache.samples == 2


def test_invalid_cache_size_is_rejected() -> None:
    with pytest.raises(KeepfedError, match=r"needs 9,000,000 MB.*Make the cache smaller"):
        SampleCache(Rows(), 9e6)
    with pytest.raises(ValueError, match="`megabytes` must be greater than 0, but is 0"):
        SampleCache(Rows(), 0)


def test_tensors_are_returned_unchanged() -> None:
    for tensor in (
        torch.zeros(0, 4),
        torch.arange(24.0).reshape(4, 6).T,
        torch.ones(2, dtype=torch.bfloat16),
        torch.nn.Parameter(torch.ones(2)),
    ):
        back = from_bytes(to_bytes({"x": [tensor, "text", 1]}))["x"][0]
        assert type(back) is type(tensor)
        assert (back.dtype, back.requires_grad) == (tensor.dtype, tensor.requires_grad)
        assert torch.equal(back, tensor)
    view = torch.zeros(1_000_000)[:10]  # cached without the rest of its storage
    assert len(to_bytes(view)) < 1000


def test_cache_works_without_the_undocumented_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", None, raising=False)
    cached = SampleCache([torch.arange(3), torch.arange(4)], megabytes=0.1)
    assert [cached[index].tolist() for index in (1, 1)] == [[0, 1, 2, 3]] * 2
    assert cached.samples == 1
    assert cached._memory.is_shared()
