"""The traps of workers: they are there, and what the course recommends mends them."""

import sys
from multiprocessing import Value, get_context
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from course_stories.worker_traps import compare, show, traps

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="about fork and /dev/shm")


@linux
def test_a_list_of_strings_grows_in_a_worker_and_packed_strings_do_not() -> None:
    grown = [sum(traps.strings(mended).values()) for mended in (False, True)]
    assert grown[0] > 8
    assert grown[1] < grown[0] / 4


def blas_threads() -> int:
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


class Watched(traps.Products):
    most_threads = Value("i")

    def __getitem__(self, index: int) -> float:
        self.most_threads.value = max(self.most_threads.value, blas_threads())
        return super().__getitem__(index)


@linux
@pytest.mark.parametrize("mended", [False, True])
def test_workers_compute_with_all_threads_and_mended_with_one(
    mended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what that costs is measured by benchmarks/claims/notebook_04.py
    monkeypatch.setattr(traps, "Products", Watched)
    Watched.most_threads.value = 0
    assert traps.threads(mended)["seconds"] > 0
    assert Watched.most_threads.value == (1 if mended else blas_threads())


@linux
@pytest.mark.parametrize(("mended", "position"), [(False, 6 * traps.ROW), (True, 0)])
def test_a_forked_process_moves_the_position_of_a_handle_and_not_of_a_lazy_file(
    mended: bool, position: int, tmp_path: Path
) -> None:
    # that two of them mix up their rows is a race, which may not be lost for many epochs
    path = tmp_path / "rows.bin"
    np.arange(10, dtype="<u8").tofile(path)
    rows = traps.TrapRows(path, mended)
    with rows.opened_before_the_fork or rows.lazy.file as file:
        reader = get_context("fork").Process(target=rows.__getitem__, args=(5,))
        reader.start()
        reader.join()
        assert file.tell() == position
    if mended:
        assert [*traps.one_handle(True).values()] == [0]


def test_what_cannot_be_pickled_hangs_until_a_timeout_is_set(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = show("unpicklable", mended=False, seconds=5)
    assert before.numbers == {}
    assert before.demo.ending.startswith("Stopped after 5 s")
    with pytest.raises(RuntimeError, match="timed out after 2 seconds"):
        traps.unpicklable(True)
    assert "cannot pickle '_thread.lock' object" in capfd.readouterr().err


def test_a_system_without_fork_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    both = compare("strings")
    assert both.before.numbers == {}
    said = "Not shown: it is about fork, which this system does not have"
    assert both.title in both._repr_html_()
    assert both._repr_html_().count(said) == 2
