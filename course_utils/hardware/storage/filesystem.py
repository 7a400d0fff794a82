"""Emulate a slow storage over local files, as an fsspec file system.

    fs = slow_storage("data/events-S", "busy Lustre", cache_mb=50)
    with fs.open("events.h5") as file, h5py.File(file) as events: ...
    print(fs.counters())

Data come from the local files; the time comes from a calendar that all processes share. The file
system may be pickled into workers, and `fsspec.open("slow:///path", **fs.storage_options)` works
too. Every `read()` is one request: nothing is read ahead behind the program's back unless it asks
(`cache_type="readahead"`). A sleep is the only cost, so no core burns.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from dataclasses import replace
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
    """Return an emulated storage that holds the files under `root`.

    Args:
        root: folder of local files; paths are absolute, or relative to it.
        preset: "laptop SSD", "HDD", "NFS", "busy Lustre", "S3", or figures of your own.
        cache_mb: size of the page cache in 10^6 bytes instead of the preset's; 0 for none.

    Raises:
        FileNotFoundError: `root` is no folder.
        ValueError: there is no such preset, or the cache is less than nothing.
    """
    folder = Path(root).absolute()
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}; make the data first.")
    figures = storage_preset(preset)
    if cache_mb is not None:
        figures = replace(figures, cache_mb=cache_mb)
    if figures.cache_mb < 0:
        raise ValueError(f"A page cache of {figures.cache_mb:g} MB cannot be; take 0 for none.")
    return SlowFileSystem(state=make_state(str(folder), figures))


def counting_storage(root: str | os.PathLike[str]) -> SlowFileSystem:
    """Return the local files under `root` as a storage that only counts: it takes no time.

    It has no page cache, so every read is a request.

    Raises:
        FileNotFoundError: `root` is no folder.
    """
    return slow_storage(root, replace(UNLIMITED, name="counting storage", requests_at_once=1))


class SlowFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Local files that arrive when the emulated storage would deliver them.

    `state` is the folder of the state that all processes share; `slow_storage` makes one.
    """

    protocol = "slow"

    def __init__(self, state: str | None = None, **options: Any):
        """Attach to the state of a storage."""
        super().__init__(**options)
        if state is None:
            raise ValueError(
                "slow:// needs to know which storage: make one with fs = slow_storage(folder) and "
                "pass on **fs.storage_options."
            )
        self.device = attach(state)
        self.preset = self.device.preset
        self.root = Path(self.device.state.settings["root"])

    def __repr__(self) -> str:
        return f"SlowFileSystem({self.preset} over {self.root})"

    @property
    def clock(self) -> HostClock:
        """The clock that reading goes by in this process; see `VirtualClock`."""
        return self.device.clock

    @clock.setter
    def clock(self, clock: HostClock) -> None:
        self.device.clock = clock

    @property
    def fsid(self) -> str:
        """What fsspec tells file systems apart by: the same files are the same storage."""
        return f"slow:{self.root}"

    def counters(self) -> Counters:
        """Return what all processes together asked for since the last reset."""
        return self.device.counters()

    def reset_counters(self) -> None:
        """Count from zero."""
        self.device.reset_counters()

    def drop_caches(self) -> None:
        """Empty the page cache, as the administrator of a real machine could."""
        self.device.drop_caches()

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Return name, size, type and time of change of a file: one look-up."""
        name = self._strip_protocol(path)
        local = self._local(name)
        self.device.look_up(opening=False)
        return _entry(name, local.stat())

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Tell whether there is such a file; fsspec's own would take an interrupt for a no."""
        try:
            self.info(path)
        except OSError:
            return False
        return True

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Return what is in a folder: one look-up, however much it holds."""
        name = self._strip_protocol(path)
        local = self._local(name)
        self.device.look_up(opening=False)
        if local.is_dir():
            found = sorted(local.iterdir())
            prefix = f"{name}/" if name else ""
            entries = [_entry(prefix + at.name, at.stat()) for at in found]
        else:
            entries = [_entry(name, local.stat())]
        return entries if detail else [entry["name"] for entry in entries]

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> SlowFile:
        if mode != "rb":
            self._refuse()
        local = self._local(path)
        self._mention()
        self.device.look_up(opening=True)
        return SlowFile(self, path, local, **kwargs)

    def _mention(self) -> None:
        if "keepfed.measure.spans" not in sys.modules:
            return  # nobody records, and the import would take torch's seconds
        from keepfed.measure.spans import current

        if trace := current():
            trace.mention(f"emulated {self.preset.name}")

    def _local(self, path: str) -> Path:
        local = Path(os.path.abspath(self.root / path))
        if not local.is_relative_to(self.root):
            raise ValueError(
                f"{local} is not on this storage; ask for a file under {self.root}, "
                "or make another slow_storage()."
            )
        return local

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise io.UnsupportedOperation(
            f"The emulated storage only reads; write to {self.root} as usual."
        )

    mkdir = makedirs = rmdir = cp_file = _rm = _refuse


class SlowFile(AbstractBufferedFile):  # type: ignore[misc]
    """One open file; each `read()` is one request for exactly the bytes asked for."""

    DEFAULT_BLOCK_SIZE = 8 * 1024  # readline() looks for the end of its line in such pieces

    def __init__(self, fs: SlowFileSystem, path: str, local: Path, **kwargs: Any):
        """Note size and identity of the file; no handle stays open that a fork could share."""
        status = local.stat()
        super().__init__(fs, path, **{"cache_type": "none"} | kwargs | {"size": status.st_size})
        self._details = _entry(path, status)
        self._local = local
        self._file = hash((status.st_dev, status.st_ino, status.st_mtime_ns))
        self._in_hand = -1

    def _fetch_range(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        if start >= end:
            return b""
        self.fs._mention()  # again: the file may have been opened before this recording
        device = self.fs.device
        done = device.reserve(self._file, start, end, size=self.size, in_hand=self._in_hand)
        self._in_hand = (end - 1) // BLOCK
        with self._local.open("rb") as file:
            file.seek(start)
            data = file.read(end - start)
        device.wait(done)
        return data


def _entry(name: str, status: os.stat_result) -> dict[str, Any]:
    kind = "directory" if stat.S_ISDIR(status.st_mode) else "file"
    return {"name": name, "size": status.st_size, "type": kind, "mtime": status.st_mtime}


fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
