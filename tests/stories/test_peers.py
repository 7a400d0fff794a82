"""Loaders are compared on one task, and dropped, repeated or badly shuffled samples are counted."""

import gc
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from course_utils.stories.peers import compare, environment, recorded, try_libraries
from course_utils.stories.peers import comparison as comparing
from course_utils.stories.peers.environment import is_installed
from course_utils.stories.peers.libraries import ALL, SPDL
from course_utils.stories.peers.measure import Measurement, ledger, measure, threads
from course_utils.stories.peers.tables import TABLES
from keepfed.errors import KeepfedError


def test_ledger_reveals_dropped_repeated_or_unshuffled_samples() -> None:
    for order, served, distinct, neighbors in (
        (torch.randperm(20_000, generator=torch.Generator().manual_seed(0)), 20_000, 20_000, 1),
        (torch.arange(20_000), 20_000, 20_000, 20),  # disk order: each batch is one run
        (torch.arange(19_900), 19_900, 19_900, 20),
        (torch.arange(20_000) // 2, 20_000, 10_000, 10),
    ):
        books = ledger(list(order.split(1000)), 20_000)  # type: ignore[no-untyped-call]
        assert (books.served, books.distinct) == (served, distinct)
        assert books.complete == (served == distinct == 20_000)
        assert books.neighbors == pytest.approx(neighbors, rel=0.15)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset leaves files open
def test_every_loader_serves_every_sample_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("course_utils.stories.peers.measure.ENOUGH_S", 0)
    before = torch.get_num_threads()
    table = replace(TABLES["small"], count=2100, one_by_one=300, batch_size=64)
    for name in (name for name, one in ALL.items() if one.needs is None):
        found = measure(name, table)
        assert found.books.complete, name
        assert Measurement.from_row(json.loads(json.dumps(found.row()))) == found
    assert torch.get_num_threads() == before
    with threads(1):
        assert torch.get_num_threads() == 1
    gc.collect()


def test_recordings_are_complete() -> None:
    for task in TABLES:
        found = recorded(task)
        assert found.recorded.keys() > ALL.keys()
        assert "cores" in found.where
    for table in (*TABLES, "events", "images, float", "images, uint8", "photographs"):
        found = recorded(table)
        assert all(one.books.complete and one.rate > 0 for one in found.recorded.values())
        assert {"np.memmap, batches at once", "torchvision v2"} & found.recorded.keys()
        assert ("pixels" in repr(found)) == (table not in (*TABLES, "events"))


def test_failed_installation_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Path] = []
    monkeypatch.setattr("venv.create", lambda folder, **options: made.append(folder))
    monkeypatch.setattr(environment, "_share", lambda folder: None)
    monkeypatch.setenv("COURSE_HOME", str(tmp_path))
    try_libraries()
    assert "'LitData': litdata " in capsys.readouterr().out
    with pytest.raises(KeepfedError, match="no library 'Lit'"):
        try_libraries("Lit")
    assert not made
    for message, sentence in (
        ("WARNING: NewConnectionError('...: Failed')\nERROR: No matching", "index is not reach"),
        ("ERROR: No matching distribution found for litdata", "No matching distribution found"),
        ("", "no message"),
    ):
        failed = subprocess.CompletedProcess("pip", 1, "", message)
        monkeypatch.setattr(environment.subprocess, "run", lambda *call, said=failed, **_: said)
        with pytest.raises(KeepfedError, match=f"(?i){sentence}.*use our recorded results"):
            try_libraries("LitData")
    assert set(made) == {tmp_path / ".peers" / "litdata"}


@pytest.mark.full
@pytest.mark.slow
def test_library_is_installed_apart_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COURSE_HOME", str(tmp_path))
    try:
        try_libraries("SPDL, threads over a memmap")
    except KeepfedError as error:
        pytest.skip(str(error))
    assert is_installed(SPDL)
    monkeypatch.setattr(comparing, "_measure_all", lambda task: [])
    (stored,) = compare("large").here.values()
    assert stored.package == f"spdl-core {SPDL.version}"
    assert stored.books.complete
    assert "torch" not in {path.name for path in tmp_path.rglob("site-packages/*")}
