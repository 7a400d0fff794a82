"""Count or measure the claims of notebook 07."""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import torch
from fsspec.implementations.local import LocalFileSystem
from torch.utils.data import DataLoader, Dataset

from course_utils.hardware.storage import slow_storage
from course_utils.loading.events import MemmapEvents
from course_utils.stories.staging_scripts import COMMON_SCRIPT, run_script
from course_utils.teaching.notebook import data_path
from keepfed.loaders.cache import SampleCache


def _folder() -> Path:
    return data_path("events", "S")


def percent_left_by_the_script() -> int:
    """Return the percentage of a file that the script leaves if half a copy already exists."""
    with tempfile.TemporaryDirectory() as folder:
        source, place = Path(folder, "pulses.bin"), Path(folder, "place")
        place.mkdir()
        source.write_bytes(bytes(2000))
        Path(place, source.name).write_bytes(bytes(1000))
        copy = run_script(COMMON_SCRIPT, source, place)
        return round(100 * copy.stat().st_size / source.stat().st_size)


def requests_behind_filecache() -> int:
    """Count the requests of a second epoch through fsspec's cache of whole files."""
    folder = _folder()
    storage = slow_storage(folder, "laptop SSD", cache_mb=0)
    with tempfile.TemporaryDirectory() as place:
        cached = _filecache(storage, place)
        for _ in range(2):
            storage.reset_counters()
            _read_all(MemmapEvents(folder, fs=cached))
    return storage.counters().requests


class _Interrupted(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Local files whose first copy is interrupted after half of the file."""

    cachable = False
    interrupt = True

    def get_file(self, rpath: str, lpath: str, **kwargs: Any) -> None:
        if self.interrupt:
            self.interrupt = False
            content = Path(rpath).read_bytes()
            Path(lpath).write_bytes(content[: len(content) // 2])
            raise KeyboardInterrupt
        super().get_file(rpath, lpath, **kwargs)


def percent_after_an_interrupt() -> int:
    """Return the percentage of a file that the same object serves after an interrupted copy."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "pulses.bin")
        source.write_bytes(bytes(2000))
        cached = _filecache(_Interrupted(), f"{folder}/cache")
        with suppress(KeyboardInterrupt):
            cached.cat_file(str(source))
        with cached.open(str(source)) as file:
            return round(100 * len(file.read()) / 2000)


def days_of_old_contents() -> float:
    """Return the days until a changed source is checked again; 0 if it is checked at once."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "pulses.bin")
        source.write_bytes(b"old")
        cached = _filecache(LocalFileSystem(), f"{folder}/cache")
        for content in b"old", b"newer":
            source.write_bytes(content)
            with cached.open(str(source)) as file:
                served = file.read()
    return float(cached.expiry / 86_400) if served == b"old" else 0.0


def _read_all(events: Any) -> None:
    for index in range(len(events)):
        events[index]


def _filecache(fs: Any, place: str) -> Any:
    return fsspec.filesystem("filecache", fs=fs, cache_storage=place, skip_instance_cache=True)


class Kept(Dataset[int]):
    """Dataset that keeps samples in a dict, and counts its reads in shared memory."""

    def __init__(self) -> None:
        self.kept: dict[int, int] = {}
        self.reads = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if index not in self.kept:
            self.reads += 1
            self.kept[index] = index
        return self.kept[index]


def percent_read_again() -> int:
    """Return the percentage of samples that new workers read again in the second epoch."""
    dataset = Kept()
    loader = DataLoader(dataset, batch_size=40, num_workers=1)
    list(loader)
    dataset.reads.zero_()
    list(loader)
    return round(100 * int(dataset.reads) / len(dataset))


def hit_share_over_room() -> float:
    """Return the hit share of a cache that never evicts, relative to the share that fits."""
    source = Kept()
    room: SampleCache[int] = SampleCache(source, megabytes=1)
    _read_all(room)
    half: SampleCache[int] = SampleCache(source, megabytes=0.5 * room.nbytes / 1e6)
    _read_all(half)
    source.kept.clear()
    source.reads.zero_()
    _read_all(half)
    return (1 - int(source.reads) / len(source)) / 0.5
