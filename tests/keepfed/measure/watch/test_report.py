from __future__ import annotations

import re
from dataclasses import replace

import pytest

from keepfed.measure.watch import report
from keepfed.measure.watch.report import findings
from tests.keepfed.measure.watch.handmade import MS, loop


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


def test_a_change_that_gains_little_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "WORTHWHILE_GAIN", 100.0)
    said = " ".join(findings([loop()]).split())
    assert "where a change may gain a little" in said
    assert "Change that may gain a little: num_workers=" in said


def test_a_busy_machine_is_said_first() -> None:
    said = findings([loop()], others_cores=1.3)
    assert said.startswith("Other programs kept 1.3 of ")
    assert "\n\nTry first: num_workers=8." in said
    assert "Other programs" not in findings([loop()], others_cores=0.2)


def test_a_gain_is_given_with_its_range_where_the_parts_of_the_run_differ() -> None:
    even = loop(count=400)
    assert "by parts of the run" not in findings([even])
    later = [  # twice as slow a step in the second half
        one._replace(left_ns=one.left_ns + 2 * MS * (one.number >= 200)) for one in even.iterations
    ]
    said = " ".join(findings([replace(even, iterations=later)]).split())
    low, high = re.findall(r"\(([\d.]+) to ([\d.]+) by parts of the run\)", said)[0]
    assert float(low) < float(high)
