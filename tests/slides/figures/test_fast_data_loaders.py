"""What the deck "Fast data loaders" says of its figures."""

import pytest

from slides.figures.fast_data_loaders.drawing import LOOP, rate
from slides.figures.fast_data_loaders.loading import amplifications
from slides.figures.fast_data_loaders.measuring import _lines, _panel
from slides.figures.fast_data_loaders.near_the_gpu import (
    _copy_ms,
    _default_stream,
    _side_stream,
    _train,
)
from slides.figures.fast_data_loaders.waiting import hit_percent


def test_data_a_tenth_larger_than_the_cache_are_never_found_in_order() -> None:
    assert hit_percent(1.0, in_order=True) == 100
    assert hit_percent(1.1, in_order=True) == 0
    assert hit_percent(1.1, in_order=False) == pytest.approx(70, abs=5)


def test_a_simulated_loop_keeps_to_the_four_letters() -> None:
    assert rate(LOOP) == pytest.approx(1000 / LOOP.step_ms)


def test_one_busy_multiprocessor_is_100_percent_of_gpu_util() -> None:
    panel = _panel(kernels=1 / 82)
    assert panel.gpu_util == 100
    assert panel.sm_active < 0.02


def test_the_time_of_a_step_lands_on_the_line_that_waits() -> None:
    with_item, without = _lines(read_loss=True), _lines(read_loss=False)
    assert with_item["loss.item()"] == pytest.approx(40, abs=1)
    assert without["batch = upload(batch)"] == pytest.approx(40, abs=2)


@pytest.mark.parametrize(("pinned", "non_blocking"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_only_a_pinned_copy_that_does_not_block_lets_the_program_go_on(
    pinned: bool, non_blocking: bool
) -> None:
    import torch

    batch = torch.zeros(1_000_000, dtype=torch.uint8)
    goes_on, there = _copy_ms(batch, pinned=pinned, non_blocking=non_blocking)
    assert (goes_on < 0.5 * there) == (pinned and non_blocking)


def test_a_stream_without_a_wait_computes_with_garbage() -> None:
    right = {name: _train(design)[1] for name, design in _DESIGNS.items()}
    assert right == {"one queue": [True] * 6, "no wait": [False] * 6, "event": [True] * 6}


_DESIGNS = {
    "one queue": _default_stream,
    "no wait": _side_stream(wait=False),
    "event": _side_stream(wait=True),
}


@pytest.mark.full
def test_parquet_and_root_read_a_hundred_bytes_for_one() -> None:
    read = amplifications()
    assert min(read["parquet"], read["root"]) > 100
    assert max(read[name] for name in ("npy", "hdf5", "tar", "npz")) < 1.5
