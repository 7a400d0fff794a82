"""A storage that counts: every read is a request, nothing is kept, and nobody waits."""

from pathlib import Path

import pytest

from course_utils.hardware.storage import VirtualClock, counting_storage


def test_each_read_is_counted_also_the_second_of_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100))
    storage = counting_storage(tmp_path)
    for _ in range(2):
        with storage.open("file") as file:
            assert len(file.read(60)) == 60
    counted = storage.counters()
    assert (counted.opens, counted.requests, counted.bytes_read) == (2, 2, 120)


def test_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(10_000_000))
    storage = counting_storage(tmp_path)
    clock = VirtualClock(storage, computing=lambda: 0)
    with storage.open("file") as file:
        file.read()
    assert clock.waited == 0


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        counting_storage(tmp_path / "nowhere")
