"""Serve one folder over HTTP as an object store would, with the limits of a storage preset.

It is read-only, for this machine alone, and for people who share a classroom: who has the token may
read all of the folder.
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
from course_utils.guarded import LOOPBACK, Guarded, serve_guarded
from course_utils.hardware.storage import UNLIMITED, StoragePreset
from keepfed.errors import KeepfedError

COUNTERS = ".counters"
_CHUNK = 64 * 1024
_NOT_IN_A_NAME = set("\\:") if os.name == "nt" else {"\\"}
# an event loop wakes up late; what it missed is made good, but no more than this
_LATE_S = 0.02 + time.get_clock_info("monotonic").resolution

_OUTSIDE = (
    "Only what lies inside the folder that is served can be had, no link that leads elsewhere, and "
    "nothing whose name begins with a dot; ask for a name from the listing at /."
)
_MISSING = "There is no such file here; ask for a name from the listing at /."


class Limits:
    """When a store answers: the same figures as `slow://`, for connections. Seconds of `clock`.

    A request takes one of a fixed number of slots and waits `request_ms`; its bytes then pass,
    piece by piece, at no more than the rate of one stream and through the one line that all answers
    share. A slot is free again as soon as its answer is sent or its client has gone.

    The storage's calendar does not fit: it reserves a read as a whole, so a shard of 100 MB would
    hold the line until its last byte, also after its reader has left.
    """

    def __init__(
        self, preset: StoragePreset | None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Begin with an idle store."""
        self._preset, self._clock = preset or UNLIMITED, clock
        self.slots = asyncio.Semaphore(self._preset.requests_at_once)
        self._line = self._metadata = -math.inf

    def look_up(self) -> float:
        """Return when a size or a listing that is asked for now is there."""
        start = max(self._clock(), self._metadata)
        self._metadata = start + 1 / self._preset.opens_per_s
        return start + self._preset.open_ms / 1e3

    def answer(self) -> Callable[[int], float]:
        """Take a request that has its slot; return what says when its next `size` bytes arrive."""
        sent = self._clock() + self._preset.request_ms / 1e3

        def arrival(size: int) -> float:
            nonlocal sent
            ready = max(sent, self._clock() - _LATE_S)
            sent = ready + size / (1e6 * self._preset.stream_mb_s)
            return max(sent, self._pass_line(size))

        return arrival

    def _pass_line(self, size: int) -> float:
        """Return when `size` more bytes, of whichever answer, are through the line."""
        now = self._clock()
        was_idle = self._line < now - _LATE_S  # and saved nothing up
        self._line = (now if was_idle else self._line) + size / (1e6 * self._preset.mb_s)
        return self._line

    async def wait(self, until: float) -> None:
        """Let the others go on until then; at least once, also when it is late already."""
        await asyncio.sleep(max(0.0, until - self._clock()))


class ServedStore:
    """What all handlers of one server share: the files, and what was sent."""

    def __init__(self, root: Path, *, limits: Limits, break_after: float | None) -> None:
        """Begin to count."""
        self.root, self.limits = root, limits
        self.counters: Counter[str] = Counter()
        self._break_after = math.inf if break_after is None else round(break_after)
        self._was_broken: set[Path] = set()

    def find(self, name: str) -> Path:
        """Return the file or folder of that name; "" is the root itself, and a `/` may end it.

        A name is looked at twice: as it is spelled, and, since a link may lead anywhere, as the
        file that it comes to. Between that and the opening of the file somebody who may write to
        the folder could still put a link there; they could as well put the file.

        Raises:
            HTTPError: it leads out of the folder or to something hidden, or there is no such file.
        """
        parts = name.removesuffix("/").split("/") if name else []
        if not all(map(_is_shown, parts)):
            raise HTTPError(403, reason=_OUTSIDE)
        with suppress(OSError, RuntimeError):  # a name longer than can be, links in a circle
            found = self.root.joinpath(*parts).resolve()
            is_inside = found.is_relative_to(self.root)
            if not (is_inside and all(map(_is_shown, found.relative_to(self.root).parts))):
                raise HTTPError(403, reason=_OUTSIDE)
            if found.is_dir() or (found.is_file() and not name.endswith("/")):
                return found
        raise HTTPError(404, reason=_MISSING)

    def listing(self, name: str, query: str) -> str:
        """Return a page of HTML with a link to everything in a folder; `query` ends each link."""
        folder = f"{name.removesuffix('/')}/" if name else ""
        links = []
        for child in sorted(entry.name for entry in self.find(name).iterdir()):
            with suppress(HTTPError):  # hidden, a link that leads out, or gone meanwhile
                child += "/" if self.find(folder + child).is_dir() else ""
                href = f"{quote(f'/{folder}{child}')}{query}"
                links.append(f'<li><a href="{href}">{html.escape(child)}</a></li>')
        return "\n".join(['<!doctype html><meta charset="utf-8"><ul>', *links, ""])

    def breaks_at(self, file: Path, size: int) -> float:
        """Return after how many bytes an answer of `size` bytes breaks; each file does so once."""
        if size <= self._break_after or file in self._was_broken:
            return math.inf
        self._was_broken.add(file)
        self.counters["broken"] += 1
        return self._break_after


