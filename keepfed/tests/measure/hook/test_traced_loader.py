from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from keepfed.measure.hook import attach_report, detach_report
from keepfed.measure.trace import record
from tests.measure import datasets as data


def traced(loader: Any, ids: Any = None) -> tuple[list[Any], Any]:
    with record() as trace:
        batches = list(trace.batches(loader, ids=ids))
    return batches, trace


def stages(trace: Any, lane: str) -> set[str]:
    return {span.stage for span in trace.spans if span.lane == lane} - {"compute"}


def test_stages_without_workers_are_inside_the_wait_of_main() -> None:
    batches, trace = traced(DataLoader(data.Marked(), batch_size=4))
    assert len(batches) == 3
    assert stages(trace, "main") == {"wait", "read", "decode", "collate"}
    waits = {s.batch: s for s in trace.spans if s.stage == "wait"}
    for span in trace.spans:
        if span.stage == "compute":  # the body of this loop
            continue
        wait = waits[span.batch]
        assert wait.start_ns <= span.start_ns <= span.end_ns <= wait.end_ns
    _, unmarked = traced(DataLoader(data.Numbers(), batch_size=4))
    assert stages(unmarked, "main") == {"wait", "read", "collate"}


@pytest.mark.slow
def test_worker_spans_travel_with_the_batch(start_method: str) -> None:
    loader = DataLoader(data.Marked(), 4, num_workers=2, multiprocessing_context=start_method)
    batches, trace = traced(loader)
    assert [batch.ravel().tolist() for batch in batches] == [[*range(n, n + 4)] for n in (0, 4, 8)]
    assert stages(trace, "worker 0") == stages(trace, "worker 1") == {"read", "decode", "collate"}
    assert trace.summary().complete
    assert sorted(s.batch for s in trace.spans if s.stage == "collate") == [0, 1, 2]


EVENTS: Any = {"batch_size": 4, "collate_fn": data.to_dict}


def test_ledger_counts_samples_and_distinct_ids() -> None:
    for loader, ids, distinct in (
        (DataLoader(data.Stream(), num_workers=2, **EVENTS), None, None),  # unknown
        (DataLoader(data.Stream(), num_workers=2, **EVENTS), "event_id", 12),
        (DataLoader(data.Numbers(), **EVENTS), lambda batch: batch["event_id"] % 3, 3),
        (DataLoader(data.Numbers(), batch_size=None, num_workers=2), None, 12),
        (DataLoader(data.Numbers(), 4, collate_fn=data.to_slotted, num_workers=2), None, 12),
        ([list(range(12))], lambda batch: [torch.tensor(7) for _ in batch], 1),
    ):
        _, trace = traced(loader, ids)
        assert (trace.samples, trace.summary().distinct) == (12, distinct), loader


def test_repeated_samples_are_counted_for_every_type_of_index() -> None:
    for num_workers, sampling in (
        (0, {"sampler": torch.tensor([1, 2, 1, 2]), "batch_size": 2}),
        (2, {"sampler": np.array([1, 2, 1, 2]), "batch_size": 2}),
        (2, {"batch_sampler": [torch.tensor([1, 2]), torch.tensor([1, 2])]}),
        (0, {"batch_sampler": np.array([[1, 2], [1, 2]])}),
    ):
        _, trace = traced(DataLoader(data.Numbers(), num_workers=num_workers, **sampling))
        assert (trace.samples, trace.summary().distinct) == (4, 2), num_workers


def test_persistent_workers_send_spans_only_to_recordings() -> None:
    loader = DataLoader(data.Marked(), 4, num_workers=2, persistent_workers=True)
    with record() as first:
        next(first.batches(loader))
    assert {type(batch) for batch in loader} == {torch.Tensor}  # no reports outside a recording
    _, second = traced(loader)
    assert second.summary().complete
    assert sum(s.stage == "decode" for s in second.spans) == 12
    older = DataLoader(data.Marked(), 4, num_workers=1, persistent_workers=True)
    list(older)
    batches, trace = traced(older)
    assert [len(batch) for batch in batches] == [4, 4, 4]
    assert (trace.samples, trace.lanes) == (12, ["main"])


@pytest.mark.parametrize("batch", [(1, ["a"]), ["no mark", 2, 3], torch.ones(3)], ids=str)
def test_report_survives_the_pinning_thread(batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, *device: tensor + 1)
    pin_memory: Any = torch.utils.data._utils.pin_memory.pin_memory
    about = [("a span", 1)], {(1, 2): 3.0}
    assert detach_report(attach_report(batch, about)) == (batch, about)
    pinned, told = detach_report(pin_memory(attach_report(batch, about)))
    assert (str(pinned), told) == (str(pin_memory(batch)), about)
    assert detach_report(batch) == (batch, None)


def test_batch_numbers_continue_and_notes_appear_once() -> None:
    for num_workers in (0, 2):
        loader = DataLoader(data.Marked(), batch_size=4, num_workers=num_workers)
        with record() as trace:
            for _ in range(2):
                list(trace.batches(loader))
        assert trace.note.count("emulated tape") == 1, num_workers
        assert {s.batch for s in trace.spans if s.stage == "collate"} == {*range(6)}, num_workers
