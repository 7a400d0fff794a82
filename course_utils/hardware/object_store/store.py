"""An object store for the classroom: a folder, served by a process of its own on this machine.

    with object_store(folder, "S3") as store:
        fs = fsspec.filesystem("http", headers=store.headers)
        first = fs.cat(store.url + "/shard-000000.tar", start=0, end=512)
        print(store.counters())

It is emulated: the files are local, and the limits are those of a storage preset, shared by all
connections of all processes. `url`, `token` and `headers` are plain, and the store itself may be
pickled into workers. It ends with the block, or with the process that started it.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import threading
import urllib.request
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from course_utils.errors import CourseError
from course_utils.hardware.object_store.server import COUNTERS, address
from course_utils.hardware.storage import StoragePreset, storage_preset
from keepfed.formatting import plural, size

_SERVER = "from course_utils.hardware.object_store import server; server.main()"
_PATIENCE_S = 30
# A proxy, as companies set it, does not lead back to this machine.
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class StoreCounters:
    """What a store was asked for with the right token, and what it did."""

    requests: int = 0  # GET of a file, whole or in part
    lookups: int = 0  # HEAD, and listings of a folder
    bytes_sent: int = 0  # of files; a client that went away may have got up to 64 KiB fewer
    broken: int = 0  # connections broken on purpose

    def __str__(self) -> str:
        return (
            f"{plural(self.requests, 'request')}, {plural(self.lookups, 'look-up')}, "
            f"{size(self.bytes_sent)} sent, {self.broken:,} broken off"
        )


def object_store(
    folder: str | os.PathLike[str],
    preset: str | StoragePreset | None = "S3",
    *,
    break_after: int | None = None,
) -> ObjectStore:
    """Start to serve the files of `folder` over HTTP, and return once the store answers.

    Args:
        folder: what lies in it can be read; nothing can be written.
        preset: "S3" or another name, figures of your own, or None for no limits. A page cache has
            no part in it: a client goes past it.
        break_after: the first answer with more than so many bytes of a file breaks off there, once
            for each file, so that a second try gets through.

    Raises:
        CourseError: the folder is missing or is none, or nothing can break off there.
        ValueError: there is no such preset.
    """
    settings = {
        "folder": str(Path(folder).absolute()),
        "preset": asdict(storage_preset(preset)) if preset else None,
        "token": secrets.token_urlsafe(16),
        "break_after": break_after,
        "port": 0,  # a free one
    }
    return ObjectStore(settings)


class ObjectStore:
    """A running store: where it is, what it counted, and how to make it fail."""

    _end: Callable[[], object] | None = None  # where it was started, not in a copy

    def __init__(self, settings: dict[str, Any]):
        """Start the server with the keyword arguments of `serve`."""
        self._settings = settings
        self._owner = os.getpid()
        self._start()

    @property
    def url(self) -> str:
        """Where the folder is, without a `/` at the end and without the token."""
        return address(self._settings["port"])

    @property
    def token(self) -> str:
        """What a client must send."""
        return str(self._settings["token"])

    @property
    def headers(self) -> dict[str, str]:
        """The headers that a client must send."""
        return {"Authorization": f"Bearer {self.token}"}

    def url_of(self, name: str) -> str:
        """Return an address that holds the token, for clients that send no headers of ours.

        `{000000..000003}` stays as it is: WebDataset expands it.
        """
        return address(self._settings["port"], name, token=self.token)

    def counters(self) -> StoreCounters:
        """Return what all clients together asked for since the last reset, or the last start.

        Raises:
            CourseError: the store does not answer.
        """
        return StoreCounters(**json.loads(self._ask("GET")))

    def reset_counters(self) -> None:
        """Count from zero, for all that hold this store."""
        self._ask("DELETE")

    def kill(self) -> None:
        """End the server as a crash would: in the middle of every answer."""
        if self._end is None or os.getpid() != self._owner:
            raise CourseError("A worker has a copy of the store; ask where it was started.")
        self._end()

    def restart(self) -> None:
        """Start the server again, at the same address and with the same token; it counts anew.

        Raises:
            CourseError: somebody else took the port meanwhile.
        """
        self.kill()
        self._start()

    def close(self) -> None:
        """End the server; a second time, or in a worker, do nothing."""
        if self._end:
            self._end()

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Travel without the process: a worker may read and count, not kill."""
        return {"_settings": self._settings, "_owner": self._owner}

    def _start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # an interrupted cell interrupts the whole group of its kernel: not the store
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self._end = weakref.finalize(self, _end, process, self._owner)
        assert process.stdin is not None
        assert process.stdout is not None
        # one that stays silent is ended: no pipe has a time limit on every system
        patience = threading.Timer(_PATIENCE_S, process.kill)
        patience.start()
        try:
            with suppress(OSError):  # it has ended before it took them
                process.stdin.write(json.dumps(self._settings) + "\n")
                process.stdin.flush()
            said = process.stdout.readline().strip()
        except BaseException:  # an interrupted cell keeps its traceback, and with that this store
            self.close()
            raise
        finally:
            patience.cancel()
        if not said.isdigit():
            self.close()
            silent = "The store did not start; close what keeps this machine busy, and try again."
            raise CourseError(said or silent)
        self._settings = self._settings | {"port": int(said)}

    def _ask(self, method: str) -> bytes:
        url = f"{self.url}/{COUNTERS}"
        request = urllib.request.Request(url, headers=self.headers, method=method)
        try:
            with _LOCAL.open(request, timeout=_PATIENCE_S) as answer:
                said: bytes = answer.read()
                return said
        except OSError:
            raise CourseError(
                "The store does not answer; start it again with store.restart()."
            ) from None


def _end(process: subprocess.Popen[str], owner: int) -> None:
    """End the server, unless this is a fork of the process that started it."""
    if os.getpid() != owner:
        return
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with suppress(OSError):  # closing writes what a server that had ended did not take
                pipe.close()
    process.kill()  # it holds nothing that a gentler end would save
    process.wait()
