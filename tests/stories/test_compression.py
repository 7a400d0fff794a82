import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from course_utils.hardware.storage import storage_preset
from data_scripts import make_events
from notebooks.stories.compression import compare_codecs
from notebooks.stories.compression.compression import CODECS, CodecRow, CompressionTable

SSD, NFS = "emulated laptop SSD", "emulated NFS"


@pytest.fixture(scope="module")
def events_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "events"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(make_events.COUNTS, "S", 300)
        patch.setitem(make_events.FORMATS_OF, "S", ())
        assert make_events.main(["--size", "S", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def table(events_folder: Path) -> CompressionTable:
    return compare_codecs(events_folder)


def test_every_codec_makes_the_pulses_smaller(table: CompressionTable, events_folder: Path) -> None:
    assert [row.name for row in table.rows] == ["raw", *CODECS]
    assert table.row("raw").ratio == 1
    assert all(table.row(name).ratio > 1.2 for name in CODECS)
    pulses = np.load(events_folder / "npy/pulses.npy")
    assert table.megabytes == pytest.approx(pulses.nbytes / 1e6)


def test_compression_loses_on_a_fast_disk_and_wins_on_slow_storage(events_folder: Path) -> None:
    slow = replace(storage_preset("NFS"), name="slow line", mb_s=1, stream_mb_s=1)
    fast = replace(storage_preset("laptop SSD"), name="fast disk", mb_s=1e6, stream_mb_s=1e6)
    table = compare_codecs(events_folder, presets=[slow, fast])

    for name in CODECS:
        assert table.ratio(name, "emulated slow line") < 1 < table.ratio(name, "emulated fast disk")


def test_at_the_crossover_both_take_as_long() -> None:
    row = CodecRow("zstd", ratio=2.5, decode_mb_s=600, seconds={})

    assert row.crossover_mb_s == pytest.approx(360)
    assert row.cost_at(360) == pytest.approx(1)
    assert row.cost_at(100) < 1 < row.cost_at(1_000)


def test_what_cannot_be_compressed_never_pays() -> None:
    assert CodecRow("gzip", ratio=0.99, decode_mb_s=600, seconds={}).crossover_mb_s == 0


def test_emulated_reading_is_that_of_the_calendar(table: CompressionTable) -> None:
    figures = storage_preset("NFS")
    reading_ms = figures.open_ms + figures.request_ms + 1e3 * table.megabytes / figures.mb_s

    assert 1e3 * table.row("raw").seconds[NFS] == pytest.approx(reading_ms, rel=0.01)


def test_reading_and_decoding_agree_with_the_formula(table: CompressionTable) -> None:
    for row in table.rows:
        raw, latency_s = table.megabytes / table.bandwidths[NFS], 3e-3
        expected = raw * row.cost_at(table.bandwidths[NFS]) + latency_s
        assert row.seconds[NFS] == pytest.approx(expected, rel=0.05)


def test_page_and_text_show_every_codec_and_say_what_is_emulated(table: CompressionTable) -> None:
    for shown in (table._repr_html_(), repr(table)):
        assert all(name in shown for name in ("raw", *CODECS, SSD, NFS, table.machine))


def test_the_picture_has_a_line_for_each_codec_and_a_dot_on_each_storage(
    table: CompressionTable,
) -> None:
    figure = table.picture()
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    (panel,) = figure.axes

    _, labels = panel.get_legend_handles_labels()
    named = [label.partition(":")[0] for label in labels if not label.startswith("_")]
    assert named == list(CODECS)
    dots = [line for line in panel.lines if line.get_marker() == "o"]
    assert len(dots) == len(CODECS) * len(table.bandwidths)
    assert table.machine in figure.get_suptitle()


def test_without_events_it_says_how_to_make_some(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make_events --out"):
        compare_codecs(tmp_path)


def test_an_unknown_codec_is_named(events_folder: Path) -> None:
    with pytest.raises(ValueError, match="arj"):
        compare_codecs(events_folder, codecs=["arj"])
