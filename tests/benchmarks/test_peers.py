import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers import rounds, tables
from benchmarks.peers.__main__ import BEST, main, print_bars
from benchmarks.peers.images import DECODER, OURS, V2
from benchmarks.peers.tables import EVENTS, TABLES
from course_utils.stories.peers.course import BATCHED, LIMIT
from course_utils.stories.peers.libraries import ALL
from course_utils.stories.peers.measure import Ledger, Measurement, OpenLoader
from course_utils.stories.peers.peer import Package
from course_utils.stories.peers.trial import LoaderProcess

BOOKS = Ledger(n_events=100, served=100, distinct=100, neighbors=1.0)
# Mean distance from Pillow and torchvision. Loaders that resize without antialiasing and decode
# fast are slightly farther. A different image, crop or normalization would be 30 away.
APART = 3.0


@pytest.mark.full
@pytest.mark.slow
def test_every_loader_of_images_serves_every_image_once(tmp_path: Path) -> None:
    for key in ("images, float", "images, uint8"):
        table = TABLES[key].cut(48)  # complete batches, and more than the buffers hold
        for name in table.peers:
            trial = LoaderProcess(tables.__name__, key, name, table, tmp_path)
            epochs = [trial.run(number) for number in range(3)]
            trial.close()
            for epoch in epochs:
                assert epoch is not None, trial.failed
                assert epoch.books.complete, (key, name)
                assert epoch.cpu_s > 0
                assert (epoch.pixels is None) == (name == DECODER), key
                assert epoch.pixels is None or epoch.pixels < APART, (key, name)


@pytest.mark.slow
def test_every_loader_of_events_serves_every_event_once(tmp_path: Path) -> None:
    for name in EVENTS.keys() - ALL.keys():
        loader = OpenLoader(name, TABLES["events"].cut(1200), tmp_path)
        assert all(loader.run(number).books.complete for number in range(3)), name


@pytest.mark.full
@pytest.mark.slow
def test_a_failing_loader_is_named_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "QUICK_ROUNDS", 2)
    table = TABLES["events"].cut(400)
    bad = replace(table.peers[LIMIT], needs=Package("no-such-package", "1", 1))
    mine = replace(table, peers={BATCHED: table.peers[BATCHED], "missing": bad, "unknown": bad})
    mine.peers["unknown"] = replace(bad, needs=None)  # missing in the table of its process
    rows, left_out = rounds.measure("events", mine, tmp_path)
    assert [*rows] == [BATCHED]
    assert rows[BATCHED].books.complete
    assert rows[BATCHED].first_s > 0
    assert left_out["missing"] == "install it with `pip install no-such-package`"
    assert left_out["unknown"].startswith("KeyError")


def test_limits_name_the_best_other_loader(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = {OURS: 1.0, V2: 1.6, "FFCV": 4.0, DECODER: 0.8}
    rows = {n: Measurement(n, "", s, 1.5, 0.1, BOOKS, "2 threads") for n, s in seconds.items()}
    rows["FFCV"] = replace(rows["FFCV"], books=replace(BOOKS, distinct=99))
    print_bars([(OURS, BEST, 1.3), (OURS, DECODER, 0.9), (OURS, "absent", 1)], rows)
    lost, first, second = map(str.strip, capsys.readouterr().out.splitlines())
    assert lost == "FFCV: NOT every one exactly once"
    assert first == f"{OURS} / {V2}: 1.60 (bar 1.3) holds"
    assert second == f"{OURS} / {DECODER}: 0.80 (bar 0.9) DOES NOT HOLD"


def test_recording_has_the_fields_that_a_notebook_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = Measurement(BATCHED, "", 1.0, 1.0, 0.1, BOOKS, "1 thread")
    lost = {"grain": "no reason"}
    monkeypatch.setattr("benchmarks.peers.__main__.measure", lambda *given: ({BATCHED: row}, lost))
    assert main(["large", "--record", str(tmp_path / "kept.json")]) == 0
    assert "grain was left out: no reason." in capsys.readouterr().out
    kept = json.loads((tmp_path / "kept.json").read_text("utf-8"))
    assert kept["titles"]["large"] == "384 samples of 524 kB, batches of 8"
    assert Measurement.from_row(kept["large"][0]) == row
