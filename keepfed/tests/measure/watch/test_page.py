"""The page of a watched program names cause, cost, change and proof, and fits on one page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from keepfed.measure.watch.report import write
from keepfed.measure.watch.timing.ring_file import ProgramRun
from tests.measure.watch.handmade import MS, loop

RUN = ProgramRun("python jobs/train.py --lr 1", machine="node7, Linux, 8 cores", ended="today")


def words(page: Path) -> str:
    """Return the text of a page without its scripts and styles."""
    bare = re.sub(r"<(script|style|svg).*?</\1>", "", page.read_text("utf-8"), flags=re.DOTALL)
    return " ".join(re.sub("<[^>]+>", " ", bare).split())


def test_page_names_cause_cost_change_and_machine(tmp_path: Path) -> None:
    report = write([loop()], tmp_path, RUN._replace(price=2.5))
    assert str(tmp_path / "report.html") in report["text"]
    assert json.loads((tmp_path / "report.json").read_text("utf-8")) == json.loads(
        json.dumps(report)
    )
    said = words(tmp_path / "report.html")
    assert "What train.py waits for train.py waits 80 % of its time for data." in said
    assert "Storage: of the 10 ms that a fetch takes" in said
    assert "200 € lost, at 2.50 € an hour" in said
    assert "loader = DataLoader(..., num_workers=8)" in said
    assert "Not measured yet. Make the change, and run the same command" in said
    assert "node7, Linux, 8 cores · today" in said
    assert "keepfed watch python jobs/train.py --lr 1" in said
    assert "`" not in said
    write([loop()], tmp_path, RUN)
    assert "80 hours lost" in words(tmp_path / "report.html")
    write([loop(takes="stream", workers=0)], tmp_path, RUN)
    said = words(tmp_path / "report.html")
    assert "If __iter__ gives each worker its own share (get_worker_info): loader = Data" in said


def test_page_of_an_uncertain_measurement_names_no_cost(tmp_path: Path) -> None:
    write([loop()], tmp_path, RUN._replace(price=2.5, others_cores=1.9))
    said = words(tmp_path / "report.html")
    assert "so these figures are uncertain" in said
    assert "€" not in said


def test_page_compares_with_the_last_run_of_the_same_loader_only(tmp_path: Path) -> None:
    slow = loop()
    uneven = replace(
        slow,
        iterations=[one._replace(left_ns=one.left_ns + 3 * MS) for one in slow.iterations[:25]]
        + slow.iterations[25:],
    )
    faster = "Measured: this run is 4.0 times as fast as the run before."
    for number, (before, now, change, said) in enumerate(
        [
            (slow, loop(wait=0.5, workers=8), {}, faster),
            (slow, loop(wait=0.5, code=1), {}, faster),  # another file of the program
            (slow, loop(wait=14.0, code=1), {}, "a batch takes 1.6 times as long as in the run"),
            (slow, loop(wait=13.0), {}, "Nothing has changed"),
            (uneven, loop(wait=9.0, code=1), {}, "No difference: parts of one run differ as much"),
            (slow, loop(wait=0.5, code=1), {"others_cores": 1.0}, "cannot be compared"),
            (slow, loop(wait=0.5, code=1), {"command": "python other.py"}, ""),
            (slow, loop(wait=0.5, batch_size=64), {}, ""),
            (slow, loop(wait=0.5, dataset="Other"), {}, ""),
        ]
    ):
        folders = [tmp_path / f"{number}-{name}" for name in ("before", "other", "now")]
        for folder in folders:
            folder.mkdir()
        write([before], folders[0], RUN._replace(ended="yesterday"))
        write([loop(dataset="Between")], folders[1], RUN._replace(command="python between.py"))
        run = RUN._replace(**change)  # type: ignore[arg-type]
        proof = write([now], folders[2], run, folders[1::-1])["proof"]
        assert said in " ".join(proof), (said, proof)
        assert bool(said) == bool(proof)
        if said:
            assert proof[1].startswith("Before: 10 ms per batch")
            assert proof[1].endswith("Events, batch 32, 2 workers, at train.py:9, yesterday.")


def test_page_of_a_fast_loader_recommends_no_change(tmp_path: Path) -> None:
    write([loop(wait=0.1, work=20.0)], tmp_path, RUN)
    said = words(tmp_path / "report.html")
    assert "Leave the loaders alone." in said
    assert "The change" not in said
    assert "Before and now" not in said


def test_page_loads_nothing_and_escapes_the_command(tmp_path: Path) -> None:
    write([loop()], tmp_path, RUN._replace(command="python -c '<img src=x>'"))
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "<img" not in page
    assert not re.search(r"(src|href)=['\"]?(http|//)", page)


def test_damaged_report_of_an_earlier_run_costs_only_the_proof(tmp_path: Path) -> None:
    before, now = tmp_path / "before", tmp_path / "now"
    before.mkdir(), now.mkdir()
    loaders = '[{"kind": "DataLoader", "dataset": "Events", "batch_size": 32, "rank": 0}]'
    for damaged in "", "[]", "{}", f'{{"command": "{RUN.command}", "loaders": {loaders}}}':
        (before / "report.json").write_text(damaged, "utf-8")
        assert write([loop()], now, RUN, [before])["proof"] == []
