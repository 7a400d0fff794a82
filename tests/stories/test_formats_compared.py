"""The comparisons of formats and codecs: the figures are consistent and complete."""

import io
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_utils.loading.events import FORMATS, EventArrays
from course_utils.stories.formats_compared import compare_codecs, compare_formats
from course_utils.stories.formats_compared.compression import CODECS
from course_utils.stories.formats_compared.formats import (
    AMPLIFICATION,
    NAMES,
    PATTERNS,
    S3,
    VARIANTS,
    WARM,
    FormatTable,
    draws,
)
from course_utils.teaching.notebook import data_path
from keepfed.errors import KeepfedError

LUSTRE = "emulated busy Lustre"
SSD, NFS = "emulated laptop SSD", "emulated NFS"
COUNT = 50  # events to compare: every 40th of 2,000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a link to the data in a folder that no other test uses."""
    here = tmp_path_factory.mktemp("data") / "events-S"
    here.symlink_to(data_path("events", "S"))
    return here


@pytest.fixture(scope="module")
def table(folder: Path) -> FormatTable:
    return compare_formats(folder, [*FORMATS], most=COUNT)


@pytest.mark.slow
def test_every_format_costs_as_much_as_its_read_unit(table: FormatTable, folder: Path) -> None:
    assert set(table.rows) == set(FORMATS) == set(table.names)
    assert set(FORMATS) == {*NAMES, *VARIANTS}
    assert table.storages == [WARM, LUSTRE, S3]
    for row in table.rows.values():
        assert set(row.costs) == {(at, how) for at in table.storages for how in PATTERNS}
        assert min(row.size, row.write_s, *(cost.seconds for cost in row.costs.values())) > 0
    lengths = np.diff(EventArrays.load(folder).offsets)
    assert table.events == COUNT
    assert (
        table.pulses == lengths[:: -(-len(lengths) // COUNT)].sum()
    )  # evenly spread over the file
    assert not list(folder.parent.glob(".formats-*"))
    for storage in (S3, LUSTRE, WARM):  # one file per event: one open and one read each
        cost = table.cost("npz", storage, "in order")
        assert (cost.requests, cost.opens) == (COUNT - 1, COUNT - 1)
    for name in ("npy", "hdf5"):  # one large file: one request without extra bytes
        cost = table.cost(name, S3, "one event")
        assert (cost.requests, cost.opens, cost.amplification) == (1, 0, 1)
    for name in ("parquet", "parquet-zstd", "hdf5-misfit", "root"):  # large units
        kinds = ("one event", "in order")
        alone, in_order = (table.cost(name, S3, kind).amplification for kind in kinds)
        assert alone > 10 > in_order
    for small, large in (("npz-deflate", "npz"), ("hdf5-gzip", "hdf5-chunked")):
        assert table.rows[small].size < table.rows[large].size
    for place in itertools.product(table.storages, PATTERNS):
        assert min(table.ratio(name, *place) for name in table.names) == 1


@pytest.mark.slow
def test_tables_and_figure_show_all_formats_and_label_emulation(table: FormatTable) -> None:
    seen, figure = table._repr_html_(), table.picture()
    assert all(seen.count(form.title) >= len(table.storages) for form in FORMATS.values())
    assert all(text in seen for text in (*table.storages, table.machine))
    assert seen.count("<tr>") == len(table.storages) * (1 + len(FORMATS))
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    assert [panel.get_title() for panel in figure.axes] == [WARM, LUSTRE, S3, AMPLIFICATION]
    for panel in figure.axes:
        assert [len(line.get_xdata()) for line in panel.lines] == [len(FORMATS)] * len(PATTERNS)
    assert table.machine in figure.get_suptitle()


def test_draws_do_not_include_event_zero() -> None:
    for pattern in PATTERNS:
        asked = [[*itertools.chain(*draw)] for draw in draws(1_000, pattern)]
        assert all(min(indices) > 0 and max(indices) < 1_000 for indices in asked)
        assert len({tuple(indices) for indices in asked}) == len(asked)


@pytest.mark.parametrize("compare", [compare_formats, compare_codecs])
def test_missing_events_or_space_raise_error(
    compare: Callable[[Path], Any], tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match="make_events --out"):
        compare(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1_000_000}))
    with pytest.raises(KeepfedError, match=r"1(\.0)? MB free, .* most=500"):
        compare_formats(folder)


@pytest.mark.slow
def test_compression_pays_only_on_slow_storage(folder: Path) -> None:
    table = compare_codecs(folder)
    assert list(table.codecs) == list(CODECS)
    for cost in table.codecs.values():
        assert cost.ratio > 1.2
        assert cost.cost_at(1) < 1 == pytest.approx(cost.cost_at(cost.crossover_mb_s))
        assert cost.cost_at(1e6) > 1
    assert replace(cost, ratio=0.99).crossover_mb_s == 0  # incompressible data never pay
    page = table._repr_html_()
    assert all(name in page for name in (*CODECS, SSD, NFS, table.machine))
    assert table.ratio("zstd", NFS) < table.ratio("zstd", SSD)
    figure = table.picture()
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    _, labels = figure.axes[0].get_legend_handles_labels()
    assert [label.partition(":")[0] for label in labels] == list(CODECS)
