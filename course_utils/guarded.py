"""Answer HTTP requests of those who have a token, and of nobody else.

What serves a folder and what serves a class stand on it. Nothing is said before the token was seen,
and no request is logged: its address may hold the token. A client that sends its request a byte a
minute (slowloris) holds a connection, and nothing is done against that.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.log import app_log
from tornado.web import Application, HTTPError, RequestHandler

from course_utils.errors import CourseError

LOOPBACK = "127.0.0.1"
_WAITING = 128  # connections: a class asks at once
_LONGEST_BODY = 64 * 1024  # so much of one is read; what is too long for an answer is refused then


class Guarded(RequestHandler):
    """Answer nobody but those who have the token; write no request into any log."""

    SUPPORTED_METHODS: tuple[str, ...] = ("GET", "HEAD")
    called = "server"
    sentences: ClassVar[Mapping[int, str]] = {}  # for what tornado refuses; 500: for what failed

    def set_default_headers(self) -> None:
        """Keep a browser from guessing types and from telling others where it was."""
        self.set_header("Server", "course")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")  # the address may hold the token

    def prepare(self) -> None:
        """Refuse other names for this machine, which pages from elsewhere come with, and guests."""
        at: str = self.settings["address"]
        also = {"localhost"} if at == LOOPBACK else set()
        if self.request.host_name.lower() not in {at, *also}:
            raise HTTPError(403, reason=f"This {self.called} is called {at}; use this address.")
        scheme, _, given = self.request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            given = self.get_query_argument("token", "")
        if not given:
            self.set_header("WWW-Authenticate", "Bearer")
            needed = "A token is needed; send the header Authorization: Bearer TOKEN, or ?token=."
            raise HTTPError(401, reason=needed)
        if not hmac.compare_digest(given.strip().encode(), self.settings["token"].encode()):
            wrong = f"This is not the token of this {self.called}; copy it once more."
            raise HTTPError(403, reason=wrong)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Say it in one sentence."""
        error = kwargs.get("exc_info", (None, None))[1]
        reason = error.reason if isinstance(error, HTTPError) else None
        if status_code == 405:
            self.set_header("Allow", ", ".join(self.SUPPORTED_METHODS))
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{reason or self.sentences.get(status_code, self.sentences[500])}\n")

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log what is a mistake of ours, without the request: its address may hold the token."""
        if not isinstance(value, HTTPError | StreamClosedError | asyncio.CancelledError):
            app_log.error("The %s failed at a request.", self.called, exc_info=(typ, value, tb))


def serve_guarded(
    handlers: Sequence[Any],
    *,
    token: str,
    ready: Callable[[int], None],
    port: int = 0,
    address: str = LOOPBACK,
    **settings: Any,
) -> None:
    """Answer by `handlers`, each of them `Guarded`, until the process is interrupted.

    Args:
        handlers: addresses and who answers them, as tornado has them.
        token: what a client must send.
        ready: is called with the port once requests are answered.
        port: where to listen; 0 for a free port.
        address: of this machine, at which it is asked.
        settings: what else the handlers find in `self.settings`.

    Raises:
        CourseError: the token or the port cannot be.
    """
    if not re.fullmatch(r"[A-Za-z0-9._~+/-]+=*", token):
        raise CourseError("A token has letters, digits and ._~+/- in it; choose another.")
    settings |= {"token": token, "address": address, "log_function": lambda handler: None}
    asyncio.run(_serve(Application([*handlers], **settings), _listen(port, address), ready))


async def _serve(
    application: Application, line: socket.socket, ready: Callable[[int], None]
) -> None:
    server = HTTPServer(application, max_body_size=_LONGEST_BODY)
    server.add_socket(line)
    ready(line.getsockname()[1])
    try:
        await asyncio.Event().wait()
    finally:
        server.stop()


def _listen(port: int, address: str) -> socket.socket:
    if 0 <= port < 2**16:
        with suppress(OSError):
            line = socket.create_server((address, port), backlog=_WAITING)
            line.setblocking(False)
            return line
    at, own = ("", "") if address == LOOPBACK else (f" of {address}", ", at this machine's address")
    raise CourseError(
        f"Port {port}{at} is taken or cannot be had; choose another{own}, or 0 for a free one."
    )
