"""Loops in this process, with torch patched as under `keepfed watch`."""

import re
import threading
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, dataloader

from keepfed.measure.spans import stage
from keepfed.measure.trace import record
from keepfed.measure.watch.report import as_text
from keepfed.measure.watch.timing import step_timer, watching
from keepfed.measure.watch.timing.ring_file import ENDING, ROWS, records_folder
from keepfed.measure.watch.watched_loop import watched_loops
from tests.measure.datasets import Marked, Numbers, Stream
from tests.measure.watch.handmade import Observed


def lambda_free(samples: list[float]) -> torch.Tensor:
    return torch.tensor(samples) + torch.rand(())  # of the collating process


KINDS: dict[str, dict[str, Any]] = {
    "map-style": {"dataset": Numbers(), "batch_size": 4, "shuffle": True},
    "stages": {"dataset": Marked(), "batch_size": 4, "shuffle": True},
    "iterable": {"dataset": Stream(), "batch_size": 4},
    "no batches": {"dataset": Numbers(), "batch_size": None, "shuffle": True},
    "collate": {"dataset": Numbers(), "batch_size": 4, "collate_fn": lambda_free},
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_and_random_numbers_are_identical(
    kind: str, workers: int, seen: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[bytes]:
        torch.manual_seed(3)
        loader = DataLoader(**KINDS[kind], num_workers=workers)
        taken = [torch.as_tensor(batch) for _ in range(2) for batch in loader]
        return [tensor.double().numpy().tobytes() for tensor in (*taken, torch.rand(4))]

    watched = run()
    assert [one.totals.epochs for one in seen()] == [2]
    assert seen()[0].totals.iterations == len(watched) - 1
    monkeypatch.undo()
    assert run() == watched


def test_iterator_and_loader_stay_unchanged(seen: Observed) -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=1, persistent_workers=True)
    before = {**vars(loader), "_iterator": None}
    iterator = iter(loader)
    assert isinstance(iterator, dataloader._MultiProcessingDataLoaderIter)
    next(iterator)  # leaves the epoch early
    assert len(list(loader)) == 3
    assert {**vars(loader), "_iterator": None} == before
    places = [(one.epoch, one.place) for one in seen()[0].iterations]
    assert places == [(0, 0), (0, 0), (0, 1), (0, 2)]
    assert seen()[0].fetches[3].worker == 0


def test_iteration_contains_fetch_of_its_batch(seen: Observed) -> None:
    for _ in DataLoader(Marked(32), batch_size=1, num_workers=1):
        pass
    (one,) = seen()
    assert (one.about["dataset"], one.about["workers"]) == ("Marked", 1)
    assert one.about["at"].startswith("test_step_timer.py:")
    for iteration in one.iterations:
        fetch = one.fetches[iteration.number]
        assert 0 < fetch.began_ns <= fetch.collated_ns <= fetch.ended_ns <= iteration.got_ns
        assert fetch.read_ns > 0
        assert fetch.decode_ns > 0
    read = [fetch for fetch in one.fetches.values() if fetch.cpu_ns >= 0]
    assert 0 < len(read) < len(one.fetches)  # CPU time is read only in some short fetches
    assert all(fetch.process_cpu_ns >= fetch.cpu_ns > 0 for fetch in read)


@pytest.mark.parametrize("leaves_early", [False, True])
def test_all_short_iterations_are_written_and_metered(
    seen: Observed, monkeypatch: pytest.MonkeyPatch, leaves_early: bool
) -> None:
    monkeypatch.setattr(step_timer, "SHORT_NS", 0)
    loader, served = DataLoader(Marked(45), batch_size=1), []
    for batch in loader:
        served.append(batch)
        if leaves_early and len(served) == 40:
            break
    monkeypatch.undo()
    assert torch.equal(torch.stack(served), torch.stack(list(loader)[: len(served)]))
    one = seen()[0]
    found = one.iterations[: len(served)]
    assert [each.place for each in found] == list(range(len(served)))
    for each, later in pairwise(found):
        fetch = one.fetches[each.number]
        assert each.asked_ns <= fetch.began_ns < fetch.ended_ns <= each.got_ns
        assert each.left_ns == later.asked_ns
        assert fetch.decode_ns > 0


@pytest.mark.parametrize("kind", ["DataLoader", "list"])
@pytest.mark.parametrize("leaves_early", [False, True])
def test_few_short_iterations_are_timed(kind: str, leaves_early: bool, seen: Observed) -> None:
    length = 3 * ROWS
    loader = DataLoader(Numbers(length), batch_size=None)
    batches = watching.watch_batches([*range(length)]) if kind == "list" else loader
    served = []
    for batch in batches:
        served.append(float(batch))
        if leaves_early and len(served) == 2 * ROWS:
            break
    del batches
    assert served == [*range(2 * ROWS if leaves_early else length)]
    step_timer.write_down()
    (one,) = seen()
    assert (one.totals.iterations, one.totals.epochs) == (len(served), not leaves_early)
    assert 0 < one.totals.timed < 0.1 * length
    assert [each.number for each in one.iterations] == [each.place for each in one.iterations]
    last_ns = one.totals.last_ns if leaves_early else one.iterations[-1].got_ns
    lasted_ns = last_ns - one.totals.first_ns
    assert one.totals.waited_ns + one.totals.worked_ns >= 0.5 * lasted_ns
    said = as_text(watched_loops([one]))
    assert "too few batches" not in said
    assert re.search(r"batches.* \(1 in \d+ was timed\): ", said)


def test_loop_in_notebook_cell_has_readable_name(seen: Observed) -> None:
    cell = "\nlist(DataLoader(Numbers(8), batch_size=None))"
    exec(compile(cell, str(Path("ipykernel_7", "1312887937.py")), "exec"), globals())
    assert seen()[0].about["at"] == "line 2 of a cell"


def test_long_run_needs_no_more_space(seen: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_timer, "SHORT_NS", 0)  # times every iteration

    def size() -> int:
        return sum(file.stat().st_size for file in records_folder().glob(f"*{ENDING}"))

    list(DataLoader(Numbers(8), batch_size=None))
    few = size()
    for _ in range(3):  # the earlier loaders no longer exist, so one record serves all three
        list(DataLoader(Numbers(ROWS), batch_size=None))
    assert size() == 2 * few  # one for each line of code with a loop
    last = max(seen(), key=lambda one: one.totals.iterations)
    assert last.totals.iterations == 3 * ROWS
    assert [one.number for one in last.iterations] == [*range(2 * ROWS, 3 * ROWS)]


def test_time_of_inner_loader_is_not_counted(seen: Observed) -> None:
    outer, inner = DataLoader(Numbers(3)), DataLoader(Numbers(2))
    for number, _ in enumerate(outer):
        if number == 1:
            list(inner)
    first = next(one for one in seen() if one.totals.iterations == 3)
    # the inner loop ran in the second iteration
    assert [one.left_ns > 0 for one in first.iterations] == [True, False, True]
    assert first.iterations[1].left_ns == -1
    assert first.totals.worked_ns == sum(one.left_ns - one.got_ns for one in first.iterations[::2])


def test_next_in_another_thread_is_counted(seen: Observed) -> None:
    thread = threading.Thread(target=lambda: list(DataLoader(Numbers(4))))
    thread.start()
    thread.join()
    assert seen()[0].totals.elsewhere == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_trace_of_watched_loader_is_complete(workers: int, seen: Observed) -> None:
    with record() as trace:
        for batch in trace.batches(DataLoader(Marked(), batch_size=4, num_workers=workers)):
            assert batch.shape == (4, 1)
            with stage("compute"):
                pass
    assert {"read", "decode", "collate", "wait"} <= {span.stage for span in trace.spans}
    assert trace.sample_ids == [*range(12)]
    assert seen()[0].totals.iterations == 3


def test_description_of_loader_does_not_call_len(seen: Observed) -> None:
    loader = DataLoader(Stream(), batch_size=6)
    list(loader)
    about = seen()[0].about
    assert (about["takes"], about["batch_size"], about["batch_bytes"]) == ("stream", 6, 48)
    assert loader._IterableDataset_len_called is None


def test_cpu_time_of_steps_is_measured(seen: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_timer, "process_time_ns", count(1, 1000).__next__)
    list(DataLoader(Numbers(), batch_size=1))
    assert seen()[0].totals.step_cpu_ns == 1000
