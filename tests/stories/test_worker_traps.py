import sys
from multiprocessing import Value, get_context
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from course_utils.stories import worker_traps as traps
from course_utils.stories.worker_traps import show

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:This DataLoader will create")]
linux = pytest.mark.skipif(sys.platform != "linux", reason="about fork and /dev/shm")


@linux
def test_workers_grow_with_string_list_but_not_packed_strings() -> None:
    grown = [sum(traps.strings(fixed).values()) for fixed in (False, True)]
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
def test_fix_limits_workers_to_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    # notebook 04 measures the cost
    monkeypatch.setattr(traps, "Products", Watched)
    for fixed in False, True:
        Watched.most_threads.value = 0
        assert traps.threads(fixed)["seconds"] > 0
        assert Watched.most_threads.value == (1 if fixed else blas_threads())


@linux
def test_fork_shares_position_of_handle(tmp_path: Path) -> None:
    # mixed-up rows are a race condition, which may not occur for many epochs
    path = tmp_path / "rows.bin"
    np.arange(10, dtype="<u8").tofile(path)
    rows = traps.TrapRows(path)
    reader = get_context("fork").Process(target=rows.__getitem__, args=(5,))
    reader.start()
    reader.join()
    assert rows.file.tell() == 6 * traps.ROW
    rows.file.close()
    assert [*traps.one_handle(True).values()] == [0]


def test_unpicklable_sample_hangs_without_timeout(capfd: pytest.CaptureFixture[str]) -> None:
    before = show("unpicklable", seconds=5)
    assert before.numbers == {}
    assert before.demo.ending.startswith("Stopped after 5 s")
    with pytest.raises(RuntimeError, match="timed out after 2 seconds"):
        traps.unpicklable(True)
    assert "cannot pickle '_thread.lock' object" in capfd.readouterr().err
