from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from course_utils.measure.watch.report import findings, traces, write
from tests.measure.watch.handmade import loop


def test_a_loader_that_waits_for_storage_reads_so() -> None:
    said = findings([loop()])
    assert said.startswith("Try first: num_workers=8. This is for Events, batch 32, 2 workers")
    assert "100 batches in 1 epoch: 800 ms in next() and 200 ms in the loop, 80 % lost" in said
    assert "A turn takes 10 ms, 8.0 ms of it waiting." in said
    assert "Storage: of the 10 ms that a fetch takes, a worker" in said
    assert "Watching cannot tell what the step takes by itself" in said


@pytest.mark.parametrize(("wait", "at_best"), [(0.2, "no faster"), (1.5, "1.1 times as fast")])
def test_a_loader_that_keeps_up_is_left_alone(wait: float, at_best: str) -> None:
    said = " ".join(findings([loop(wait=wait, work=20.0)]).split())
    assert said.startswith("Leave the loaders alone")
    assert f"never let its loop wait, that would be {at_best}." in said
    assert f"an infinitely fast one would make this loop {at_best}." in said


def test_a_loop_that_loses_most_at_the_start_of_its_epochs_is_not_said_to_lose_nothing() -> None:
    said = " ".join(findings([loop(wait=0.1, work=10.0, first=3000.0, persistent=True)]).split())
    assert said.startswith("Look first at how an epoch of Events, batch 32, 2 workers, at train.py")
    assert "75 % lost A turn takes 10 ms, 100 µs of it waiting. Most of what was lost is" in said
    assert "no faster" not in said


def test_workers_that_start_in_each_epoch_cost_those_after_the_first() -> None:
    said = " ".join(findings([loop(wait=0.1, work=9.0, first=5000.0, fetch=4.0)]).split())
    assert "Change: persistent_workers=True. Predicted gain: each epoch after the first 6.5" in said


def test_a_loader_whose_cores_others_have_is_to_be_watched_again_and_promised_no_gain() -> None:
    waiting = loop(wait=8.0, work=20.0, fetch=28.0)
    fetches = {n: f._replace(delay_ns=24_000_000) for n, f in waiting.fetches.items()}
    said = " ".join(findings([replace(waiting, fetches=fetches)]).split())
    assert said.startswith("Watch it again when no other program computes: whether Events, batch")
    assert "whether it keeps up by itself cannot be told" in said
    assert "times as fast" not in said


def test_a_change_that_gains_little_is_not_named() -> None:
    said = findings([loop(wait=3.0, work=8.0, cpu=9.5, fetch=20.0, workers=4)])
    assert "Change:" not in said or "1.0 times" not in said


@pytest.mark.parametrize(("count", "begins_amid"), [(100, False), (300, True)])
def test_the_first_wait_of_the_last_iterations_is_no_start_up(
    count: int, begins_amid: bool
) -> None:
    (trace,) = traces([loop(count=count)]).values()
    assert (trace.summary().start_up_s == 0) == begins_amid


def test_ranks_stand_below_each_other_and_the_late_one_is_named() -> None:
    ranks = [
        loop(wait=1.0, work=9.0, rank=0, ranks=2, pid=1, fetch=2.0),
        loop(wait=8.0, work=2.0, rank=1, ranks=2, pid=2),
    ]
    said = findings(ranks)
    assert said.index("  rank 0: ") < said.index("  rank 1: ")
    assert "Rank 1 holds up the others: it comes last to 99 of 99 meetings" in said


def test_idle_time_of_a_device_is_divided_as_far_as_it_is_known() -> None:
    assert "No CUDA device computed" in findings([loop()])
    assert "idle for the loader 20 % of the time" in findings([loop(wait=6.0, work=4.0, idle=2.0)])


def test_page_and_trace_hold_the_last_turns_of_all_ranks(tmp_path: Path) -> None:
    ranks = [loop(rank=rank, ranks=2, pid=rank, count=300) for rank in range(2)]
    said = write(ranks, tmp_path / "out", "torchrun <train>.py")
    page, file = tmp_path / "out/timeline.html", tmp_path / "out/trace.json"
    assert f"The last turns: {page}" in said
    assert "<h1>torchrun &lt;train&gt;.py</h1>" in page.read_text("utf-8")
    assert page.stat().st_size < 200_000
    events = json.loads(file.read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"rank 0", "rank 1"}
    assert {event["pid"] for event in events} == {1, 2}
    for trace in traces(ranks).values():
        assert trace.lanes == ["worker 0", "worker 1", "main"]
        assert trace.served == 200


def test_of_a_loader_that_was_asked_once_no_share_is_told() -> None:
    one = loop(count=1)
    said = findings([replace(one, totals=one.totals._replace(epochs=0, worked_ns=0))])
    assert "  1 batch: 8.0 ms in next()\n" in said


def test_nothing_is_written_where_nothing_was_seen(tmp_path: Path) -> None:
    assert write([], tmp_path / "out", "x").startswith("No DataLoader gave a batch")
    assert not (tmp_path / "out").exists()


def test_a_change_that_gains_little_is_named_as_such() -> None:
    said = " ".join(findings([loop(wait=2.0, work=8.0, fetch=9.0, cpu=8.9)]).split())
    assert "where a change may gain a little" in said
    assert "Change that may gain a little: do what the dataset computes once" in said
