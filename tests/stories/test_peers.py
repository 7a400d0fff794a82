"""Loaders are compared on one task, and dropped, repeated or badly shuffled samples are counted."""

import gc
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from course_utils.stories.peers import compare, environment, recorded, separate, try_libraries
from course_utils.stories.peers import comparison as comparing
from course_utils.stories.peers.comparison import Comparison
from course_utils.stories.peers.environment import is_installed
from course_utils.stories.peers.ledger import Ledger, ledger
from course_utils.stories.peers.libraries import ALL, SPDL
from course_utils.stories.peers.measure import Measurement, measure, threads
from course_utils.stories.peers.peer import numbered, peer
from course_utils.stories.peers.tables import TABLES, Table
from course_utils.stories.peers.trial import LoaderProcess
from keepfed.errors import KeepfedError

BOOKS = Ledger(n_events=100, served=100, distinct=100, neighbors=1.0)
ONE = Measurement("LitData", "litdata 1", seconds=0.5, cpu_s=0.25, first_s=0.1, books=BOOKS)


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


def test_shared_format_is_written_once_completely(tmp_path: Path) -> None:
    table = Table("x", {}, 40, 8, 4, lambda folder, count: numbered(count, 2))
    written: list[int] = []

    @peer(table.peers, "a", write := lambda folder, samples: written.append(len(samples)))
    def a(folder: Path, batch_size: int) -> None: ...

    slow = replace(table.peers["a"], one_by_one=True)
    places = {table.written(one, tmp_path) for one in (table.peers["a"], slow, table.peers["a"])}
    assert written == [40, 8]
    assert len(places) == 2
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in places}
    assert write.__name__ in str(places)


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


def test_comparison_shows_measured_and_recorded_rates() -> None:
    slow = replace(ONE, name="np.memmap", seconds=5.0)
    both = {ONE.name: ONE, slow.name: slow}
    found = Comparison("2 kB", both, {ONE.name: ONE}, "a machine", sample_bytes=2048)
    assert found.spread == 10
    title, head, first, second, where = repr(found).splitlines()
    assert title == "2 kB"
    assert head.split()[:4] == ["loader", "here", "recorded", "MB/s"]
    assert " ".join(first.split()) == "np.memmap 20 – 0 0.1 100 100 1.0 100 ms"
    assert " ".join(second.split()) == "LitData 200 200 0 0.5 100 100 1.0 100 ms"
    assert where == "samples per second; recorded: a machine"
    assert found._repr_html_().count("<tr>") == 3
    (panel,) = found.picture().axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["np.memmap", "LitData"]

    image = replace(ONE, uses="2 threads", pixels=0.5)  # columns that are empty are left out
    found = Comparison("images", {}, {ONE.name: image}, "a machine")
    _, head, row, _ = repr(found).splitlines()
    assert head.split()[:4] == ["loader", "recorded", "uses", "cores"]
    assert row.endswith("0.50")
    assert "measured here" not in found._repr_html_()


def test_failed_installation_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Path] = []
    monkeypatch.setattr("venv.create", lambda folder, **options: made.append(folder))
    monkeypatch.setattr(environment, "_share", lambda folder: None)
    try_libraries(home=tmp_path)
    assert "'LitData': litdata " in capsys.readouterr().out
    with pytest.raises(KeepfedError, match="no library 'Lit'"):
        try_libraries("Lit", home=tmp_path)
    assert not made
    for message, sentence in (
        ("WARNING: NewConnectionError('...: Failed')\nERROR: No matching", "index is not reach"),
        ("ERROR: No matching distribution found for litdata", "No matching distribution found"),
        ("", "no message"),
    ):
        failed = subprocess.CompletedProcess("pip", 1, "", message)
        monkeypatch.setattr(environment.subprocess, "run", lambda *call, said=failed, **_: said)
        with pytest.raises(KeepfedError, match=f"(?i){sentence}.*use our recorded results"):
            try_libraries("LitData", home=tmp_path)
    assert set(made) == {tmp_path / "litdata"}


@pytest.mark.slow
def test_measurement_of_a_process_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(separate, "install", lambda package, home: None)
    monkeypatch.setattr(LoaderProcess, "__init__", _of_this_environment(LoaderProcess.__init__))
    monkeypatch.setattr(comparing, "_measure_all", lambda task: [])
    assert not compare("large", tmp_path).here
    monkeypatch.setattr(separate, "TABLES", {"large": TABLES["large"]})
    try_libraries("LitData", home=tmp_path)
    assert " large samples per second." in capsys.readouterr().out
    (stored,) = compare("large", tmp_path).here.values()
    assert stored.books.complete

    monkeypatch.setattr(separate, "TABLES", {"no such table": TABLES["small"]})
    with pytest.raises(KeepfedError, match=r"Measuring failed \(KeyError: "):
        try_libraries("LitData", home=tmp_path)


def _of_this_environment(start: Callable[..., None]) -> Callable[..., None]:
    """Let a trial measure a loader of the course instead of LitData."""

    def init(trial: LoaderProcess, tables: str, key: str, name: str, *others: object) -> None:
        start(trial, tables, key, "np.memmap, batches at once", *others)

    return init


@pytest.mark.full
@pytest.mark.slow
def test_library_is_installed_separately_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        try_libraries("SPDL, threads over a memmap", home=tmp_path)
    except KeepfedError as error:
        pytest.skip(str(error))
    assert is_installed(SPDL, tmp_path)
    monkeypatch.setattr(comparing, "_measure_all", lambda task: [])
    (stored,) = compare("large", tmp_path).here.values()
    assert stored.package == f"spdl-core {SPDL.version}"
    assert stored.books.complete
    assert "torch" not in {path.name for path in tmp_path.rglob("site-packages/*")}
