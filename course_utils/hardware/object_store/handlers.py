"""What an object store answers: files with ranges, listings, counters, and refusals in a sentence.

Read-only. Nothing is said about the files before the token was seen, and no request is logged: its
address may hold the token.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from tornado.iostream import StreamClosedError
from tornado.log import app_log
from tornado.web import Application, HTTPError, RequestHandler, StaticFileHandler

from course_utils.hardware.object_store.counters import COUNTERS, StoreCounters
from course_utils.hardware.object_store.folder import MISSING, ObjectFolder
from course_utils.hardware.object_store.limits import Limits

ADDRESS = "127.0.0.1"
_HOSTS = {ADDRESS, "localhost"}
_CHUNK = 64 * 1024
_SENTENCES = {
    400: "This is not a request that can be read; mend the address or the headers.",
    405: "This store only reads; use GET or HEAD.",
}
_ELSE = "The store failed at this request; start it with `course serve` to see why."


@dataclass
class ServedStore:
    """What all handlers of one server share."""

    folder: ObjectFolder
    token: str
    limits: Limits
    break_after: int | None
    counters: StoreCounters = field(default_factory=StoreCounters)
    was_broken: set[Path] = field(default_factory=set)
    connections: set[object] = field(default_factory=set)  # open, and used
    start: str = field(default_factory=secrets.token_urlsafe)  # which start has counted

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


def application(store: ServedStore) -> Application:
    """Return what answers for `store`; whatever is asked for goes through the same checks."""
    return Application(
        [(f"/{COUNTERS}", _Counters), (r"/?(.*)", _Objects, {"path": str(store.folder.root)})],
        store=store,
        log_function=lambda handler: None,
    )


class _Refusal(HTTPError):
    """An answer without content that says why, and what to do."""

    def __init__(self, status: int, sentence: str):
        super().__init__(status)
        self.sentence = sentence

    @classmethod
    def of(cls, error: OSError) -> _Refusal:
        """Say it in a sentence of ours: the system's names the whole path."""
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return cls(404, MISSING)
        ours = error.errno is None
        return cls(403, str(error) if ours else "This cannot be read here; ask for something else.")


class _Guarded(RequestHandler):
    """Answer nobody but those who have the token; write no request into any log."""

    SUPPORTED_METHODS = ("GET", "HEAD")

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
            self.set_header("Allow", ", ".join(self.SUPPORTED_METHODS))
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
    def get(self) -> None:
        others = len(self.store.connections) - 1
        counters = replace(self.store.counters, connections=others)
        self.write({"start": self.store.start, "counters": vars(counters)})


class _Objects(_Guarded, StaticFileHandler):
    """Files and listings. Tornado reads the conditions and ranges; the body goes at our pace."""

    _found: Path
    _status: os.stat_result
    _span: tuple[int, int] | None = None  # what is to be sent of it

    async def get(self, path: str, include_body: bool = True) -> None:
        limits, name = self.store.limits, path
        looks_up = not include_body or self._is_folder(name)
        self.store.count(**{"lookups" if looks_up else "requests": 1})
        if looks_up:
            await limits.wait(limits.look_up())
            await self._answer(name, include_body)
            return
        async with limits.slots:
            answer = limits.answer()
            await limits.wait(answer.first_byte)
            await self._answer(name, include_body)
            if self._span:
                with self._open() as body:
                    await self._send(body, *self._span, answer.arrival)

    async def _answer(self, name: str, include_body: bool) -> None:
        """Find it and write the headers; a folder's body too."""
        try:
            self._found = self.store.folder.find(name)
            self._status = self._found.stat()
            if self._found.is_dir():
                token = self.get_query_argument("token", "")
                self.finish(self.store.folder.listing(name, token=token))
            else:
                await super().get(name, include_body)
        except OSError as error:
            raise _Refusal.of(error) from None

    async def _send(
        self, body: BinaryIO, start: int, stop: int, arrival: Callable[[int], float]
    ) -> None:
        breaks_at = self.store.breaks_at(self._found, stop - start)
        left = stop - start if breaks_at is None else breaks_at
        body.seek(start)
        try:
            while left:
                chunk = body.read(min(_CHUNK, left))
                if not chunk:
                    break  # the file has become shorter meanwhile
                await self.store.limits.wait(arrival(len(chunk)))
                self.store.count(bytes_sent=len(chunk))
                left -= len(chunk)
                self.write(chunk)
                await self.flush()
            if left or breaks_at is not None:
                await self.flush()  # the headers, if nothing else went
                self.detach().close()
        except StreamClosedError:
            return  # the client has gone
        except asyncio.CancelledError:  # the store ends; tornado would try to send an error page
            self.detach().close()

    def _is_folder(self, name: str) -> bool:
        try:
            return self.store.folder.find(name).is_dir()
        except OSError:
            return False

    def validate_absolute_path(self, root: str, absolute_path: str) -> str:
        return str(self._found)

    def set_headers(self) -> None:
        super().set_headers()
        condition = self.request.headers.get("If-Range")
        if condition and condition != self.compute_etag():
            self.request.headers.pop("Range", None)  # a part of another file would be asked for

    def compute_etag(self) -> str:
        """Tell versions of a file apart without reading it; tornado would hash the first only."""
        status = self._status  # tornado asks once more at the end, when the file may be gone
        return f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"'

    def get_content(  # type: ignore[override]  # tornado's reads; this notes what is to be sent
        self, abspath: str, start: int | None = None, end: int | None = None
    ) -> list[bytes]:
        self._span = start or 0, self.get_content_size() if end is None else end
        return []

    def _open(self) -> BinaryIO:
        try:
            return self._found.open("rb")
        except OSError as error:
            raise _Refusal.of(error) from None
