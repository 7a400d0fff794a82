"""Loaders are compared on one task, and dropped, repeated or badly shuffled samples are counted."""

import gc
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from course_utils.stories.peers import LIBRARIES, LibraryForm, compare, recorded
from course_utils.stories.peers.comparison import Comparison, store
from course_utils.stories.peers.environment import install, is_installed, measure_there
from course_utils.stories.peers.ledger import Ledger, ledger
from course_utils.stories.peers.libraries import ALL, LITDATA, SPDL
from course_utils.stories.peers.measure import TASKS, Measurement, Task, measure, threads
from keepfed.errors import KeepfedError

HERE = [name for name, peer in ALL.items() if peer.needs is None]
BOOKS = Ledger(n_events=100, served=100, distinct=100, neighbours=1.0)
ONE = Measurement("LitData", "litdata 1", seconds=0.5, cpu_s=0.25, first_s=0.1, books=BOOKS)


@pytest.mark.parametrize(
    ("order", "served", "distinct", "neighbours"),
    [
        (torch.randperm(20_000, generator=torch.Generator().manual_seed(0)), 20_000, 20_000, 1),
        (torch.arange(20_000), 20_000, 20_000, 20),  # disk order: each batch is one run
        (torch.arange(19_900), 19_900, 19_900, 20),
        (torch.arange(20_000) // 2, 20_000, 10_000, 10),
    ],
)
def test_ledger_reveals_dropped_repeated_or_unshuffled_samples(
    order: torch.Tensor, served: int, distinct: int, neighbours: float
) -> None:
    books = ledger(list(order.split(1000)), 20_000)  # type: ignore[no-untyped-call]

    assert (books.served, books.distinct) == (served, distinct)
    assert books.complete == (served == distinct == 20_000)
    assert books.neighbours == pytest.approx(neighbours, rel=0.15)
    assert books.shuffled == (neighbours == 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset leaves files open
@pytest.mark.parametrize("name", HERE)
def test_every_loader_serves_every_sample_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("course_utils.stories.peers.measure.ENOUGH_S", 0)
    for task in Task(2100, 300, rows=128, batch_size=64), Task(24, 24, rows=9000, batch_size=8):
        found = measure(name, ALL[name], task)
        assert found.books.complete
        assert Measurement.from_row(json.loads(json.dumps(found.row()))) == found
    gc.collect()


def test_number_of_torch_threads_is_restored() -> None:
    before = torch.get_num_threads()
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("task", TASKS)
def test_every_loader_has_complete_recording(task: str) -> None:
    found = recorded(task)
    assert found.recorded.keys() == ALL.keys()
    assert all(one.books.complete for one in found.recorded.values())
    assert "cores" in found.where


@pytest.mark.parametrize("table", ["events", "images, float", "images, uint8", "photographs"])
def test_recorded_tables_of_other_libraries_are_complete(table: str) -> None:
    found = recorded(table)
    assert all(one.books.complete and one.rate > 0 for one in found.recorded.values())
    assert {"record loader", "image loader"} & found.recorded.keys()
    assert ("pixels" in repr(found)) == (table != "events")


def test_comparison_shows_measured_and_recorded_rates() -> None:
    slow = replace(ONE, name="record loader", seconds=5.0)
    both = {ONE.name: ONE, slow.name: slow}
    found = Comparison("2 kB", both, {ONE.name: ONE}, "a machine", sample_bytes=2048)
    assert found.spread == 10
    title, head, first, second, where = repr(found).splitlines()
    assert title == "2 kB"
    assert head.split()[:4] == ["loader", "here", "recorded", "MB/s"]
    assert " ".join(first.split()) == "record loader 20 – 0 0.1 100 100 1.0 100 ms"
    assert " ".join(second.split()) == "LitData 200 200 0 0.5 100 100 1.0 100 ms"
    assert where == "samples per second; recorded: a machine"
    assert found._repr_html_().count("<tr>") == 3
    (panel,) = found.picture().axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["record loader", "LitData"]


def test_empty_columns_are_omitted() -> None:
    image = replace(ONE, uses="2 threads", pixels=0.5)
    found = Comparison("images", {}, {ONE.name: image}, "a machine")
    _, head, row, _ = repr(found).splitlines()
    assert head.split()[:4] == ["loader", "recorded", "uses", "cores"]
    assert row.endswith("0.50")
    assert "measured here" not in found._repr_html_()


def test_measurement_from_separate_environment_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("course_utils.stories.peers.comparison.measure_all", lambda task: [])
    assert not compare("small", tmp_path).here
    store("small", ONE, tmp_path)
    assert compare("small", tmp_path).here == {"LitData": ONE}
    assert not compare("large", tmp_path).here


Run = Callable[..., subprocess.CompletedProcess[str]]


def ends(code: int, out: str = "", said: str = "") -> Run:
    return lambda *call, **limits: subprocess.CompletedProcess(call, code, out, said)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Record the environments that would be created, without creating them."""
    made: list[Path] = []
    monkeypatch.setattr("venv.create", lambda folder, **options: made.append(folder))
    monkeypatch.setattr("course_utils.stories.peers.environment._share", lambda folder: None)
    return made


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            "WARNING: NewConnectionError('...: Failed')\nERROR: No matching",
            "index is not reachable",
        ),
        ("ERROR: No matching distribution found for litdata", "No matching distribution found"),
        ("", "no message"),
    ],
)
def test_failed_installation_raises_clear_error(
    said: str,
    sentence: str,
    tmp_path: Path,
    made: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("course_utils.stories.peers.environment._run", ends(1, said=said))
    with pytest.raises(KeepfedError, match=f"(?i){sentence}.*use our recorded results"):
        install(LITDATA, tmp_path)
    assert made == [tmp_path / "litdata"]


def test_crashing_library_raises_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "course_utils.stories.peers.environment._run", ends(-11, said="one\nSegfault")
    )
    with pytest.raises(
        KeepfedError, match=r"Measuring LitData failed \(Segfault\)\. Use our recorded"
    ):
        measure_there("small", "LitData", LITDATA, tmp_path)


def test_form_installs_only_after_button_press(
    tmp_path: Path, made: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = "progress\n" + json.dumps(ONE.row())
    monkeypatch.setattr("course_utils.stories.peers.environment._run", ends(0, out=row))
    form = LibraryForm(tmp_path)
    assert form.boxes.keys() == {name for name in LIBRARIES if LIBRARIES[name].needs}
    form.button.click()
    assert "Choose a library" in form.said.value
    assert not made

    form.boxes["LitData"].value = True
    form.button.click()
    assert made == [tmp_path / "litdata"]
    assert "LitData: 200 small and 200 large samples per second" in form.said.value
    assert not form.button.disabled
    monkeypatch.setattr("course_utils.stories.peers.comparison.measure_all", lambda task: [])
    assert compare("large", tmp_path).here == {"LitData": ONE}


def test_form_shows_installation_error(
    tmp_path: Path, made: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("course_utils.stories.peers.environment._run", ends(1, said="ProxyError"))
    form = LibraryForm(tmp_path)
    form.boxes["LitData"].value = True
    form.button.click()
    assert "LitData: Cannot download litdata==" in form.said.value
    assert "Check your network" in form.said.value
    assert not form.button.disabled


@pytest.mark.full
@pytest.mark.slow
def test_library_is_installed_separately_and_measured(tmp_path: Path) -> None:
    try:
        install(SPDL, tmp_path)
    except KeepfedError as error:
        pytest.skip(str(error))
    assert is_installed(SPDL, tmp_path)
    found = measure_there("large", "SPDL, threads over a memmap", SPDL, tmp_path)
    assert found.package == f"spdl-core {SPDL.version}"
    assert found.books.complete
    brought = {path.name for path in tmp_path.rglob("site-packages/*")}
    assert "torch" not in brought
