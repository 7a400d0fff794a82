"""HTTP server for one folder that behaves like an object store, with the limits of a preset.

It is read-only, serves only this machine, and is meant for people who share a classroom: every
client with the token may read the whole folder.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote, urlencode

from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, StaticFileHandler

from course_utils.hardware.storage import UNLIMITED, StoragePreset
from course_utils.token_server import LOOPBACK, TokenHandler, serve_with_token
from keepfed.errors import KeepfedError

COUNTERS = ".counters"
_CHUNK = 64 * 1024
# An event loop wakes up late. The store catches up on at most this delay.
_LATE_S = 0.02 + time.get_clock_info("monotonic").resolution


class Limits:
    """Timing of a store: the figures of `slow://`, applied to connections. Seconds of `clock`.

    A request takes one of a fixed number of slots and waits `request_ms`. Its bytes are then sent
    chunk by chunk, limited by the bandwidth of one stream and of the link that all answers share. A
    slot is free again as soon as its answer is complete or its client has disconnected.

    The calendar of `slow://` does not fit here. It reserves a complete read, so a shard of 100 MB
    would occupy the link until its last byte, even after its reader has disconnected.
    """

    def __init__(
        self, preset: StoragePreset | None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Start with an idle store."""
        self._preset, self._clock = preset or UNLIMITED, clock
        self.slots = asyncio.Semaphore(self._preset.requests_at_once)
        self._line = self._metadata = -math.inf

    def look_up(self) -> float:
        """Return the time at which a size requested now is ready."""
        start = max(self._clock(), self._metadata)
        self._metadata = start + 1 / self._preset.opens_per_s
        return start + self._preset.open_ms / 1e3

    def answer(self) -> Callable[[int], float]:
        """Start an answer, and return a function: size of the next chunk -> its arrival time."""
        sent = self._clock() + self._preset.request_ms / 1e3

        def arrival(size: int) -> float:
            nonlocal sent
            ready = max(sent, self._clock() - _LATE_S)
            sent = ready + size / (1e6 * self._preset.stream_mb_s)
            return max(sent, self._pass_line(size))

        return arrival

    def _pass_line(self, size: int) -> float:
        """Return the time at which `size` more bytes have passed the link of all answers."""
        now = self._clock()
        was_idle = self._line < now - _LATE_S  # unused bandwidth is lost
        self._line = (now if was_idle else self._line) + size / (1e6 * self._preset.mb_s)
        return self._line

    async def wait(self, until: float) -> None:
        """Let other tasks run until `until`, and at least once if that time has passed."""
        await asyncio.sleep(max(0.0, until - self._clock()))


class ServedStore:
    """State shared by all handlers of one server: the files and the counters."""

    def __init__(self, root: Path, *, limits: Limits, break_after: int | None) -> None:
        """Set all counters to zero."""
        self.root, self.limits = root, limits
        self.counters: Counter[str] = Counter()
        self._break_after = math.inf if break_after is None else break_after
        self._was_broken: set[Path] = set()

    def find(self, name: str) -> Path:
        """Return the file `name`. A link may not lead out of the folder.

        Raises:
            HTTPError: If there is no such file in the folder.
        """
        with suppress(OSError, RuntimeError, ValueError):  # too long, circular links, a zero byte
            file = Path(f"{self.root}/{name}").resolve()
            if file.is_relative_to(self.root) and file.is_file() and name[-1:] != "/":
                return file
        raise HTTPError(404, reason="There is no such file here. Check the name.")

    def breaks_at(self, file: Path, size: int) -> float:
        """Return after how many bytes an answer of `size` bytes breaks, once per file."""
        if size <= self._break_after or file in self._was_broken:
            return math.inf
        self._was_broken.add(file)
        self.counters["broken"] += 1
        return self._break_after


class _Reading(TokenHandler):
    called = "store"
    sentences: ClassVar[Mapping[int, str]] = {
        400: "The request is not valid HTTP. Correct the URL or the headers.",
        405: "This store is read-only. Use GET or HEAD.",
        500: "The store failed to answer. Check that its files can be read.",
    }

    @property
    def store(self) -> ServedStore:
        store: ServedStore = self.settings["store"]
        return store


class _Counters(_Reading):
    def get(self) -> None:
        self.write(dict(self.store.counters))


class _Objects(_Reading, StaticFileHandler):
    """Files. Tornado parses conditions and ranges. The store paces the body."""

    _file: Path
    _span: tuple[int, int] | None = None  # range of bytes to send

    async def get(self, path: str, include_body: bool = True) -> None:
        counters, limits = self.store.counters, self.store.limits
        self._file = self.store.find(path)
        with suppress(StreamClosedError):  # the client has gone
            if not include_body:
                counters["lookups"] += 1
                await limits.wait(limits.look_up())
                await super().get(path, include_body=False)
                return
            counters["requests"] += 1
            async with limits.slots:
                arrival = limits.answer()
                await limits.wait(arrival(0))
                await super().get(path)
                if self._span:
                    await self._send(*self._span, arrival)

    async def _send(self, start: int, stop: int, arrival: Callable[[int], float]) -> None:
        with self._file.open("rb") as body:
            body.seek(start)
            breaks_at = self.store.breaks_at(self._file, stop - start)
            left = int(min(stop - start, breaks_at))
            try:
                while left and (chunk := body.read(min(_CHUNK, left))):
                    await self.store.limits.wait(arrival(len(chunk)))
                    self.store.counters["bytes_sent"] += len(chunk)
                    left -= len(chunk)
                    self.write(chunk)
                    await self.flush()
                if left or breaks_at < math.inf:  # the file was truncated, or must break off
                    await self.flush()  # sends at least the headers
                    self.detach().close()
            except asyncio.CancelledError:  # the store ends; tornado would send an error page
                self.detach().close()

    def validate_absolute_path(self, root: str, absolute_path: str) -> str:
        return str(self._file)

    def compute_etag(self) -> None:
        """Send no name of a version: Tornado would hash the whole file."""

    def get_content(  # type: ignore[override]  # tornado's reads; this stores the range
        self, abspath: str, start: int | None = None, end: int | None = None
    ) -> list[bytes]:
        self._span = start or 0, self.get_content_size() if end is None else end
        return []


def address(port: int, name: str = "", *, token: str = "") -> str:
    """Return the URL of a store without a trailing `/`, or the URL of a file, or with a token.

    `{000000..000003}` is kept, because WebDataset expands it.
    """
    path = f"/{quote(name, safe='/{},')}" if name or token else ""
    query = f"?{urlencode({'token': token})}" if token else ""
    return f"http://{LOOPBACK}:{port}{path}{query}"


def main() -> None:
    """Run the server process of an `object_store`, and print the port, or why it did not start.

    The settings are one line of JSON on stdin, so lists of processes do not show the token. The
    server ends when its stdin closes, that is, when its owner ends.
    """
    settings = json.loads(sys.stdin.readline())
    preset = StoragePreset(**settings["preset"]) if settings["preset"] else None
    root = Path(settings["folder"]).resolve()
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        serve_with_token(
            [(f"/{COUNTERS}", _Counters), (r"/(.*)", _Objects, {"path": str(root)})],
            token=settings["token"],
            port=settings["port"],
            ready=lambda port: print(port, flush=True),
            store=ServedStore(root, limits=Limits(preset), break_after=settings["break_after"]),
        )
    except KeepfedError as error:
        print(error, flush=True)


def _end_with_stdin() -> None:
    while os.read(0, 1024):  # not sys.stdin: its lock would be held when the process ends
        pass
    os._exit(0)  # there is nothing to save
