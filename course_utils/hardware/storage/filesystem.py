"""Emulated slow storage over local files, as an fsspec file system.

    fs = slow_storage("data/events-S", "busy Lustre", cache_mb=50)
    with fs.open("events.h5") as file, h5py.File(file) as events: ...
    print(fs.counters())

The data come from local files, and their timing from a calendar that all processes share. Workers
receive the file system by pickling; `fsspec.open("slow:///path", **fs.storage_options)` also works.
Every `read()` is one request. So are up to `preset.ranges` ranges of `cat_ranges`, a vector read.
The file system reads ahead only on request (`cache_type="readahead"`). It emulates delays by
sleeping, so it uses almost no CPU time.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NoReturn

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from course_utils.hardware.clock import HostClock
from course_utils.hardware.storage.calendar import Counters, attach, make_state
from course_utils.hardware.storage.page_cache import BLOCK
from course_utils.hardware.storage.presets import UNLIMITED, StoragePreset, storage_preset


def slow_storage(
    root: str | os.PathLike[str],
    preset: str | StoragePreset = "busy Lustre",
    *,
    cache_mb: float | None = None,
) -> SlowFileSystem:
    """Return an emulated storage that contains the files under `root`.

    Args:
        root: Folder of local files. Paths are absolute or relative to it.
        preset: "laptop SSD", "HDD", "NFS", "busy Lustre", "S3", "XRootD", or your own
            `StoragePreset`.
        cache_mb: Size of the page cache in 10^6 bytes, instead of the preset's; 0 for no cache.

    Raises:
        FileNotFoundError: If `root` is not a folder.
        ValueError: If the preset does not exist or the cache size is negative.
    """
    folder = Path(root).absolute()
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}. Create the data first.")
    figures = storage_preset(preset)
    if cache_mb is not None:
        figures = replace(figures, cache_mb=cache_mb)
    if figures.cache_mb < 0:
        raise ValueError(f"cache_mb must be at least 0 (no cache), but is {figures.cache_mb:g}.")
    return SlowFileSystem(state=make_state(str(folder), figures))


def counting_storage(root: str | os.PathLike[str]) -> SlowFileSystem:
    """Return the local files under `root` as a storage that counts requests without delays.

    It has no page cache, so every read counts as a request.

    Raises:
        FileNotFoundError: If `root` is not a folder.
    """
    return slow_storage(root, replace(UNLIMITED, name="counting storage", requests_at_once=1))


class SlowFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Local files, delivered at the speed of the emulated storage.

    `state` is the folder of the shared state, which `slow_storage` creates.
    """

    protocol = "slow"

    def __init__(self, state: str | None = None, **options: Any):
        """Attach to the shared state of a storage."""
        super().__init__(**options)
        if state is None:
            raise ValueError(
                "slow:// needs an existing storage. Create it with fs = slow_storage(folder) and "
                "pass **fs.storage_options."
            )
        self.device = attach(state)
        self.preset = self.device.preset
        self.root = Path(self.device.state.settings["root"])
        self._handles: dict[str, SlowFile] = {}  # files of vector reads, which stay open

    def __repr__(self) -> str:
        return f"SlowFileSystem({self.preset} over {self.root})"

    @property
    def clock(self) -> HostClock:
        """Clock that times reads in this process; see `VirtualClock`."""
        return self.device.clock

    @clock.setter
    def clock(self, clock: HostClock) -> None:
        self.device.clock = clock

    @property
    def fsid(self) -> str:
        """Identity for fsspec: two file systems over the same files are the same storage."""
        return f"slow:{self.root}"

    def counters(self) -> Counters:
        """Return the requests of all processes since the last reset."""
        return self.device.counters()

    def reset_counters(self) -> None:
        """Set all counters to zero."""
        self.device.reset_counters()

    def drop_caches(self) -> None:
        """Empty the page cache, which only the administrator of a real machine can do."""
        self.device.drop_caches()

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Return name, size, type and modification time of a file; counts as one look-up."""
        name = self._strip_protocol(path)
        local = self._local(name)
        self.device.look_up(opening=False)
        return _entry(name, local.stat())

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Return whether a file exists; fsspec's version treats an interrupt as False."""
        try:
            self.info(path)
        except OSError:
            return False
        return True

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Return the contents of a folder; counts as one look-up, whatever the folder's size."""
        name = self._strip_protocol(path)
        local = self._local(name)
        self.device.look_up(opening=False)
        if local.is_dir():
            children = sorted(local.iterdir())
            prefix = f"{name}/" if name else ""
            entries = [_entry(prefix + at.name, at.stat()) for at in children]
        else:
            entries = [_entry(name, local.stat())]
        return entries if detail else [entry["name"] for entry in entries]

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        """Return a range of a file. With vector reads, the file is opened only once."""
        if self.preset.ranges == 1 or start is None or end is None:
            return bytes(super().cat_file(path, start, end, **kwargs))
        return self.cat_ranges([path], [start], [end])[0]

    def cat_ranges(
        self, paths: list[str], starts: list[int], ends: list[int], *args: Any, **kwargs: Any
    ) -> list[bytes]:
        """Return ranges of files. A vector read gets many ranges of a file with one request."""
        if (most := self.preset.ranges) == 1:
            return list(super().cat_ranges(paths, starts, ends, *args, **kwargs))
        contents: list[bytes] = []
        for path, some in groupby(zip(paths, starts, ends, strict=True), itemgetter(0)):
            if path not in self._handles:
                self._handles[path] = self.open(path)
            ranges = [(start, end) for _, start, end in some]
            for first in range(0, len(ranges), most):
                contents += self._handles[path].fetch_ranges(ranges[first : first + most])
        return contents

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> SlowFile:
        if mode != "rb":
            self._refuse()
        local = self._local(path)
        self._mention()
        self.device.look_up(opening=True)
        return SlowFile(self, path, local, **kwargs)

    def _mention(self) -> None:
        if "keepfed.measure.spans" not in sys.modules:
            return  # not recording; the import would load torch, which takes seconds
        from keepfed.measure.spans import current

        if trace := current():
            trace.mention(f"emulated {self.preset.name}")

    def _local(self, path: str) -> Path:
        local = Path(os.path.abspath(self.root / path))
        if not local.is_relative_to(self.root):
            raise ValueError(
                f"{local} is outside this storage. Open a file under {self.root}, "
                "or create another slow_storage()."
            )
        return local

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise io.UnsupportedOperation(
            f"The emulated storage is read-only. Write to {self.root} directly."
        )

    mkdir = makedirs = rmdir = cp_file = _rm = _refuse


