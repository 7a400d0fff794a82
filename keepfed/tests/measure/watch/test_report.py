"""Text, page and JSON of a watched program say the same, and each finding is judged once."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keepfed.measure.watch.report import as_text, write
from keepfed.measure.watch.timing.ring_file import Observation, ProgramRun
from keepfed.measure.watch.watched_loop import watched_loops
from tests.measure.watch.handmade import loop

RUN = ProgramRun("python jobs/train.py --lr 1", machine="node7, Linux, 8 cores", ended="today")


def said(*observations: Observation, **options: Any) -> str:
    return " ".join(as_text(watched_loops(observations, **options)).split())


def test_storage_bound_loader_gets_more_workers() -> None:
    text = said(loop())
    assert text.startswith("Try first: num_workers=8. Loader: Events, batch 32, 2 workers, at trai")
    assert "100 batches in 1 epoch: 800 ms in next(), 200 ms in the loop body, 80 % of" in text
    assert "One iteration takes 10 ms, including a wait of 8.0 ms. Storage: of the 10 ms" in text
    assert "Change: num_workers=8. Predicted gain: training at most 2.6 times as fast." in text
    stream = said(loop(takes="stream", workers=0))  # each worker may serve the whole stream
    assert re.search(r"Try first: num_workers=\d+, if __iter__ gives each worker its own", stream)


def test_fast_loader_is_left_alone() -> None:
    alone = {"wait": 1.5, "workers": 0}
    for options, at_best in ({"wait": 0.2}, "no faster"), (alone, "only 1.1 times as fast"):
        text = said(loop(work=20.0, **options))
        assert text.startswith("Leave the loader alone and work on the step. Loader: "), at_best
        assert f"would make training {at_best}." in text
        assert "Predicted gain" not in text


def test_report_on_busy_machine_promises_no_gain() -> None:
    waiting = loop(wait=8.0, work=20.0, fetch=28.0)
    fetches = {n: f._replace(delay_ns=24_000_000) for n, f in waiting.fetches.items()}
    text = said(replace(waiting, fetches=fetches))
    assert text.startswith("Measure again while no other program computes.")
    assert "which is fast enough, but other programs or the workers used the cores" in text
    assert "times as fast" not in text
    assert said(loop(), others_cores=1.3).startswith("Other programs kept 1.3 of ")
    assert "Other programs" not in said(loop(), others_cores=0.2)


@pytest.mark.parametrize("width", [60, 80])
def test_report_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    ranks = [loop(rank=rank, ranks=2, pid=rank) for rank in range(2)]
    lines = as_text(watched_loops(ranks, 1.3)).splitlines()
    assert max(map(len, lines)) <= width


def test_page_text_and_facts_have_the_same_sentences(tmp_path: Path) -> None:
    run = RUN._replace(command="python -c '<img src=x>'", others_cores=1.9)
    facts = write([loop()], tmp_path, run)
    assert facts == json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert facts["lost_share"] == 0.8
    (loader,) = facts["loaders"]
    expected = {"id": "more-workers", "cause": "storage", "change": "num_workers=8"}
    assert loader["finding"].items() >= expected.items()
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "<img" not in page
    assert not re.search(r"(src|href)=['\"]?(http|//)", page)
    bare = re.sub(r"<(script|style|svg).*?</\1>", "", page, flags=re.DOTALL)
    words = " ".join(re.sub("<[^>]+>", " ", bare).split())
    text = " ".join(facts["text"].split())
    for sentence in (facts["advice"], *loader["sentences"], "so these figures are uncertain"):
        assert sentence in text
        assert sentence in words
    assert str(tmp_path / "report.html") in text
    assert "node7, Linux, 8 cores · today" in words