def _is_shown(part: str) -> bool:
    return part.isprintable() and part[:1] not in ("", ".") and _NOT_IN_A_NAME.isdisjoint(part)


class _Reading(Guarded):
    called = "store"
    sentences: ClassVar[Mapping[int, str]] = {
        400: "This is not a request that can be read; mend the address or the headers.",
        405: "This store only reads; use GET or HEAD.",
        500: "The store failed at this request; start it with `course serve` to see why.",
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
    """Files and listings. Tornado reads the conditions and ranges; the body goes at our pace."""

    _found: Path
    _span: tuple[int, int] | None = None  # what is to be sent of it

    async def get(self, path: str, include_body: bool = True) -> None:
        store, limits = self.store, self.store.limits
        self._found = store.find(path)
        try:
            etag = self.compute_etag()
            if self.request.headers.get("If-Range", etag) != etag:
                self.request.headers.pop("Range", None)  # a part of another file would be meant
            if self._found.is_dir() or not include_body:
                store.counters["lookups"] += 1
                await limits.wait(limits.look_up())
                if self._found.is_file():
                    await super().get(path, include_body=False)
                else:
                    # a browser, which sends no header of ours, has the token in its address
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
                    self.finish(f"This file has {size:,} bytes; ask for a range inside it.\n")
                elif self._span:
                    await self._send(*self._span, arrival)
        except StreamClosedError:
            return  # the client has gone
        except OSError:  # the system's sentence would name the whole path
            refused = "This cannot be read here; ask for something else."
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
                if left or breaks_at < math.inf:  # the file has become shorter, or it is to break
                    await self.flush()  # the headers, if nothing else went
                    self.detach().close()
            except asyncio.CancelledError:  # the store ends; tornado would try an error page
                self.detach().close()

    def validate_absolute_path(self, root: str, absolute_path: str) -> str:
        return str(self._found)

    def compute_etag(self) -> str:
        """Tell versions of a file apart without reading it; tornado would hash the first only."""
        status = self._found.stat()
        return f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"'

    def get_content(  # type: ignore[override]  # tornado's reads; this notes what is to be sent
        self, abspath: str, start: int | None = None, end: int | None = None
    ) -> list[bytes]:
        self._span = start or 0, self.get_content_size() if end is None else end
        return []


def address(port: int, name: str = "", *, token: str = "") -> str:
    """Return where a store is, without a `/` at the end; or a file of it, or all with a token.

    `{000000..000003}` stays as it is: WebDataset expands it.
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
        folder: what lies in it, and nothing else, can be had.
        preset: the limits that all connections share; None for none.
        token: what a client must send.
        ready: is called with the port once the store answers.
        port: where to listen; 0 for a free port.
        break_after: the first answer with more than so many bytes of a file breaks off there.

    Raises:
        CourseError: any of them cannot be.
    """
    root = Path(folder).resolve()
    if not root.exists():
        raise CourseError(f"There is no folder {root}; make it, or name another.")
    if not root.is_dir():
        raise CourseError(f"{root} is a file; name the folder that holds it.")
    if break_after is not None and not 0 <= break_after < math.inf:
        raise CourseError(
            f"An answer cannot break off after {break_after:,.12g} bytes; choose 0 or more."
        )
    store = ServedStore(root, limits=Limits(preset), break_after=break_after)
    handlers = [(f"/{COUNTERS}", _Counters), (r"/?(.*)", _Objects, {"path": str(root)})]
    serve_guarded(handlers, token=token, ready=ready, port=port, store=store)


def main() -> None:
    """Be the process of an `object_store`: say the port once it answers, or why it does not.

    The settings are one line of JSON on stdin, so that the token shows in no list of processes; it
    ends with its stdin, and so with its owner.
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
    os._exit(0)  # it holds nothing that a gentler end would save