class SlowFile(AbstractBufferedFile):  # type: ignore[misc]
    """One open file. Each `read()` is one request for exactly the requested bytes."""

    DEFAULT_BLOCK_SIZE = 8 * 1024  # bytes that readline() searches at a time

    def __init__(self, fs: SlowFileSystem, path: str, local: Path, **kwargs: Any):
        """Store size and identity of the file, and keep no handle open that a fork could share."""
        status = local.stat()
        super().__init__(fs, path, **{"cache_type": "none"} | kwargs | {"size": status.st_size})
        self._details = _entry(path, status)
        self._local = local
        self._file = hash((status.st_dev, status.st_ino, status.st_mtime_ns))
        self._in_hand = -1

    def fetch_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return all ranges, which share one request."""
        lengths = [max(0, min(end, self.size) - start) for start, end in ranges]
        if not (length := sum(lengths)):
            return [b""] * len(ranges)
        self.fs._mention()  # the file may be older than this recording
        device, start = self.fs.device, ranges[0][0]
        done = device.reserve(
            self._file, start, start + length, size=self.size, in_hand=self._in_hand
        )
        self._in_hand = (start + length - 1) // BLOCK
        contents = []
        with self._local.open("rb") as file:
            for (start, _), length in zip(ranges, lengths, strict=True):
                file.seek(start)
                contents.append(file.read(length))
        device.wait(done)
        return contents

    def _fetch_range(self, start: int, end: int) -> bytes:
        (data,) = self.fetch_ranges([(start, end)])
        return data


def _entry(name: str, status: os.stat_result) -> dict[str, Any]:
    kind = "directory" if stat.S_ISDIR(status.st_mode) else "file"
    return {"name": name, "size": status.st_size, "type": kind, "mtime": status.st_mtime}


fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
