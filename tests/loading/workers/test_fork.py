import gc
import multiprocessing
import os
from pathlib import Path
from threading import Thread

import fsspec
import pytest

from course_utils.hardware.object_store import object_store
from keepfed.loaders.workers import worker_init

if not hasattr(os, "fork"):
    pytest.skip("forks processes", allow_module_level=True)


def work() -> None:
    """Collect all garbage, including objects that fsspec removed from its cache after a fork."""
    worker_init(0)
    gc.collect()


@pytest.mark.slow
def test_parent_of_a_fork_still_receives_answers(tmp_path: Path) -> None:
    (tmp_path / "numbers.bin").write_bytes(bytes(1000))
    answers: list[bytes] = []
    with object_store(tmp_path, None) as store:

        def ask() -> None:
            files = fsspec.filesystem("http", headers=store.headers)  # only fsspec's cache keeps it
            answers.append(files.cat_file(f"{store.url}/numbers.bin", start=0, end=1000))

        ask()
        for number in range(3):
            process = multiprocessing.get_context("fork").Process(target=work)
            process.start()
            process.join()
            again = Thread(target=ask, daemon=True)  # a daemon, because it may hang
            again.start()
            again.join(60)
            assert answers == [bytes(1000)] * (number + 2)
            assert process.exitcode == 0
