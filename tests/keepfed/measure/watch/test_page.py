"""The page of a watched program names cause, cost, change and proof, and fits on one page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from keepfed.measure.watch.report import write
from keepfed.measure.watch.timing.ring_file import ProgramRun
from tests.keepfed.measure.watch.handmade import loop

RUN = ProgramRun("python jobs/train.py --lr 1", machine="node7, Linux, 8 cores", ended="today")


def words(page: Path) -> str:
    """Return the text of a page without its scripts and styles."""
    bare = re.sub(r"<(script|style|svg).*?</\1>", "", page.read_text("utf-8"), flags=re.DOTALL)
    return " ".join(re.sub("<[^>]+>", " ", bare).split())


def test_page_names_cause_cost_change_and_machine(tmp_path: Path) -> None:
    assert str(tmp_path / "report.html") in write([loop()], tmp_path, RUN._replace(price=2.5))
    said = words(tmp_path / "report.html")
    assert "What train.py waits for train.py waits 80 % of its time for data, because" in said
    assert "200 € lost, at 2.50 € an hour" in said
    assert "loader = DataLoader(..., num_workers=8)" in said
    assert "Not measured yet. Make the change, and run the same command" in said
    assert "node7, Linux, 8 cores · today" in said
    assert "keepfed watch python jobs/train.py --lr 1" in said
    write([loop()], tmp_path, RUN)
    assert "80 hours lost" in words(tmp_path / "report.html")


def test_page_of_a_second_run_compares_both(tmp_path: Path) -> None:
    write([loop()], tmp_path / "out", RUN._replace(ended="yesterday"))
    faster = loop(wait=0.5, work=2.0, workers=8)
    write([faster], tmp_path / "out-2", RUN._replace(before=str(tmp_path / "out")))
    said = words(tmp_path / "out-2" / "report.html")
    assert "Measured: this run is 4.0 times as fast as the run before." in said
    assert "Before: 10 ms per batch, Events, batch 32, 2 workers, at train.py:9, yesterday." in said
    assert "Now: 2.5 ms per batch, Events, batch 32, 8 workers, at train.py:9, today." in said


def test_page_of_a_fast_loader_recommends_no_change(tmp_path: Path) -> None:
    write([loop(wait=0.1, work=20.0)], tmp_path, RUN)
    said = words(tmp_path / "report.html")
    assert "Leave the loaders alone." in said
    assert "The change" not in said
    assert "The proof" not in said


def test_page_loads_nothing_and_escapes_the_command(tmp_path: Path) -> None:
    write([loop()], tmp_path, RUN._replace(command="python -c '<img src=x>'"))
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "<img" not in page
    assert not re.search(r"(src|href)=['\"]?(http|//)", page)


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"batch_s": "fast"}', '{"batch_s": 1.0}'])
def test_damaged_figures_of_the_run_before_cost_only_the_proof(
    tmp_path: Path, damaged: str
) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "figures.json").write_text(damaged, "utf-8")
    run = ProgramRun("python train.py", before=str(tmp_path / "before"))
    write([loop()], tmp_path / "now", run)
    assert "The proof" not in words(tmp_path / "now" / "report.html")
