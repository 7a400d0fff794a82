import pytest
import torch

from slides.figures.fast_data_loaders import near_the_gpu as gpu
from slides.figures.fast_data_loaders.loading import amplifications
from slides.figures.fast_data_loaders.measuring import _lines
from slides.figures.fast_data_loaders.waiting import hit_percent


def test_ordered_reads_miss_a_cache_that_is_slightly_too_small() -> None:
    assert hit_percent(1.0, in_order=True) == 100
    assert hit_percent(1.1, in_order=True) == 0
    assert hit_percent(1.1, in_order=False) == pytest.approx(70, abs=5)


def test_stopwatch_shows_step_time_at_the_line_that_waits() -> None:
    with_item, without = _lines(read_loss=True), _lines(read_loss=False)
    assert with_item["loss.item()"] == pytest.approx(40, abs=1)
    assert without['batch.to("cuda")'] == pytest.approx(40, abs=2)


def test_only_pinned_non_blocking_copies_return_early() -> None:
    for pinned, non_blocking in ((0, 0), (0, 1), (1, 0), (1, 1)):
        batch = torch.zeros(1_000_000, dtype=torch.uint8)
        returned, arrived = gpu._copy_ms(batch, pinned=pinned, non_blocking=non_blocking)
        assert (returned < 0.5 * arrived) == (pinned and non_blocking), pinned


def test_stream_without_wait_computes_with_garbage() -> None:
    assert gpu._train(gpu._default_stream)[1] == [True] * 6
    for wait in (False, True):
        assert gpu._train(gpu._side_stream(wait=wait))[1] == [wait] * 6


@pytest.mark.full
def test_parquet_and_root_read_a_hundred_bytes_per_byte() -> None:
    read = amplifications()
    assert min(read["parquet"], read["root"]) > 100
    assert max(read[name] for name in ("npy", "hdf5", "tar", "npz")) < 1.5
