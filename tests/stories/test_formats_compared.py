"""The formats side by side, and where compression pays: the figures add up, and all are shown."""

import io
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_utils.errors import CourseError
from course_utils.hardware.machine import can_forget
from course_utils.hardware.storage import storage_preset
from course_utils.loading.events import FORMATS, EventArrays
from course_utils.teaching.notebook import data_path
from notebooks.stories.formats_compared import compare_codecs, compare_formats
from notebooks.stories.formats_compared import formats as formats_module
from notebooks.stories.formats_compared.compression import CODECS, CodecRow, CompressionTable
from notebooks.stories.formats_compared.formats import (
    COLD,
    PATTERNS,
    WARM,
    FormatTable,
    Reader,
    draws,
    write,
)

S3, LUSTRE = "emulated S3", "emulated busy Lustre"
SSD, NFS = "emulated laptop SSD", "emulated NFS"
COUNT = 50  # of 2,000 events: every 40th
slow = pytest.mark.slow  # all formats are written, and read in all ways


@pytest.fixture(scope="module")
def folder() -> Path:
    return data_path("events", "S")


@pytest.fixture(scope="module")
def table(folder: Path) -> FormatTable:
    return compare_formats(folder, most=COUNT)


@pytest.fixture(scope="module")
def codecs(folder: Path) -> CompressionTable:
    return compare_codecs(folder)


@slow
def test_it_has_every_format_on_every_storage_in_every_way(
    table: FormatTable, folder: Path
) -> None:
    assert {row.name for row in table.rows} == set(FORMATS) == set(table.names)
    assert table.storages == [WARM, *([COLD] if can_forget() else []), LUSTRE, S3]
    for row in table.rows:
        assert set(row.costs) == {(at, how) for at in table.storages for how in PATTERNS}
        assert min(row.size, row.write_s, *(cost.seconds for cost in row.costs.values())) > 0
    lengths = np.diff(EventArrays.load(folder).offsets)
    assert table.events == COUNT
    assert table.pulses == lengths[:: -(-len(lengths) // COUNT)].sum()  # from all over the file
    assert not list(folder.parent.glob(".formats-*"))


@slow
def test_requests_and_bytes_are_those_of_the_unit_that_a_format_reads(table: FormatTable) -> None:
    for storage in (S3, LUSTRE, WARM):  # a file for each event is opened and read for each
        cost = table.cost("npz", storage, "sequential")
        assert (cost.requests, cost.opens) == (COUNT - 1, COUNT - 1)
    for name in ("npy", "hdf5"):  # one large file: one request, and no byte too many
        cost = table.cost(name, S3, "one event")
        assert (cost.requests, cost.opens, cost.amplification) == (1, 0, 1)
    for name in ("parquet", "parquet-zstd", "hdf5-misfit", "root"):  # large units
        alone, in_order = (
            table.cost(name, S3, pattern).amplification for pattern in ("one event", "sequential")
        )
        assert alone > 10 > in_order
    for small, large in (("npz-deflate", "npz"), ("hdf5-gzip", "hdf5-chunked")):
        assert table.row(small).size < table.row(large).size


@slow
def test_emulated_time_is_that_of_the_calendar_and_the_best_of_a_column_is_1(
    table: FormatTable,
) -> None:
    figures = storage_preset("S3")
    for name in ("npy", "npz"):
        cost = table.cost(name, S3, "one event")
        waited = cost.requests * figures.request_ms + cost.opens * figures.open_ms
        assert waited < 1e3 * cost.seconds < 1.5 * waited  # the rest is computing
    for place in itertools.product(table.storages, PATTERNS):
        assert min(table.ratio(name, *place) for name in table.names) == 1


@slow
def test_tables_show_every_format_and_say_what_is_emulated(table: FormatTable) -> None:
    for seen in (table._repr_html_(), repr(table)):
        for form in FORMATS.values():
            assert seen.count(form.title) >= len(table.storages)
        assert all(text in seen for text in (*table.storages, table.machine))
        assert ("nothing here is cold" in seen) != can_forget()
    assert table._repr_html_().count("<tr>") == len(table.storages) * (2 + len(FORMATS))


@slow
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


@pytest.fixture
def some_npy(folder: Path, tmp_path: Path) -> Path:
    write("npy", EventArrays.load(folder).take(range(COUNT)), tmp_path)
    return tmp_path


def test_where_no_file_can_be_made_cold_it_says_so(
    some_npy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats_module, "can_forget", lambda: False)
    row = formats_module.FormatRow("npy", 1.0, 1, Reader("npy", some_npy).costs())
    table = FormatTable([row], COUNT, 1, "here")

    assert COLD not in table.storages
    assert "nothing here is cold" in repr(table)
    assert "nothing here is cold" in table._repr_html_()


def test_a_damaged_file_is_an_error_and_no_figure(some_npy: Path) -> None:
    pulses = some_npy / "npy/pulses.npy"
    pulses.write_bytes(pulses.read_bytes()[:-1] + b"\xff")

    with pytest.raises(OSError, match=r"pulses\.npy is missing or corrupted"):
        Reader("npy", some_npy).costs()


def test_no_draw_asks_for_the_event_that_opened_the_file() -> None:
    for pattern in PATTERNS:
        asked = [[*itertools.chain(*draw)] for draw in draws(1_000, pattern)]
        assert all(min(indices) > 0 and max(indices) < 1_000 for indices in asked)
        assert len({tuple(indices) for indices in asked}) == len(asked)
    assert [len(batch) for batch in draws(1_000, "sequential")[0]] == [64] * 4
    assert len(set(draws(1_000, "random")[0][0])) == 64


@pytest.mark.parametrize("compare", [compare_formats, compare_codecs])
def test_without_events_it_says_how_to_make_some(
    compare: Callable[[Path], Any], tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="make_events --out"):
        compare(tmp_path)


def test_too_little_room_is_said_before_anything_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1_000_000}))
    with pytest.raises(CourseError, match=r"1 MB free .* most=500"):
        compare_formats(folder)


