"""Batches that continue after a restart: all samples once, even if the job has changed."""

from itertools import chain, product
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from keepfed.loaders.prefetch import ThreadPrefetcher
from keepfed.loaders.resume import ResumableBatches, sample_rng
from keepfed.loaders.stream import WorkerSlot, epoch_rng
from keepfed.loaders.workers import SharedEpoch


class Noisy(Dataset[torch.Tensor]):
    """Dataset whose sample n is n and a random number for this epoch."""

    def __init__(self, epoch: SharedEpoch):
        self.epoch = epoch

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, sample_rng(0, self.epoch.value, index).random()])


def taken(batches: ResumableBatches, steps: int | None = None) -> list[list[int]]:
    """Return the batches of the next `steps` steps, or until the epoch ends."""
    loop = batches.follow(batches)
    return [batch for _, batch in zip(range(steps or 1000), loop, strict=False)]


def goes_on(state: dict[str, Any], *arguments: int, **options: Any) -> ResumableBatches:
    batches = ResumableBatches(*arguments, **options)
    batches.load_state_dict(state)
    return batches


def test_job_stopped_after_any_step_serves_the_rest() -> None:
    whole = ResumableBatches(50, 8, seed=1)
    wanted = [*taken(whole), *taken(whole)]
    assert sorted(chain(*wanted[:7])) == sorted(chain(*wanted[7:])) == list(range(50))
    assert wanted[:7] != wanted[7:]
    for steps in range(7):
        first = ResumableBatches(50, 8, seed=1)
        before = taken(first, steps) if steps else []
        second = goes_on(first.state_dict(), 50, 8, seed=1)
        assert len(second) == 7 - steps
        assert before + taken(second) + taken(second) == wanted


def test_all_ranks_have_equally_many_batches() -> None:
    for samples, size, ranks, drop in product((1, 5, 12, 13, 23), (1, 3, 4), (1, 2, 5), (0, 1)):
        places = [WorkerSlot(rank, ranks) for rank in range(ranks)]
        jobs = [ResumableBatches(samples, size, slot=p, drop_last=bool(drop)) for p in places]
        counted, parts = [*map(len, jobs)], [taken(job) for job in jobs]
        assert [*map(len, parts)] == counted
        assert len({*counted}) == 1
        assert all(batch for part in parts for batch in part)
        served = [*chain(*chain(*parts))]
        assert len(set(served)) == len(served) > samples - (size * ranks if drop else ranks)


def test_without_shuffling_samples_are_served_in_order() -> None:
    batches = ResumableBatches(10, 4, shuffle=False)
    wanted = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert taken(batches) == taken(batches) == wanted
    assert taken(batches, 1) == wanted[:1]
    assert taken(goes_on(batches.state_dict(), 10, 4, shuffle=False)) == wanted[1:]


def test_too_small_number_is_rejected() -> None:
    for number in ("n_samples", "batch_size"):
        with pytest.raises(ValueError, match=rf"`{number}` must be at least 1, but is 0"):
            ResumableBatches(**{"n_samples": 4, "batch_size": 2, number: 0})


@pytest.mark.slow
@pytest.mark.many_workers
def test_resume_serves_prefetched_batches_with_the_same_noise(start_method: str) -> None:
    """Two persistent workers and a thread prefetch before the restart; one resumes, or none."""

    def load(batches: ResumableBatches, workers: int) -> Any:
        options: dict[str, Any] = {"num_workers": workers}
        if workers:
            options |= {"multiprocessing_context": start_method, "persistent_workers": True}
        loader = DataLoader(Noisy(batches.epoch), batch_sampler=batches, **options)
        return batches.follow(ThreadPrefetcher(loader, 3))

    whole = ResumableBatches(60, 4)
    wanted = torch.cat([*load(whole, 0), *load(whole, 0)]).tolist()
    first = ResumableBatches(60, 4)
    loop = load(first, 2)
    part = [next(loop) for _ in range(5)]
    state = first.state_dict()
    loop.close()
    for workers in (1, 0):
        second = goes_on(state, 60, 4)
        rest = [*load(second, workers), *load(second, workers)]
        assert torch.cat(part + rest).tolist() == wanted


def test_each_sample_of_each_epoch_has_its_own_random_numbers() -> None:
    cases = product((0, 1), (0, 1), (0, 1, 2))
    draws = [sample_rng(*case).random() for case in cases]
    draws += [epoch_rng(seed, epoch).random() for seed, epoch in product((0, 1), (0, 1))]
    assert len(set(draws)) == len(draws)
    np.testing.assert_equal(sample_rng(1, 2, 3).random(4), sample_rng(1, 2, 3).random(4))


def test_state_of_the_last_batch_leaves_an_empty_loop() -> None:
    batches = ResumableBatches(10, 4)
    loop = batches.follow(batches)
    for _ in range(3):
        next(loop)
    again = goes_on(batches.state_dict(), 10, 3)
    assert len(again) == 0
    assert taken(again) == []
    assert len(taken(again)) == 4
