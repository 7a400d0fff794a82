"""Serve one folder over HTTP as an object store would, with the limits of a storage preset.

It is read-only, for this machine alone, and for people who share a classroom: who has the token may
read all of the folder. Nothing is said about the files before the token was seen, and no request is
logged: its address may hold the token. A client that sends its request a byte a minute (slowloris)
holds a connection, and nothing is done against that.

`main` is what the process of an `object_store` runs: its settings are one line of JSON on stdin, so
that the token shows in no list of processes, and it ends with its stdin.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import html
import json
import math
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.log import app_log
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler, StaticFileHandler

from course_utils.errors import CourseError
from course_utils.hardware.storage import UNLIMITED, StoragePreset, storage_preset
from course_utils.words import plural, size

ADDRESS = "127.0.0.1"
COUNTERS = ".counters"
_HOSTS = {ADDRESS, "localhost"}
_CHUNK = 64 * 1024
_LONGEST_BODY = 64 * 1024  # a request has none; so much of one is read, and refused
_NEVER_IN_A_NAME = "\\\0:" if os.name == "nt" else "\\\0"
# an event loop wakes up late; what it missed is made good, but no more than this
_LATE_S = 0.02 + time.get_clock_info("monotonic").resolution

_MISSING = "There is no such file here; ask for a name from the listing at /."
_SENTENCES = {
    400: "This is not a request that can be read; mend the address or the headers.",
    405: "This store only reads; use GET or HEAD.",
}
_ELSE = "The store failed at this request; start it with `course serve` to see why."


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


class ObjectFolder:
    """Which files are shown, by names with `/` between their parts: those of one folder.

    A name is looked at twice: as it is spelled, and, since a link may lead anywhere, as the file
    that it comes to. Between the second look and the opening of the file somebody who may write to
    the folder could still put a link there; they could as well put the file.
    """

    def __init__(self, root: str | os.PathLike[str]):
        """Look at the folder that is to be shown.

        Raises:
            CourseError: it is not there, or is no folder.
        """
        self.root = Path(root).resolve()
        if not self.root.exists():
            raise CourseError(f"There is no folder {self.root}; make it, or name another.")
        if not self.root.is_dir():
            raise CourseError(f"{self.root} is a file; name the folder that holds it.")

    def find(self, name: str) -> Path:
        """Return the file or folder of that name; "" is the folder itself, and a `/` may end it.

        Raises:
            PermissionError: the name leads out of the folder, or to something hidden.
            FileNotFoundError: there is no such file or folder, or it is neither.
        """
        parts = name.removesuffix("/").split("/") if name else []
        if any(not p or p.startswith(".") or set(p) & set(_NEVER_IN_A_NAME) for p in parts):
            raise PermissionError(
                "Only what lies inside the folder that is served can be had, and nothing whose "
                "name begins with a dot; ask for a name from the listing at /."
            )
        try:
            found = self.root.joinpath(*parts).resolve()
            regular = found.is_file() or found.is_dir()
        except (OSError, RuntimeError):  # a name longer than names can be, links in a circle
            regular = False
        if regular and not self._shows(found):
            raise PermissionError(
                "This link leads to something that is not served; put the file itself there."
            )
        if not regular or (name.endswith("/") and not found.is_dir()):
            raise FileNotFoundError(_MISSING)
        return found

    def _shows(self, found: Path) -> bool:
        if not found.is_relative_to(self.root):
            return False
        return not any(part.startswith(".") for part in found.relative_to(self.root).parts)

    def listing(self, name: str, *, token: str = "") -> str:
        """Return a page of HTML with a link to everything in a folder.

        Args:
            name: the folder, as `find` takes it.
            token: goes into every link, for a browser, which sends no header of ours.

        Raises:
            OSError: as `find` does, or the system's own, which names the whole path.
        """
        prefix = f"{name.removesuffix('/')}/" if name else ""
        query = f"?{urlencode({'token': token})}" if token else ""
        lines = [f"<title>{html.escape(f'/{prefix}')}</title><ul>"]
        for child in sorted(entry.name for entry in self.find(name).iterdir()):
            with contextlib.suppress(OSError):  # hidden, a link that leads out, or gone meanwhile
                entry = f"{child}/" if self.find(prefix + child).is_dir() else child
                if child.isprintable():  # a name that is no UTF-8 could not be asked for
                    href = quote(f"/{prefix}{entry}")
                    lines.append(f'<li><a href="{href}{query}">{html.escape(entry)}</a></li>')
        return "\n".join(['<!doctype html><html lang="en"><meta charset="utf-8">', *lines, ""])


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
        self.preset, self.clock = preset or UNLIMITED, clock
        self.slots = asyncio.Semaphore(self.preset.requests_at_once)
        self._line = self._metadata = -math.inf

    def look_up(self) -> float:
        """Return when a size or a listing that is asked for now is there."""
        start = max(self.clock(), self._metadata)
        self._metadata = start + 1 / self.preset.opens_per_s
        return start + self.preset.open_ms / 1e3

    def answer(self) -> Answer:
        """Return the times of an answer to a request that takes its slot now."""
        return Answer(self)

    def pass_line(self, size: int) -> float:
        """Return when `size` more bytes, of whichever answer, are through the line."""
        now = self.clock()
        was_idle = self._line < now - _LATE_S  # and saved nothing up
        self._line = (now if was_idle else self._line) + size / (1e6 * self.preset.mb_s)
        return self._line

    async def wait(self, until: float) -> None:
        """Let the others go on until then; at least once, also when it is late already."""
        await asyncio.sleep(max(0.0, until - self.clock()))


class Answer:
    """One answer on its way to its client."""

    def __init__(self, limits: Limits):
        """Note when its first byte may go."""
        self._limits = limits
        self.first_byte = limits.clock() + limits.preset.request_ms / 1e3
        self._sent = self.first_byte

    def arrival(self, size: int) -> float:
        """Return when the next `size` bytes have arrived."""
        limits = self._limits
        ready = max(self._sent, limits.clock() - _LATE_S)
        self._sent = ready + size / (1e6 * limits.preset.stream_mb_s)
        return max(self._sent, limits.pass_line(size))


@dataclass
class ServedStore:
    """What all handlers of one server share."""

    folder: ObjectFolder
    token: str
    limits: Limits
    break_after: int | None
    counters: StoreCounters = field(default_factory=StoreCounters)
    was_broken: set[Path] = field(default_factory=set)

    def count(self, **more: int) -> None:
        """Add to the counters."""
        now = {name: getattr(self.counters, name) + by for name, by in more.items()}
        self.counters = replace(self.counters, **now)

    def breaks_at(self, file: Path, size: int) -> int | None:
        """Return after how many bytes an answer of `size` bytes breaks; each file does so once."""
        if self.break_after is None or size <= self.break_after or file in self.was_broken:
            return None
        self.was_broken.add(file)
        self.count(broken=1)
        return self.break_after


class _Refusal(HTTPError):
    """An answer without content that says why, and what to do."""

    def __init__(self, status: int, sentence: str):
        super().__init__(status)
        self.sentence = sentence

    @classmethod
    def of(cls, error: OSError) -> _Refusal:
        """Say it in a sentence of ours: the system's names the whole path."""
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return cls(404, _MISSING)
        ours = error.errno is None
        return cls(403, str(error) if ours else "This cannot be read here; ask for something else.")


