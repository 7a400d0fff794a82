from __future__ import annotations

from dataclasses import replace

import pytest

from keepfed.measure.watch.report import findings
from tests.measure.watch.handmade import loop


def test_storage_bound_loader_gets_more_workers() -> None:
    said = " ".join(findings([loop()]).split())
    assert said.startswith("Try first: num_workers=8. Loader: Events, batch 32, 2 workers")
    assert "100 batches in 1 epoch: 800 ms in next(), 200 ms in the loop body, 80 % of" in said
    assert "One iteration takes 10 ms, including a wait of 8.0 ms." in said
    assert "Storage: of the 10 ms that a fetch takes, a worker" in said


def test_fast_loader_is_left_alone() -> None:
    for wait, at_best in ((0.2, "no faster"), (1.5, "1.1 times as fast")):
        said = " ".join(findings([loop(wait=wait, work=20.0)]).split())
        assert said.startswith("Leave the loaders alone"), wait
        assert said.count(f"An infinitely fast loader would make this loop {at_best}.") == 2, wait


def test_report_mentions_loss_at_start_of_epochs() -> None:
    said = " ".join(findings([loop(wait=0.1, work=10.0, first=3000.0, persistent=True)]).split())
    assert said.startswith("Look first at the start of each epoch.")
    assert "75 % of the time lost One iteration takes 10 ms, including a wait of 100 µs." in said
    assert "Most of the lost time is the wait for the first batches of an epoch." in said
    assert "no faster" not in said


def test_report_on_busy_machine_promises_no_gain() -> None:
    waiting = loop(wait=8.0, work=20.0, fetch=28.0)
    fetches = {n: f._replace(delay_ns=24_000_000) for n, f in waiting.fetches.items()}
    said = " ".join(findings([replace(waiting, fetches=fetches)]).split())
    assert said.startswith("Run this again while no other program computes.")
    assert "All cores were busy, so the report cannot tell whether the loader keeps up." in said
    assert "times as fast" not in said


@pytest.mark.parametrize("width", [60, 80])
def test_report_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    said = findings([loop(rank=rank, ranks=2, pid=rank) for rank in range(2)], others_cores=1.3)
    assert max(map(len, said.splitlines())) <= width


def test_report_starts_with_busy_machine() -> None:
    said = findings([loop()], others_cores=1.3)
    assert said.startswith("Other programs kept 1.3 of ")
    assert "\n\nTry first: num_workers=8." in said
    assert "Other programs" not in findings([loop()], others_cores=0.2)


def test_report_says_that_loading_slows_down() -> None:
    slower = {number: 5 + number / 10 for number in range(200)}
    said = " ".join(findings([loop(count=200, slow=slower)]).split())
    assert "a fetch takes 7.5 ms early in the run, but 22 ms late in it" in said
    uneven = {number: 5 + (number % 50) for number in range(200)}
    for steady in (loop(count=200), loop(count=200, slow=uneven), loop(count=30, slow=slower)):
        assert "slows down" not in findings([steady])
