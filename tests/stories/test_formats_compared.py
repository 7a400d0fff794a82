import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from course_utils.loading.events import FORMATS
from course_utils.stories.formats_compared import BANDWIDTHS, compare_codecs, compare_formats
from course_utils.stories.formats_compared.formats import NAMES, PATTERNS, S3, STORAGES, VARIANTS
from course_utils.teaching.notebook import data_path
from keepfed.errors import KeepfedError

COUNT = 50  # events to compare: every 40th of 2,000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a link to the data in a folder that no other test uses."""
    (tmp_path / "events-S").symlink_to(data_path("events", "S"))
    return tmp_path / "events-S"


@pytest.mark.slow
def test_every_format_costs_as_much_as_its_read_unit(folder: Path) -> None:
    table = compare_formats(folder, [*FORMATS], most=COUNT)
    assert set(table.sizes) == set(FORMATS) == {*NAMES, *VARIANTS}
    assert set(table.costs) == {*itertools.product(FORMATS, STORAGES, PATTERNS)}
    assert min(cost.seconds for cost in table.costs.values()) > 0
    assert not list(folder.parent.glob(".formats-*"))
    for storage in STORAGES:  # one file per event: one open and one read each
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
        assert table.sizes[small] < table.sizes[large]
    for place in itertools.product(STORAGES, PATTERNS):
        assert min(table.ratio(name, *place) for name in FORMATS) == 1
    assert table._repr_markdown_().count("| 49 (+ 49) |") == 2  # both kinds of npz
    for panel in table.picture().axes:
        assert [len(line.get_xdata()) for line in panel.lines] == [len(FORMATS)] * len(PATTERNS)


@pytest.mark.parametrize("compare", [compare_formats, compare_codecs])
def test_missing_events_or_space_raise_error(
    compare: Callable[[Path], Any], tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match="make_events --check --out"):
        compare(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1_000_000}))
    with pytest.raises(KeepfedError, match=r"1(\.0)? MB free, .* most=500"):
        compare_formats(folder)


def test_compression_pays_only_on_slow_storage(folder: Path) -> None:
    codecs = compare_codecs(folder)
    for cost in codecs.values():
        assert cost.ratio > 1.2
        assert cost.cost_at(1) < 1 == pytest.approx(cost.cost_at(cost.crossover_mb_s))
        assert cost.cost_at(1e6) > 1
    assert replace(cost, ratio=0.99).crossover_mb_s == 0  # incompressible data never pay
    nfs, ssd = (BANDWIDTHS[f"emulated {name}"] for name in ("NFS", "laptop SSD"))
    assert codecs["zstd"].cost_at(nfs) < codecs["zstd"].cost_at(ssd)
