import io
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from course_utils.errors import CourseError
from course_utils.hardware.machine import can_forget
from course_utils.hardware.storage import storage_preset
from course_utils.loading.events import FORMATS, EventArrays
from data_scripts import make_events
from notebooks.stories.formats import compare_formats
from notebooks.stories.formats.costs import COLD, PATTERNS, WARM, Reader, Storages, draws, write
from notebooks.stories.formats.table import FormatTable

pytestmark = pytest.mark.slow  # all formats are written, and read in all ways

S3, LUSTRE = "emulated S3", "emulated busy Lustre"
COUNT = 60


@pytest.fixture(scope="module")
def events_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "events"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(make_events.COUNTS, "S", COUNT)
        patch.setitem(make_events.FORMATS_OF, "S", ())
        assert make_events.main(["--size", "S", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def table(events_folder: Path) -> FormatTable:
    return compare_formats(events_folder)


def test_it_has_every_format_on_every_storage_in_every_way(table: FormatTable) -> None:
    assert {row.name for row in table.rows} == set(FORMATS) == set(table.names)
    assert len(table.rows) >= 10
    assert table.storages == [WARM, *([COLD] if can_forget() else []), LUSTRE, S3]
    for row in table.rows:
        assert set(row.costs) == {(at, how) for at in table.storages for how in PATTERNS}
        assert row.size > 0
        assert row.write_s > 0
        assert min(cost.seconds for cost in row.costs.values()) > 0


def test_nothing_is_left_beside_the_data(table: FormatTable, events_folder: Path) -> None:
    assert [path.name for path in events_folder.parent.iterdir() if path.is_dir()] == ["events"]


def test_a_file_for_each_event_is_opened_and_read_for_each_event(table: FormatTable) -> None:
    for storage in (S3, LUSTRE, WARM):
        cost = table.cost("npz", storage, "sequential")
        assert (cost.requests, cost.opens) == (COUNT - 1, COUNT - 1)


def test_one_large_file_takes_one_request_for_one_event_and_no_byte_too_many(
    table: FormatTable,
) -> None:
    for name in ("npy", "hdf5"):
        cost = table.cost(name, S3, "one event")
        assert (cost.requests, cost.opens, cost.amplification) == (1, 0, 1)


def test_what_reads_large_units_is_amplified_most_for_one_event(table: FormatTable) -> None:
    for name in ("parquet", "parquet-zstd", "hdf5-misfit", "root"):
        alone, in_order = (
            table.cost(name, S3, pattern).amplification for pattern in ("one event", "sequential")
        )
        assert alone > 10 > in_order


def test_emulated_time_is_that_of_the_calendar(table: FormatTable) -> None:
    figures = storage_preset("S3")
    for name in ("npy", "npz"):
        cost = table.cost(name, S3, "one event")
        waited = cost.requests * figures.request_ms + cost.opens * figures.open_ms
        assert waited < 1e3 * cost.seconds < 1.5 * waited  # the rest is computing


def test_a_ratio_is_to_the_best_of_its_column(table: FormatTable) -> None:
    for storage in table.storages:
        for pattern in PATTERNS:
            ratios = [table.ratio(name, storage, pattern) for name in table.names]
            assert min(ratios) == 1


def test_compression_makes_smaller_files_of_the_same_events(table: FormatTable) -> None:
    for small, large in (("npz-deflate", "npz"), ("hdf5-gzip", "hdf5-chunked")):
        assert table.row(small).size < table.row(large).size


def test_page_and_text_show_every_format_and_say_what_is_emulated(table: FormatTable) -> None:
    for shown in (table._repr_html_(), repr(table)):
        for name in FORMATS:
            assert shown.count(FORMATS[name].title) >= len(table.storages)
        assert all(storage in shown for storage in table.storages)
        assert table.machine in shown
    assert table._repr_html_().count("<tr>") == len(table.storages) * (2 + len(FORMATS))


def test_where_no_file_can_be_made_cold_it_says_so(
    events_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("notebooks.stories.formats.costs.can_forget", lambda: False)
    table = compare_formats(events_folder, names=["npy"])

    assert COLD not in table.storages
    assert "nothing here is cold" in repr(table)
    assert "nothing here is cold" in table._repr_html_()


def test_the_picture_has_a_dot_for_each_time_and_a_panel_for_each_storage(
    table: FormatTable,
) -> None:
    figure = table.picture()
    figure.savefig(io.BytesIO(), format="png", dpi=40)

    assert [panel.get_title() for panel in figure.axes] == table.storages
    for panel in figure.axes:
        assert [len(line.get_xdata()) for line in panel.lines] == [len(FORMATS)] * len(PATTERNS)
        assert len({line.get_marker() for line in panel.lines}) == len(PATTERNS)
        assert panel.get_xscale() == "log"
    assert table.machine in figure.get_suptitle()


def test_fewer_events_and_formats_can_be_compared(events_folder: Path) -> None:
    table = compare_formats(events_folder, most=20, presets=["HDD"], names=["hdf5", "npy"])

    assert [row.name for row in table.rows] == ["hdf5", "npy"]
    assert table.events == 20
    assert table.storages[-1] == "emulated HDD"
    pulses = np.diff(EventArrays.load(events_folder).offsets)[::3].sum()
    assert table.pulses == pulses


def test_no_draw_asks_for_the_event_that_opened_the_file() -> None:
    for pattern in PATTERNS:
        asked = [[*chain(*draw)] for draw in draws(1_000, pattern)]
        assert all(min(indices) > 0 and max(indices) < 1_000 for indices in asked)
        assert len({tuple(indices) for indices in asked}) == len(asked)
    assert [len(batch) for batch in draws(1_000, "sequential")[0]] == [64] * 4
    assert len(set(draws(1_000, "random")[0][0])) == 64


def test_a_damaged_file_is_an_error_and_no_figure(events_folder: Path, tmp_path: Path) -> None:
    write("npy", EventArrays.load(events_folder), tmp_path)
    pulses = tmp_path / "npy/pulses.npy"
    pulses.write_bytes(pulses.read_bytes()[:-1] + b"\xff")

    with pytest.raises(OSError, match=r"pulses\.npy is missing or corrupted"):
        Reader("npy", Storages(tmp_path, [])).costs()


def test_without_events_it_says_how_to_make_some(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make_events --out"):
        compare_formats(tmp_path)


def test_an_unknown_format_lists_the_known(events_folder: Path) -> None:
    with pytest.raises(CourseError, match="no format 'zarr'; take some of npy, npz,"):
        compare_formats(events_folder, names=["npy", "zarr"])


def test_too_little_room_is_said_before_anything_is_written(
    events_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1_000_000}))
    with pytest.raises(CourseError, match=r"1 MB free .* most=500"):
        compare_formats(events_folder)
