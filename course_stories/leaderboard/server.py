"""Serve the leaderboard of a class: a page that follows it, and an address for posts.

The server is open to this machine only, or to its local network. Everyone with the token can read
the board and post under a new name. The server uses plain HTTP, so anyone who can listen to the
network can read the token and the words of the names.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlencode

from tornado.web import HTTPError

from course_stories.leaderboard.board import Board
from course_stories.leaderboard.limits import PostLimits
from course_utils.errors import CourseError
from course_utils.token_server import LOOPBACK, TokenHandler, serve_with_token
from keepfed.errors import KeepfedError

_LONGEST_POST = 4096
_PAGE = Path(__file__).with_name("page.html")


class _Answer(TokenHandler):
    called = "board"
    sentences: ClassVar[Mapping[int, str]] = {
        400: "The request is not valid. Fix the address or the headers.",
        404: "There is no such page. The board is at /, and results are posted to /results.",
        405: "This method is not allowed. The board is at /, and results are posted to /results.",
        500: "The server failed. See the output of `course leaderboard`.",
    }

    @property
    def board(self) -> Board:
        board: Board = self.settings["board"]
        return board


class _Page(_Answer):
    def get(self) -> None:
        nonce = secrets.token_urlsafe(16)  # names are untrusted, so only our script may run
        allowed = f"script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'"
        more = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        self.set_header("Content-Security-Policy", f"default-src 'none'; {allowed}; {more}")
        self.set_header("Cache-Control", "no-store")
        self.write(_PAGE.read_text("utf-8").replace("NONCE", nonce))


class _Standings(_Answer):
    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-cache")
        try:
            self.write(self.board.text())
        except KeepfedError as error:
            raise HTTPError(500, reason=str(error)) from None


class _Results(_Answer):
    SUPPORTED_METHODS = ("POST",)

    def post(self) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        if len(self.request.body) > _LONGEST_POST:
            raise HTTPError(413, reason=f"A post must have at most {_LONGEST_POST:,} bytes.")
        try:
            given = json.loads(self.request.body)
        except (ValueError, RecursionError):
            raise HTTPError(400, reason="This is not JSON. Send a name and a result.") from None
        limits: PostLimits = self.settings["limits"]
        name = given.get("name") if isinstance(given, dict) else None
        if said := limits.refusal(self.request.remote_ip or "", name):
            raise HTTPError(429, reason=said)
        try:
            self.write(f"{self.board.take(given)}\n")
        except ValueError as error:
            raise HTTPError(400, reason=_line(error)) from None
        except KeepfedError as error:
            raise HTTPError(500, reason=_line(error)) from None
        except OSError as error:
            said = f"The board cannot be written ({error.strerror}). Post again later."
            raise HTTPError(507, reason=said) from None


class _Nothing(_Answer):
    SUPPORTED_METHODS = ("GET", "HEAD", "POST")

    def prepare(self) -> None:
        super().prepare()
        raise HTTPError(404, reason=self.sentences[404])


def serve_board(
    path: Path, *, token: str, ready: Callable[[int], None], port: int = 0, address: str = LOOPBACK
) -> None:
    """Serve the board in a file until the process is interrupted.

    Args:
        path: the file, which the first post creates.
        token: the token that clients must send.
        ready: function that is called with the port when the server is running.
        port: port to listen on; 0 for a free port.
        address: address to listen on, for this machine only or for its network.

    Raises:
        CourseError: If the server cannot start with these arguments.
    """
    handlers = [(r"/", _Page), (r"/leaderboard\.json", _Standings), (r"/results", _Results)]
    serve_with_token(
        [*handlers, (r"(?s).*", _Nothing)],
        token=token,
        ready=ready,
        port=port,
        address=address,
        board=Board(path),
        limits=PostLimits(),
    )


def board_address(port: int, address: str, token: str) -> str:
    """Return the address for browsers and for `post`, including the token."""
    return f"http://{address}:{port}/?{urlencode({'token': token})}"


def network_address() -> str:
    """Return the address of this machine in its local network.

    Raises:
        CourseError: If there is no network.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way, suppress(OSError):
        way.connect(("192.0.2.1", 9))  # a reserved address, as this only selects a route
        return str(way.getsockname()[0])
    raise CourseError("This machine is not connected to a network. Connect it, or omit --lan.")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
