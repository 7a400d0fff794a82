"""Every loader of the comparison serves each sample once, with the expected pixels."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers import tables
from benchmarks.peers.__main__ import main
from benchmarks.peers.images import DECODER, OURS, V2
from benchmarks.peers.report import BEST, print_bars, print_table
from benchmarks.peers.rounds import measure
from benchmarks.peers.tables import TABLES
from course_utils.stories.peers.course import BATCHED, LIMIT
from course_utils.stories.peers.ledger import Ledger
from course_utils.stories.peers.libraries import ALL
from course_utils.stories.peers.measure import Measurement, OpenLoader
from course_utils.stories.peers.peer import Package
from course_utils.stories.peers.trial import LoaderProcess

EVENTS, IMAGES = 1200, 48  # complete batches, and more than the buffers hold
SMALL = {"events": EVENTS, "images, float": IMAGES, "images, uint8": IMAGES}
# Loaders that need a library or processes; each runs in a separate process.
ALONE = {
    key: {
        name
        for name, peer in TABLES[key].peers.items()
        if peer.needs or "process" in peer.uses or key != "events"
    }
    for key in SMALL
}
BOOKS = Ledger(n_events=100, served=100, distinct=100, neighbours=1.0)
# Mean distance from Pillow and torchvision. Loaders that resize without antialiasing and decode
# fast are slightly farther. A different image, crop or normalisation would be 30 away.
APART = 3.0


@pytest.mark.full
@pytest.mark.slow
def test_every_other_loader_serves_every_sample_once(tmp_path: Path) -> None:
    for key, name in [(k, n) for k in SMALL for n in sorted(ALONE[k])]:
        table = TABLES[key].cut(SMALL[key])
        trial = LoaderProcess(tables.__name__, key, name, table, tmp_path)
        epochs = [trial.run(number) for number in range(3)]
        trial.close()
        if "install it" in trial.failed or "ModuleNotFoundError" in trial.failed:
            pytest.skip(trial.failed)
        for epoch in epochs:
            assert epoch is not None, trial.failed
            assert epoch.books.complete, key
            assert epoch.books.served == table.samples(table.peers[name]), key
            assert epoch.cpu_s > 0, key
            assert (epoch.pixels is None) == (key == "events" or name == DECODER), key
            assert epoch.pixels is None or epoch.pixels < APART, key


@pytest.mark.slow
def test_every_loader_of_events_serves_every_event_once(tmp_path: Path) -> None:
    names = sorted(TABLES["events"].peers.keys() - ALONE["events"] - ALL.keys())
    for name in names:
        loader = OpenLoader(name, TABLES["events"].cut(EVENTS), tmp_path)
        assert all(loader.run(number).books.complete for number in range(3)), name


@pytest.mark.full
@pytest.mark.slow
def test_loaders_alternate_and_a_failing_one_is_named(tmp_path: Path) -> None:
    table = TABLES["events"].cut(400)
    bad = replace(table.peers[LIMIT], needs=Package("no-such-package", "1", 1))
    mine = replace(table, peers={BATCHED: table.peers[BATCHED], "missing": bad, "unknown": bad})
    mine.peers["unknown"] = replace(bad, needs=None)  # missing in the table of its process
    found, left_out = measure("events", mine, tmp_path, rounds=1, quick_rounds=2)

    assert [row.name for row in found] == [BATCHED]
    assert found[0].books.complete
    assert found[0].first_s > 0
    assert left_out["missing"] == "install it with `pip install no-such-package`"
    assert left_out["unknown"].startswith("KeyError")


def test_limits_name_the_best_other_loader(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = {OURS: 1.0, V2: 4.0, "FFCV": 1.6, DECODER: 0.8}
    rows = {
        name: Measurement(name, "", s, 1.5, 0.1, BOOKS, "2 threads") for name, s in seconds.items()
    }
    print_bars([(OURS, BEST, 1.3), (OURS, DECODER, 0.9), (OURS, "absent", 1)], rows)
    first, second = capsys.readouterr().out.splitlines()
    assert first.strip() == f"{OURS} / FFCV: 1.60 (bar 1.3) holds"
    assert second.strip() == f"{OURS} / {DECODER}, by its CPU: 0.75 (bar 0.9) DOES NOT HOLD"

    lost = replace(rows[V2], books=replace(BOOKS, distinct=99), pixels=1.5)
    print_table(TABLES["images, uint8"], {V2: lost}, {"FFCV": "no reason"})
    _, _, row, missing = capsys.readouterr().out.splitlines()
    assert row.endswith("1.50       2 threads  NOT every one exactly once")
    assert missing.strip() == "FFCV was left out: no reason."


def test_recording_has_the_fields_that_a_notebook_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Measurement(BATCHED, "", 1.0, 1.0, 0.1, BOOKS, "1 thread")
    monkeypatch.setattr("benchmarks.peers.__main__.measure", lambda *given: ([row], {}))
    assert main(["large", "--record", str(tmp_path / "kept.json")]) == 0
    kept = json.loads((tmp_path / "kept.json").read_text("utf-8"))
    assert kept["titles"]["large"] == "384 samples of 524 kB, batches of 8"
    assert Measurement.from_row(kept["large"][0]) == row
