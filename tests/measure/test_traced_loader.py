from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from course_utils.measure.trace import record

sys.path.insert(0, str(Path(__file__).parent))  # workers import the datasets by this name
import tracing_datasets as data

START_METHODS = multiprocessing.get_all_start_methods()


def workers(start_method: str = START_METHODS[0], **options: Any) -> dict[str, Any]:
    return {"num_workers": 2, "multiprocessing_context": start_method, **options}


def traced(loader: DataLoader[Any], ids: Any = None) -> tuple[list[Any], Any]:
    with record() as trace:
        batches = list(trace.batches(loader, ids=ids))
    return batches, trace


def stages(trace: Any, lane: str) -> set[str]:
    return {span.stage for span in trace.spans if span.lane == lane}


def test_without_workers_the_stages_stand_in_the_main_lane_inside_the_wait() -> None:
    batches, trace = traced(DataLoader(data.Marked(), batch_size=4))
    assert len(batches) == 3
    assert stages(trace, "main") == {"wait", "read", "decode", "collate"}
    waits = {s.batch: s for s in trace.spans if s.stage == "wait"}
    for span in trace.spans:
        assert (
            waits[span.batch].start_ns <= span.start_ns <= span.end_ns <= waits[span.batch].end_ns
        )


@pytest.mark.slow
@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.parametrize("dataset", [data.Marked(), data.Unmarked()], ids=["marked", "unmarked"])
def test_worker_spans_travel_with_the_batch(dataset: Any, start_method: str) -> None:
    loader = DataLoader(dataset, batch_size=4, **workers(start_method))
    batches, trace = traced(loader)
    assert len(batches) == 3
    assert stages(trace, "worker 0") >= {"read", "collate"}
    assert stages(trace, "worker 1") >= {"read", "collate"}
    assert trace.summary().complete
    collated = sorted(s.batch for s in trace.spans if s.stage == "collate")
    assert collated == [0, 1, 2]


def test_an_iterable_dataset_needs_ids_for_its_ledger() -> None:
    loader = DataLoader(data.Stream(), batch_size=4, collate_fn=data.to_dict, **workers())
    _, unknown = traced(loader)
    _, known = traced(loader, ids="event_id")
    assert (unknown.samples, unknown.summary().distinct) == (12, None)
    assert (known.samples, known.summary().distinct) == (12, 12)
    assert "read" in stages(known, "worker 1")


def test_ids_may_be_a_function_of_the_batch() -> None:
    loader = DataLoader(data.Unmarked(), batch_size=4, collate_fn=data.to_dict)
    _, trace = traced(loader, ids=lambda batch: batch["event_id"] % 3)
    assert trace.summary().distinct == 3


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    "sampling",
    [
        {"sampler": torch.tensor([1, 2, 1, 2]), "batch_size": 2},
        {"sampler": np.array([1, 2, 1, 2]), "batch_size": 2},
        {"batch_sampler": [torch.tensor([1, 2]), torch.tensor([1, 2])]},
        {"batch_sampler": np.array([[1, 2], [1, 2]])},
    ],
    ids=["tensors", "numbers of numpy", "batches of tensors", "batches of numpy"],
)
def test_a_sample_is_known_again_whatever_type_its_index_has(
    sampling: dict[str, Any], num_workers: int
) -> None:
    _, trace = traced(DataLoader(data.Unmarked(), num_workers=num_workers, **sampling))
    assert (trace.samples, trace.summary().distinct) == (4, 2)


def test_ids_may_be_a_list_of_tensors() -> None:
    with record() as trace:
        list(trace.batches([[1, 2]], ids=lambda batch: [torch.tensor(7) for _ in batch]))
    assert trace.summary().distinct == 1


def test_a_batch_may_be_a_dataclass_with_slots() -> None:
    with record() as trace:
        list(trace.batches([data.Slotted(torch.zeros(5, 2))]))
    assert trace.samples == 5


def test_persistent_workers_of_before_the_recording_serve_without_spans() -> None:
    loader = DataLoader(data.Marked(), batch_size=4, persistent_workers=True, **workers())
    list(loader)
    batches, trace = traced(loader)
    assert [len(batch) for batch in batches] == [4, 4, 4]
    assert (trace.samples, trace.lanes) == (12, ["main"])


def test_a_loader_without_batching_is_traced() -> None:
    batches, trace = traced(DataLoader(data.Unmarked(), batch_size=None, **workers()))
    assert [float(b) for b in batches] == [float(i) for i in range(12)]
    assert (trace.samples, trace.summary().complete) == (12, True)


def test_any_collate_keeps_the_type_of_its_batch() -> None:
    loader = DataLoader(data.Unmarked(), batch_size=4, collate_fn=data.to_pair, **workers())
    batches, trace = traced(loader)
    assert all(isinstance(b, data.Pair) for b in batches)
    assert trace.samples == 12


def test_the_loader_is_left_as_it_was() -> None:
    loader = DataLoader(data.Noted(), batch_size=4, worker_init_fn=data.note_worker, **workers())
    before = loader.collate_fn, loader.worker_init_fn
    batches, _ = traced(loader)
    assert (loader.collate_fn, loader.worker_init_fn) == before
    assert sorted({float(v) for b in batches for v in b}) == [0.0, 1.0]  # its own init did run


def test_persistent_workers_send_plain_batches_outside_a_recording() -> None:
    loader = DataLoader(data.Marked(), batch_size=4, persistent_workers=True, **workers())
    _, first = traced(loader)
    plain = list(loader)
    _, second = traced(loader)
    assert all(isinstance(batch, torch.Tensor) for batch in plain)
    assert first.summary().complete
    assert second.summary().complete
    assert stages(second, "worker 0") == {"read", "decode", "collate"}
    assert sum(s.stage == "decode" for s in second.spans) == 12


def test_a_break_leaves_the_loader_usable_and_sends_plain_batches() -> None:
    loader = DataLoader(data.Marked(), batch_size=4, persistent_workers=True, **workers())
    with record() as trace:
        for _ in trace.batches(loader):
            break
    assert all(isinstance(batch, torch.Tensor) for batch in loader)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_in_the_dataset_arrives(num_workers: int) -> None:
    loader = DataLoader(data.Broken(), batch_size=4, num_workers=num_workers)
    with pytest.raises(ValueError, match="corrupt sample 5"):
        traced(loader)
    assert len(list(DataLoader(data.Unmarked(), batch_size=4))) == 3


def test_pinning_reaches_the_batch_inside_the_parcel(monkeypatch: pytest.MonkeyPatch) -> None:
    from course_utils.measure.spans import traced_loader

    monkeypatch.setattr(traced_loader, "pin_tensors", lambda batch: ("pinned", batch))
    parcel = traced_loader.Parcel([1], [], "", None).pin_memory()
    assert parcel.batch == ("pinned", [1])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_a_worker_emulates_is_mentioned_once(num_workers: int) -> None:
    loader = DataLoader(data.Emulating(), batch_size=4, num_workers=num_workers)
    with record() as trace:
        trace.mention("emulated GPU")
        list(trace.batches(loader))
    assert trace.note == "emulated GPU, emulated tape"


def test_two_epochs_in_one_recording_number_their_batches_on() -> None:
    loader = DataLoader(data.Unmarked(), batch_size=4)
    with record() as trace:
        for _epoch in range(2):
            list(trace.batches(loader))
    assert sorted({s.batch for s in trace.spans if s.stage == "collate"}) == list(range(6))
    assert trace.summary().distinct == 12
