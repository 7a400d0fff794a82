"""HTTP server that answers only requests with the right token.

The object store and the wall are built on it. The server does not log requests, because a URL may
contain the token. With `patience_s` it closes the connections of clients that send too slowly.
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
from tornado.iostream import IOStream, StreamClosedError
from tornado.log import app_log
from tornado.web import Application, HTTPError, RequestHandler

from course_utils.errors import CourseError

LOOPBACK = "127.0.0.1"
_WAITING = 128  # connections in the queue: a whole class may connect at once
_LONGEST_BODY = 64 * 1024  # bytes read of a request body; longer bodies are rejected
_MOST_CONNECTIONS = 300  # open connections from one address


class TokenHandler(RequestHandler):
    """Request handler that requires the token and writes no request to a log."""

    SUPPORTED_METHODS: tuple[str, ...] = ("GET", "HEAD")
    called = "server"
    wrong_token = 403  # status
    sentences: ClassVar[Mapping[int, str]] = {}  # by status; 500 is the default

    def set_default_headers(self) -> None:
        """Stop browsers from guessing content types and from sending the URL to other sites."""
        self.set_header("Server", "course")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")  # the URL may contain the token

    def prepare(self) -> None:
        """Reject a foreign Host header (DNS rebinding) and requests without the token."""
        at: str = self.settings["address"]
        also = {"localhost"} if at == LOOPBACK else set()
        if self.request.host_name.lower() not in {at, *also}:
            raise HTTPError(
                403, reason=f"Unknown host name. The address of this {self.called} is {at}."
            )
        if not self.given_token():
            self.set_header("WWW-Authenticate", "Bearer")
            needed = "A token is required. Send the header Authorization: Bearer TOKEN, or ?token=."
            raise HTTPError(401, reason=needed)
        if not any(map(self.has_token, self.tokens())):
            wrong = f"Wrong token for this {self.called}. Copy the token again."
            raise HTTPError(self.wrong_token, reason=wrong)

    def given_token(self) -> str:
        """Return the token of the request, or ""."""
        scheme, _, given = self.request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            given = str(self.get_query_argument("token", ""))
        return given.strip()

    def has_token(self, token: str) -> bool:
        """Return whether the request has this token, in a time that does not depend on it."""
        return hmac.compare_digest(self.given_token().encode(), token.encode())

    def tokens(self) -> list[str]:
        """Return the tokens that this handler accepts."""
        return [self.settings["token"]]

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with one sentence of plain text."""
        error = kwargs.get("exc_info", (None, None))[1]
        reason = error.reason if isinstance(error, HTTPError) else None
        if status_code == 405:
            self.set_header("Allow", ", ".join(self.SUPPORTED_METHODS))
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{reason or self.sentences.get(status_code, self.sentences[500])}\n")

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log unexpected errors without the request, because its URL may contain the token."""
        if not isinstance(value, HTTPError | StreamClosedError | asyncio.CancelledError):
            app_log.error("The %s failed at a request.", self.called, exc_info=(typ, value, tb))


def serve_with_token(
    handlers: Sequence[Any],
    *,
    token: str,
    ready: Callable[[int], None],
    port: int = 0,
    address: str = LOOPBACK,
    patience_s: float = 3600,
    **settings: Any,
) -> None:
    """Serve `handlers`, which must all be `TokenHandler`, until the process is interrupted.

    Args:
        handlers: Routes and their request handlers, in tornado's format.
        token: Token that clients must send.
        ready: Called with the port once the server accepts requests.
        port: Port to listen on; 0 selects a free port.
        address: Address of this machine to listen on.
        patience_s: Longest time for a client to send a request.
        settings: Additional entries for `self.settings` of the handlers.

    Raises:
        CourseError: If the token or the port is not valid.
    """
    if not re.fullmatch(r"[A-Za-z0-9._~+/-]+=*", token):
        raise CourseError(
            "A token may contain only letters, digits and ._~+/-. Choose a different token."
        )
    settings |= {"token": token, "address": address, "log_function": lambda handler: None}
    server = _Server(
        Application([*handlers], **settings),
        max_body_size=_LONGEST_BODY,
        idle_connection_timeout=patience_s,
        body_timeout=patience_s,
    )
    asyncio.run(_serve(server, _listen(port, address), ready))


class _Server(HTTPServer):
    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Serve a connection, unless its address has too many."""
        others = [getattr(one.context, "remote_ip", "") for one in self._connections]
        if others.count(address[0]) < _MOST_CONNECTIONS:
            super().handle_stream(stream, address)
        else:
            stream.close()


async def _serve(server: HTTPServer, line: socket.socket, ready: Callable[[int], None]) -> None:
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
    at, own = ("", "") if address == LOOPBACK else (f" of {address}", ", a local address")
    raise CourseError(
        f"Cannot listen on port {port}{at}: it is in use or not allowed. "
        f"Choose a different port{own}, or 0 for any free port."
    )
