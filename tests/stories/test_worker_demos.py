"""The traps of workers: they are there, and what the course recommends mends them."""

from __future__ import annotations

import gc
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_utils.errors import CourseError
from notebooks.stories.worker_traps import broken as broken
from notebooks.stories.worker_traps import compare, show
from notebooks.stories.worker_traps import memory as memory
from notebooks.stories.worker_traps import silent as silent
from notebooks.stories.worker_traps import speed as speed
from notebooks.stories.worker_traps.demos import TITLES, Numbers

pytestmark = [
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="about fork and /dev/shm")


def values(numbers: Numbers) -> list[Any]:
    return list(numbers.values())


@linux
def test_a_list_of_strings_grows_in_a_worker_and_packed_strings_do_not() -> None:
    grown = [end - start for start, end in (values(memory.strings(m)) for m in (False, True))]
    assert grown[0] > 15
    assert grown[1] < grown[0] / 4


def test_a_view_sends_its_whole_clip_and_a_copy_only_itself() -> None:
    assert values(memory.view(False)) == [0.2, 12.58]
    assert values(memory.view(True)) == [0.2, 0.2]


@linux
@pytest.mark.parametrize("mended", [False, True])
def test_as_much_shared_memory_is_used_as_the_formula_says(mended: bool) -> None:
    assert values(memory.in_flight(mended)) == ([72, 72] if mended else [216, 216])


def test_a_memory_map_is_sent_as_data_and_a_lazy_file_as_its_name() -> None:
    assert values(memory.memory_map(False))[0] > 50_000_000
    assert values(memory.memory_map(True))[0] < 1000


@linux
def test_workers_with_one_thread_each_are_faster() -> None:
    before, after = (values(speed.threads(m))[0] for m in (False, True))
    assert after < before


def test_only_a_shared_cache_outlives_its_worker() -> None:
    assert values(speed.cache(False)) == [[64, 64, 64]]
    assert values(speed.cache(True)) == [[64, 0, 0]]


def test_objects_cost_the_main_process_more_than_arrays() -> None:
    before, after = (values(speed.objects(m))[0] for m in (False, True))
    assert after < before / 2


def test_out_of_order_the_slow_sample_holds_up_nobody() -> None:
    assert values(speed.straggler(False))[1]
    assert not values(speed.straggler(True))[1]


def test_a_kept_generator_repeats_itself_and_worker_rng_does_not() -> None:
    assert values(silent.random_numbers(False)) == [2, 2]
    assert values(silent.random_numbers(True)) == [8, 16]


@linux
@pytest.mark.parametrize(("mended", "position"), [(False, 6 * silent.ROW), (True, 0)])
def test_a_forked_process_moves_the_position_of_a_handle_and_not_of_a_lazy_file(
    mended: bool, position: int, tmp_path: Path
) -> None:
    # that two of them mix up their rows is a race, which may not be lost for many epochs
    path = tmp_path / "rows.bin"
    np.arange(10, dtype="<u8").tofile(path)
    rows = silent.Rows(path, mended)
    with rows.opened_before_the_fork or rows.lazy.file as file:
        reader = get_context("fork").Process(target=rows.__getitem__, args=(5,))
        reader.start()
        reader.join()
        assert file.tell() == position


@linux
def test_rows_through_a_lazy_file_are_right() -> None:
    assert values(silent.one_handle(True)) == [0]


def test_an_iterator_that_ends_cuts_the_epoch_short() -> None:
    assert values(silent.short_epoch(False)) == [10, 16]
    assert values(silent.short_epoch(True)) == [16, 16]


def test_a_shared_epoch_reaches_persistent_workers() -> None:
    assert values(silent.epoch_number(False)) == [1]
    assert values(silent.epoch_number(True)) == [3]


def test_whole_batches_per_worker_lose_one_tail_instead_of_four() -> None:
    assert values(silent.tails(False)) == [64]
    assert values(silent.tails(True)) == [96]


@pytest.mark.skipif(sys.platform == "win32", reason="no forkserver there")
def test_a_server_that_has_loaded_torch_starts_the_second_epoch_at_once() -> None:
    both = compare("first_batch", seconds=60)
    before, after = both.before.numbers, both.after.numbers
    assert values(after)[0][1] < values(before)[0][1] / 2


def test_what_cannot_be_pickled_hangs_until_a_timeout_is_set(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = show("unpicklable", mended=False, seconds=8)
    assert before.numbers == {}
    assert before.demo.ending.startswith("Stopped after 8 s")
    assert broken.unpicklable(True)["error"] == "DataLoader timed out after 2 seconds"
    assert "cannot pickle '_thread.lock' object" in capfd.readouterr().err


@linux
def test_the_line_of_a_crash_is_printed_after_worker_init_only() -> None:
    runs = compare("crash", seconds=60)
    for run, told in ((runs.before, False), (runs.after, True)):
        assert run.numbers["batches"] < 40
        assert "worker" in run.numbers["error"]  # exited, or was killed by a signal
        assert ("in __getitem__" in run.printed) == told


@linux
def test_a_forked_worker_hangs_in_openmp_where_a_spawned_one_works() -> None:
    runs = compare("openmp", seconds=60)
    assert runs.before.numbers["error"] == "DataLoader timed out after 2 seconds"
    assert runs.after.numbers["error"] == "none"


def test_a_class_of_the_notebook_does_not_reach_a_spawned_worker() -> None:
    runs = compare("class_in_notebook", seconds=60)
    assert "exited unexpectedly" in runs.before.numbers["error"]
    assert "Can't get attribute 'InNotebook'" in runs.before.printed
    assert runs.after.numbers["error"] == "none"
    title, before, *_, after = repr(runs).splitlines()
    assert title == TITLES["class_in_notebook"]
    assert before.startswith("Before: batches 0, error ")
    assert after.startswith("After: batches 4, error none")
    assert "Can&#x27;t get attribute" in runs._repr_html_()


@linux
def test_a_loop_left_as_garbage_makes_noise_in_the_next_workers(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = show("old_loop", mended=False, seconds=60)
    assert "can only test a child process" in before.printed
    try:
        after = broken.old_loop(True)
    finally:
        gc.enable()
    assert capfd.readouterr().err == ""
    assert before.numbers["batches"] == after["batches"] == 8


def test_an_unknown_demonstration_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CourseError, match="take one of: strings, view"):
        show("nothing", mended=True)


def test_a_system_without_fork_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    comparison = compare("strings")
    assert comparison.before.numbers == {}
    assert "it is about fork, which this system does not have" in repr(comparison)
