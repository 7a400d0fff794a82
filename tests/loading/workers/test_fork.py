"""What a forked process leaves to its parent: connections that both have in their hands."""

from __future__ import annotations

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
    """Collect all garbage, among it what fsspec threw out of its cache when it was forked."""
    worker_init(0)
    gc.collect()


@pytest.mark.slow
def test_the_parent_of_a_forked_process_still_hears_the_answers_to_its_requests(
    tmp_path: Path,
) -> None:
    (tmp_path / "numbers.bin").write_bytes(bytes(1000))
    answers: list[bytes] = []
    with object_store(tmp_path, None) as store:

        def ask() -> None:
            files = fsspec.filesystem("http", headers=store.headers)  # kept by fsspec alone
            answers.append(files.cat_file(f"{store.url}/numbers.bin", start=0, end=1000))

        ask()
        for number in range(3):
            process = multiprocessing.get_context("fork").Process(target=work)
            process.start()
            process.join()
            again = Thread(target=ask, daemon=True)  # one that waits for ever is left behind
            again.start()
            again.join(60)
            assert answers == [bytes(1000)] * (number + 2)
            assert process.exitcode == 0
