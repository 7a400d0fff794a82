"""Serve one folder over HTTP as an object store would, with the limits of a storage preset.

It is for this machine alone, and for people who share a classroom: who has the token may read all
of the folder. A client that sends its request a byte a minute (slowloris) holds a connection, and
nothing is done against that.

`python -m course_utils.hardware.object_store.server` is what `object_store` starts: its
settings are one line of JSON on stdin, so that the token shows in no list of processes, and it ends
with its stdin.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from urllib.parse import quote, urlencode

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPConnection, HTTPMessageDelegate
from tornado.netutil import bind_sockets

from course_utils.errors import CourseError
from course_utils.hardware.object_store.folder import ObjectFolder
from course_utils.hardware.object_store.handlers import ADDRESS, ServedStore, application
from course_utils.hardware.object_store.limits import NO_LIMITS, Limits
from course_utils.hardware.storage import StoragePreset, storage_preset

_LONGEST_BODY = 64 * 1024  # a request has none; so much of one is read, and refused


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
    store = ServedStore(ObjectFolder(folder), token, Limits(preset or NO_LIMITS), broken)
    sockets = _listen(port)
    asyncio.run(_serve(store, sockets, ready, until_stdin_ends=until_stdin_ends))


class _Server(HTTPServer):
    """Count the connections on which something was asked for."""

    store: ServedStore

    def start_request(
        self, server_conn: object, request_conn: HTTPConnection
    ) -> HTTPMessageDelegate:
        self.store.connections.add(server_conn)
        return super().start_request(server_conn, request_conn)

    def on_close(self, server_conn: object) -> None:
        self.store.connections.discard(server_conn)
        super().on_close(server_conn)


async def _serve(
    store: ServedStore,
    sockets: list[socket.socket],
    ready: Callable[[int], None],
    *,
    until_stdin_ends: bool,
) -> None:
    server = _Server(application(store), max_body_size=_LONGEST_BODY)
    server.store = store
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


def _main() -> int:
    settings = json.loads(sys.stdin.readline())
    if settings["preset"]:
        settings["preset"] = StoragePreset(**settings["preset"])
    try:
        serve(**settings, until_stdin_ends=True, ready=lambda port: print(port, flush=True))
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