class _Guarded(RequestHandler):
    """Answer nobody but those who have the token; write no request into any log."""

    SUPPORTED_METHODS: tuple[str, ...] = ("GET", "HEAD")

    @property
    def store(self) -> ServedStore:
        store: ServedStore = self.settings["store"]
        return store

    def set_default_headers(self) -> None:
        self.set_header("Server", "course")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")  # the address may hold the token

    def prepare(self) -> None:
        """Refuse other names for this machine, which pages from elsewhere come with, and guests."""
        if self.request.host_name.lower() not in _HOSTS:
            raise _Refusal(403, f"This store is called {ADDRESS}; use this address.")
        scheme, _, given = self.request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            given = self.get_query_argument("token", "")
        if not given:
            raise _Refusal(
                401, "A token is needed; send the header Authorization: Bearer TOKEN, or ?token=."
            )
        if not hmac.compare_digest(given.strip().encode(), self.store.token.encode()):
            raise _Refusal(403, "This is not the token of this store; copy it once more.")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Say it in one sentence."""
        error = kwargs.get("exc_info", (None, None))[1]
        known = isinstance(error, _Refusal)
        sentence = error.sentence if known else _SENTENCES.get(status_code, _ELSE)
        if status_code == 401:
            self.set_header("WWW-Authenticate", "Bearer")
        if status_code == 405:
            self.set_header("Allow", ", ".join(_Guarded.SUPPORTED_METHODS))
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{sentence}\n")

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Log what is a mistake of ours, without the request: its address may hold the token."""
        expected = HTTPError | StreamClosedError | asyncio.CancelledError
        if typ and value and not isinstance(value, expected):
            app_log.error("The store failed at a request.", exc_info=(typ, value, tb))


