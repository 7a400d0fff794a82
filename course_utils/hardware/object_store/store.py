"""An object store for the classroom: a folder, served by a subprocess on this machine.

    with object_store(folder, "S3") as store:
        fs = fsspec.filesystem("http", headers=store.headers)
        first = fs.cat(store.url + "/shard-000000.tar", start=0, end=512)
        print(store.counters())

It is emulated. The files are local, and all connections of all processes share the limits of a
storage preset. Workers need only its `url` and `headers`, which are plain values. The store ends
with the block, or with the process that started it.
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
# Bypass any HTTP proxy of the company, because a proxy does not reach this machine.
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class StoreCounters:
    """Requests that a store received with the right token, and their effect."""

    requests: int = 0  # GET of a file, complete or in part
    lookups: int = 0  # HEAD
    bytes_sent: int = 0  # contents; a client that disconnected may have received 64 KiB less
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
    """Serve the files of `folder` over HTTP, and return once the store accepts requests.

    Args:
        folder: Folder to serve, read-only.
        preset: "S3" or another name, your own `StoragePreset`, or None for no limits. The page
            cache of a preset is not used, because HTTP clients bypass it.
        break_after: Bytes after which the first longer answer for each file breaks off. A second
            attempt succeeds.

    Raises:
        CourseError: If `folder` is not a folder.
        ValueError: If the preset does not exist.
    """
    if not os.path.isdir(folder):
        raise CourseError(f"{folder} is not a folder. Create it, or choose another.")
    settings = {
        "folder": str(Path(folder).absolute()),
        "preset": asdict(storage_preset(preset)) if preset else None,
        "token": secrets.token_urlsafe(16),
        "break_after": break_after,
        "port": 0,  # a free one
    }
    return ObjectStore(settings)


class ObjectStore:
    """A running store: its address, its counters, and a way to make it fail."""

    def __init__(self, settings: dict[str, Any]):
        """Start the server with `settings`, which `object_store` makes."""
        self._settings = settings
        self.token: str = settings["token"]  # that clients must send
        self._start()

    @property
    def url(self) -> str:
        """URL of the folder, without a trailing `/` and without the token."""
        return address(self._settings["port"])

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers that clients must send."""
        return {"Authorization": f"Bearer {self.token}"}

    def url_of(self, name: str) -> str:
        """Return a URL that contains the token, for clients that cannot send our headers.

        `{000000..000003}` is kept, because WebDataset expands it.
        """
        return address(self._settings["port"], name, token=self.token)

    def counters(self) -> StoreCounters:
        """Return the requests of all clients since the start.

        Raises:
            CourseError: If the store does not answer.
        """
        request = urllib.request.Request(f"{self.url}/{COUNTERS}", headers=self.headers)
        try:
            with _LOCAL.open(request, timeout=_PATIENCE_S) as answer:
                return StoreCounters(**json.load(answer))
        except OSError:
            raise CourseError(
                "The store does not answer. Restart it with store.restart()."
            ) from None

    def kill(self) -> None:
        """Kill the server, as a crash would: every answer breaks off. A fork does nothing."""
        self._end()

    def restart(self) -> None:
        """Restart the server with the same URL and token. Its counters start at zero.

        Raises:
            CourseError: If another program has taken the port.
        """
        self.kill()
        self._start()

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # Interrupting a cell interrupts the process group of its kernel, but not the store.
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self._end = weakref.finalize(self, _end, process)
        assert process.stdin is not None
        assert process.stdout is not None
        # A timer ends a silent server, because pipes have no portable time limit.
        patience = threading.Timer(_PATIENCE_S, process.kill)
        patience.start()
        try:
            with suppress(OSError):  # the server ended before it read them
                process.stdin.write(json.dumps(self._settings) + "\n")
                process.stdin.flush()
            answer = process.stdout.readline().strip()
        except BaseException:  # the traceback would keep this store alive
            self.kill()
            raise
        finally:
            patience.cancel()
        if not answer.isdigit():
            self.kill()
            silent = "The store did not start. Close busy programs, and try again."
            raise CourseError(answer or silent)
        self._settings = self._settings | {"port": int(answer)}


def _end(process: subprocess.Popen[str]) -> None:
    """End the server. In a fork, `Popen` takes it for ended, and does nothing."""
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with suppress(OSError):  # the server may have ended without reading all
                pipe.close()
    process.kill()  # there is nothing to save
    process.wait()