@pytest.mark.slow
def test_every_codec_makes_the_pulses_smaller(codecs: CompressionTable) -> None:
    assert [row.name for row in codecs.rows] == ["raw", *CODECS]
    assert codecs.row("raw").ratio == 1
    assert all(codecs.row(name).ratio > 1.2 for name in CODECS)


@pytest.mark.slow
def test_compression_loses_on_a_fast_disk_and_wins_on_slow_storage(folder: Path) -> None:
    lame = replace(storage_preset("NFS"), name="slow line", mb_s=1, stream_mb_s=1)
    fast = replace(storage_preset("laptop SSD"), name="fast disk", mb_s=1e6, stream_mb_s=1e6)
    codecs = compare_codecs(folder, presets=[lame, fast])
    for name in CODECS:
        ratios = [codecs.ratio(name, f"emulated {each}") for each in ("slow line", "fast disk")]
        assert ratios[0] < 1 < ratios[1]


def test_at_the_crossover_both_take_as_long() -> None:
    row = CodecRow("zstd", ratio=2.5, decode_mb_s=600, seconds={})
    assert row.crossover_mb_s == pytest.approx(360)
    assert row.cost_at(360) == pytest.approx(1)
    assert row.cost_at(100) < 1 < row.cost_at(1_000)
    assert replace(row, ratio=0.99).crossover_mb_s == 0  # what cannot be compressed never pays


def test_reading_is_that_of_the_calendar_and_decoding_agrees_with_the_formula(
    codecs: CompressionTable,
) -> None:
    figures = storage_preset("NFS")
    reading_ms = figures.open_ms + figures.request_ms + 1e3 * codecs.megabytes / figures.mb_s
    assert 1e3 * codecs.row("raw").seconds[NFS] == pytest.approx(reading_ms, rel=0.01)
    for row in codecs.rows:
        raw, latency_s = codecs.megabytes / codecs.bandwidths[NFS], 3e-3
        expected = raw * row.cost_at(codecs.bandwidths[NFS]) + latency_s
        assert row.seconds[NFS] == pytest.approx(expected, rel=0.05)


def test_codecs_have_a_row_and_a_line_each_and_a_dot_on_each_storage(
    codecs: CompressionTable,
) -> None:
    for seen in (codecs._repr_html_(), repr(codecs)):
        assert all(name in seen for name in ("raw", *CODECS, SSD, NFS, codecs.machine))
    figure = codecs.picture()
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    (panel,) = figure.axes
    _, labels = panel.get_legend_handles_labels()
    named = [label.partition(":")[0] for label in labels if not label.startswith("_")]
    assert named == list(CODECS)
    dots = [line for line in panel.lines if line.get_marker() == "o"]
    assert len(dots) == len(CODECS) * len(codecs.bandwidths)
    assert codecs.machine in figure.get_suptitle()
