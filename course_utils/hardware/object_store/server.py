"""HTTP server for one folder that behaves like an object store, with the limits of a preset.

It is read-only, serves only this machine, and is meant for people who share a classroom: every
client with the token may read the whole folder.
"""

from __future__ import annotations

import asyncio
import html
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

from course_utils.errors import CourseError
from course_utils.hardware.storage import UNLIMITED, StoragePreset
from course_utils.token_server import LOOPBACK, TokenHandler, serve_with_token
from keepfed.errors import KeepfedError

COUNTERS = ".counters"
_CHUNK = 64 * 1024
_NOT_IN_A_NAME = set("\\:") if os.name == "nt" else {"\\"}
# An event loop wakes up late. The store catches up on at most this delay.
_LATE_S = 0.02 + time.get_clock_info("monotonic").resolution

_OUTSIDE = (
    "This path is outside the served folder, hidden, or a link to another place. Request a name "
    "from the listing at /."
)
_MISSING = "There is no such file here. Request a name from the listing at /."


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
        """Return the time at which a size or a listing requested now is ready."""
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

    def __init__(self, root: Path, *, limits: Limits, break_after: float | None) -> None:
        """Set all counters to zero."""
        self.root, self.limits = root, limits
        self.counters: Counter[str] = Counter()
        self._break_after = math.inf if break_after is None else round(break_after)
        self._was_broken: set[Path] = set()

    def find(self, name: str) -> Path:
        """Return the file or folder `name`; "" is the root, and a trailing `/` is allowed.

        The name is checked twice: as written, and, because links may lead anywhere, as the file
        that it resolves to. A user who may write to the folder could still replace the file by a
        link before it is opened, but that user could just as well add any file.

        Raises:
            HTTPError: If the file does not exist, is hidden or is outside the folder.
        """
        parts = name.removesuffix("/").split("/") if name else []
        if not all(map(_is_shown, parts)):
            raise HTTPError(403, reason=_OUTSIDE)
        with suppress(OSError, RuntimeError):  # a name that is too long, circular links
            found = self.root.joinpath(*parts).resolve()
            is_inside = found.is_relative_to(self.root)
            if not (is_inside and all(map(_is_shown, found.relative_to(self.root).parts))):
                raise HTTPError(403, reason=_OUTSIDE)
            if found.is_dir() or (found.is_file() and not name.endswith("/")):
                return found
        raise HTTPError(404, reason=_MISSING)

    def listing(self, name: str, query: str) -> str:
        """Return an HTML page that links to everything in a folder; `query` ends each link."""
        folder = f"{name.removesuffix('/')}/" if name else ""
        links = []
        for child in sorted(entry.name for entry in self.find(name).iterdir()):
            with suppress(HTTPError):  # hidden, outside, or removed by now
                child += "/" if self.find(folder + child).is_dir() else ""
                href = f"{quote(f'/{folder}{child}')}{query}"
                links.append(f'<li><a href="{href}">{html.escape(child)}</a></li>')
        return "\n".join(['<!doctype html><meta charset="utf-8"><ul>', *links, ""])

    def breaks_at(self, file: Path, size: int) -> float:
        """Return after how many bytes an answer of `size` bytes breaks, once per file."""
        if size <= self._break_after or file in self._was_broken:
            return math.inf
        self._was_broken.add(file)
        self.counters["broken"] += 1
        return self._break_after


def _is_shown(part: str) -> bool:
    return part.isprintable() and part[:1] not in ("", ".") and _NOT_IN_A_NAME.isdisjoint(part)


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
    SUPPORTED_METHODS = ("GET", "HEAD", "DELETE")

    def get(self) -> None:
        self.write(dict(self.store.counters))

    def delete(self) -> None:
        self.store.counters.clear()


class _Objects(_Reading, StaticFileHandler):
    """Files and listings. Tornado parses conditions and ranges. The store paces the body."""

    _found: Path
    _span: tuple[int, int] | None = None  # range of bytes to send

    async def get(self, path: str, include_body: bool = True) -> None:
        store, limits = self.store, self.store.limits
        self._found = store.find(path)
        try:
            etag = self.compute_etag()
            if self.request.headers.get("If-Range", etag) != etag:
                self.request.headers.pop("Range", None)  # the range refers to an older version
            if self._found.is_dir() or not include_body:
                store.counters["lookups"] += 1
                await limits.wait(limits.look_up())
                if self._found.is_file():
                    await super().get(path, include_body=False)
                else:
                    # A browser sends the token in the URL, because it cannot send our header.
                    token = self.get_query_argument("token", "")
                    query = f"?{urlencode({'token': token})}" if token else ""
                    self.finish(store.listing(path, query))
                return
            store.counters["requests"] += 1
            async with limits.slots:
                arrival = limits.answer()
                await limits.wait(arrival(0))
                await super().get(path)
                if self.get_status() == 416:
                    size = self.get_content_size()
                    self.finish(f"This file has {size:,} bytes. Request a range inside it.\n")
                elif self._span:
                    await self._send(*self._span, arrival)
        except StreamClosedError:
            return  # the client has gone
        except OSError:  # the system's message would show the full path
            refused = "This file cannot be read. Request a different one."
            raise HTTPError(403, reason=refused) from None

    async def _send(self, start: int, stop: int, arrival: Callable[[int], float]) -> None:
        with self._found.open("rb") as body:
            body.seek(start)
            breaks_at = self.store.breaks_at(self._found, stop - start)
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
        return str(self._found)

    def compute_etag(self) -> str:
        """Identify the version of a file without reading it. Tornado would hash its content."""
        status = self._found.stat()
        return f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"'

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


def serve(
    folder: str | os.PathLike[str],
    preset: StoragePreset | None,
    *,
    token: str,
    ready: Callable[[int], None],
    port: int = 0,
    break_after: float | None = None,
) -> None:
    """Serve the files of `folder` until the process is interrupted; see `object_store`.

    Args:
        folder: Folder to serve. Nothing outside it is accessible.
        preset: Limits that all connections share; None for no limits.
        token: Token that clients must send.
        ready: Called with the port once the store accepts requests.
        port: Port to listen on; 0 selects a free port.
        break_after: Bytes after which the first longer answer for each file breaks off.

    Raises:
        CourseError: If an argument is not valid.
    """
    root = Path(folder).resolve()
    if not root.exists():
        raise CourseError(f"There is no folder {root}. Create it, or choose another.")
    if not root.is_dir():
        raise CourseError(f"{root} is a file. Choose the folder that contains it.")
    if break_after is not None and not 0 <= break_after < math.inf:
        raise CourseError(
            f"break_after must be a number of bytes from 0, but is {break_after:,.12g}."
        )
    store = ServedStore(root, limits=Limits(preset), break_after=break_after)
    handlers = [(f"/{COUNTERS}", _Counters), (r"/?(.*)", _Objects, {"path": str(root)})]
    serve_with_token(handlers, token=token, ready=ready, port=port, store=store)


def main() -> None:
    """Run the server process of an `object_store`, and print the port, or why it did not start.

    The settings are one line of JSON on stdin, so lists of processes do not show the token. The
    server ends when its stdin closes, that is, when its owner ends.
    """
    settings = json.loads(sys.stdin.readline())
    if settings["preset"]:
        settings["preset"] = StoragePreset(**settings["preset"])
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        serve(**settings, ready=lambda port: print(port, flush=True))
    except KeepfedError as error:
        print(error, flush=True)


def _end_with_stdin() -> None:
    while os.read(0, 1024):  # not sys.stdin: its lock would be held when the process ends
        pass
    os._exit(0)  # there is nothing to save