class _Counters(_Guarded):
    SUPPORTED_METHODS = ("GET", "HEAD", "DELETE")

    def get(self) -> None:
        self.write(vars(self.store.counters))

    def delete(self) -> None:
        self.store.counters = StoreCounters()


class _Objects(_Guarded, StaticFileHandler):
    """Files and listings. Tornado reads the conditions and ranges; the body goes at our pace."""

    _found: Path
    _span: tuple[int, int] | None = None  # what is to be sent of it

    async def get(self, path: str, include_body: bool = True) -> None:
        store, limits = self.store, self.store.limits
        try:
            self._found = store.folder.find(path)
            if self._found.is_dir() or not include_body:
                store.count(lookups=1)
                await limits.wait(limits.look_up())
                await self._describe(path)
                return
            store.count(requests=1)
            async with limits.slots:
                answer = limits.answer()
                await limits.wait(answer.first_byte)
                await super().get(path)
                if self._span:
                    with self._found.open("rb") as body:
                        await self._send(body, *self._span, answer.arrival)
        except StreamClosedError:
            return  # the client has gone
        except OSError as error:
            raise _Refusal.of(error) from None

    async def _describe(self, path: str) -> None:
        if self._found.is_dir():
            token = self.get_query_argument("token", "")
            self.finish(self.store.folder.listing(path, token=token))
        else:
            await super().get(path, include_body=False)

    async def _send(
        self, body: BinaryIO, start: int, stop: int, arrival: Callable[[int], float]
    ) -> None:
        breaks_at = self.store.breaks_at(self._found, stop - start)
        left = stop - start if breaks_at is None else breaks_at
        body.seek(start)
        try:
            while left and (chunk := body.read(min(_CHUNK, left))):
                await self.store.limits.wait(arrival(len(chunk)))
                self.store.count(bytes_sent=len(chunk))
                left -= len(chunk)
                self.write(chunk)
                await self.flush()
            if left or breaks_at is not None:  # the file has become shorter, or it is to break
                await self.flush()  # the headers, if nothing else went
                self.detach().close()
        except asyncio.CancelledError:  # the store ends; tornado would try to send an error page
            self.detach().close()

    def validate_absolute_path(self, root: str, absolute_path: str) -> str:
        return str(self._found)

    def set_headers(self) -> None:
        super().set_headers()
        condition = self.request.headers.get("If-Range")
        if condition and condition != self.compute_etag():
            self.request.headers.pop("Range", None)  # a part of another file would be asked for

    def compute_etag(self) -> str | None:
        """Tell versions of a file apart without reading it; tornado would hash the first only."""
        if self._found.is_dir():
            return None
        status = self._stat()
        return f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"'

    def get_content(  # type: ignore[override]  # tornado's reads; this notes what is to be sent
        self, abspath: str, start: int | None = None, end: int | None = None
    ) -> list[bytes]:
        self._span = start or 0, self.get_content_size() if end is None else end
        return []


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_urlsafe(16)


