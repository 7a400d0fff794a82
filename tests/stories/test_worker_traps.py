"""The traps of workers: they are there, and what the course recommends mends them."""

from __future__ import annotations

import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_utils.errors import CourseError
from notebooks.stories.worker_traps import compare, show
from notebooks.stories.worker_traps import traps as traps
from notebooks.stories.worker_traps.traps import TRAPS, Numbers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="about fork and /dev/shm")


def values(numbers: Numbers) -> list[Any]:
    return list(numbers.values())


@linux
def test_a_list_of_strings_grows_in_a_worker_and_packed_strings_do_not() -> None:
    grown = [end - start for start, end in (values(traps.strings(m)) for m in (False, True))]
    assert grown[0] > 15
    assert grown[1] < grown[0] / 4


@linux
@pytest.mark.alone
def test_workers_with_one_thread_each_are_faster() -> None:
    before, after = (values(traps.threads(m))[0] for m in (False, True))
    assert after < before


@linux
@pytest.mark.parametrize(("mended", "position"), [(False, 6 * traps.ROW), (True, 0)])
def test_a_forked_process_moves_the_position_of_a_handle_and_not_of_a_lazy_file(
    mended: bool, position: int, tmp_path: Path
) -> None:
    # that two of them mix up their rows is a race, which may not be lost for many epochs
    path = tmp_path / "rows.bin"
    np.arange(10, dtype="<u8").tofile(path)
    rows = traps.Rows(path, mended)
    with rows.opened_before_the_fork or rows.lazy.file as file:
        reader = get_context("fork").Process(target=rows.__getitem__, args=(5,))
        reader.start()
        reader.join()
        assert file.tell() == position


@linux
def test_rows_through_a_lazy_file_are_right() -> None:
    assert values(traps.one_handle(True)) == [0]


def test_what_cannot_be_pickled_hangs_until_a_timeout_is_set(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = show("unpicklable", mended=False, seconds=8)
    assert before.numbers == {}
    assert before.demo.ending.startswith("Stopped after 8 s")
    assert traps.unpicklable(True)["error"] == "DataLoader timed out after 2 seconds"
    assert "cannot pickle '_thread.lock' object" in capfd.readouterr().err


def test_a_class_of_the_notebook_does_not_reach_a_spawned_worker() -> None:
    runs = compare("class_in_notebook", seconds=60)
    assert "exited unexpectedly" in runs.before.numbers["error"]
    assert "Can't get attribute 'InNotebook'" in runs.before.printed
    assert runs.after.numbers["error"] == "none"
    title, before, *_, after = repr(runs).splitlines()
    assert title == TRAPS["class_in_notebook"].title
    assert before.startswith("Before: batches 0, error ")
    assert after.startswith("After: batches 4, error none")
    assert "Can&#x27;t get attribute" in runs._repr_html_()


def test_an_unknown_demonstration_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CourseError, match="take one of: threads, strings"):
        show("nothing", mended=True)


def test_a_system_without_fork_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    comparison = compare("strings")
    assert comparison.before.numbers == {}
    assert "it is about fork, which this system does not have" in repr(comparison)