def figures(preset: str | StoragePreset | None) -> StoragePreset | None:
    """Return the limits that are meant; None, or "none", for no limits.

    Raises:
        ValueError: there is no such preset.
    """
    if preset == "none":
        return None
    return storage_preset(preset) if isinstance(preset, str) else preset


def address(port: int, name: str = "", *, token: str = "") -> str:
    """Return where a store is, without a `/` at the end; or a file of it, or all with a token.

    `{000000..000003}` stays as it is: WebDataset expands it.
    """
    path = f"/{quote(name, safe='/{},')}" if name or token else ""
    query = f"?{urlencode({'token': token})}" if token else ""
    return f"http://{ADDRESS}:{port}{path}{query}"


def whole_bytes(break_after: float | None) -> int | None:
    """Return after how many bytes to break off; None for never.

    Raises:
        CourseError: that is less than none, without end, or no number.
    """
    if break_after is None:
        return None
    if not 0 <= break_after < math.inf:
        raise CourseError(
            f"An answer cannot break off after {break_after:,.12g} bytes; choose 0 or more."
        )
    return round(break_after)


def serve(
    folder: str | os.PathLike[str],
    preset: StoragePreset | None,
    *,
    token: str,
    ready: Callable[[int], None],
    port: int = 0,
    break_after: float | None = None,
    until_stdin_ends: bool = False,
) -> None:
    """Serve the files of `folder` until the process is interrupted.

    Args:
        folder: what lies in it, and nothing else, can be had.
        preset: the limits that all connections share; None for none.
        token: what a client must send.
        ready: is called with the port once the store answers.
        port: where to listen; 0 for a free port.
        break_after: the first answer with more than so many bytes of a file breaks off there.
        until_stdin_ends: end when the process that holds the other end of stdin does.

    Raises:
        CourseError: the folder cannot be served, the port cannot be had, the token cannot be sent
            in a header, or nothing can break off there.
    """
    broken = whole_bytes(break_after)
    if not re.fullmatch(r"[A-Za-z0-9._~+/-]+=*", token):
        raise CourseError("A token has letters, digits and ._~+/- in it; choose another.")
    store = ServedStore(ObjectFolder(folder), token, Limits(preset), broken)
    asyncio.run(_serve(store, _listen(port), ready, until_stdin_ends=until_stdin_ends))


async def _serve(
    store: ServedStore,
    sockets: list[socket.socket],
    ready: Callable[[int], None],
    *,
    until_stdin_ends: bool,
) -> None:
    objects: Any = (r"/?(.*)", _Objects, {"path": str(store.folder.root)})
    handlers = [(f"/{COUNTERS}", _Counters), objects]
    application = Application(handlers, store=store, log_function=lambda handler: None)
    server = HTTPServer(application, max_body_size=_LONGEST_BODY)
    server.add_sockets(sockets)
    ready(sockets[0].getsockname()[1])
    ended = asyncio.Event()
    if until_stdin_ends:
        loop = asyncio.get_running_loop()
        threading.Thread(target=_wait_for_end, args=(loop, ended), daemon=True).start()
    try:
        await ended.wait()
    finally:
        server.stop()


def _wait_for_end(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    while os.read(0, 1024):  # not sys.stdin: its lock would be held when the process ends
        pass
    with contextlib.suppress(RuntimeError):  # the loop has ended before
        loop.call_soon_threadsafe(ended.set)


def _listen(port: int) -> list[socket.socket]:
    if 0 <= port < 2**16:  # tornado takes a larger one for its remainder
        with contextlib.suppress(OSError):
            return bind_sockets(port, ADDRESS, family=socket.AF_INET)
    raise CourseError(
        f"Port {port} is taken or cannot be had; choose another, or 0 for a free one."
    )


def main() -> None:
    """Serve with the settings on stdin; print the port once the store answers."""
    settings = json.loads(sys.stdin.readline())
    if settings["preset"]:
        settings["preset"] = StoragePreset(**settings["preset"])
    try:
        serve(**settings, until_stdin_ends=True, ready=lambda port: print(port, flush=True))
    except CourseError as error:
        sys.exit(str(error))
