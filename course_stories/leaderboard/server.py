"""Serve the board of a class: a page that follows it, and an address where results are posted.

For this machine alone, or for the network that it is in. Who has the token may read the board and
post to it, under any name. It goes by plain HTTP: who can listen to the network can read the token.
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
from course_utils.errors import CourseError
from course_utils.guarded import LOOPBACK, Guarded, serve_guarded
from keepfed.errors import KeepfedError

_LONGEST_POST = 4096
_PAGE = Path(__file__).with_name("page.html")


class _Answer(Guarded):
    called = "board"
    sentences: ClassVar[Mapping[int, str]] = {
        400: "This is not a request that can be read; mend the address or the headers.",
        404: "There is no such page here; the board is at /, and results are posted to /results.",
        405: "This cannot be done here; the board is at /, and results are posted to /results.",
        500: "The board failed at this request; look where `course leaderboard` runs.",
    }

    @property
    def board(self) -> Board:
        board: Board = self.settings["board"]
        return board


class _Page(_Answer):
    def get(self) -> None:
        nonce = secrets.token_urlsafe(16)  # names come from others: no script but ours runs
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
            raise HTTPError(413, reason=f"A post has at most {_LONGEST_POST:,} bytes.")
        try:
            given = json.loads(self.request.body)
        except (ValueError, RecursionError):
            raise HTTPError(400, reason="This is no JSON; send a name and a result.") from None
        try:
            self.write(f"{self.board.take(given)}\n")
        except ValueError as error:
            raise HTTPError(400, reason=_line(error)) from None
        except KeepfedError as error:
            raise HTTPError(500, reason=_line(error)) from None
        except OSError as error:
            said = f"The board cannot be written ({error.strerror}); post again when it can."
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
        path: the file; it is made by the first post.
        token: what a client must send.
        ready: is called with the port once the board answers.
        port: where to listen; 0 for a free port.
        address: of this machine, at which it is asked: this machine's alone, or one of its network.

    Raises:
        CourseError: any of them cannot be.
    """
    handlers = [(r"/", _Page), (r"/leaderboard\.json", _Standings), (r"/results", _Results)]
    serve_guarded(
        [*handlers, (r"(?s).*", _Nothing)],
        token=token,
        ready=ready,
        port=port,
        address=address,
        board=Board(path),
    )


def board_address(port: int, address: str, token: str) -> str:
    """Return what a browser, and `post`, are given: it holds the token."""
    return f"http://{address}:{port}/?{urlencode({'token': token})}"


def network_address() -> str:
    """Return the address of this machine in the network that it is in.

    Raises:
        CourseError: it is in none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way, suppress(OSError):
        way.connect(("192.0.2.1", 9))  # an address of nobody: this sends nothing, it looks up a way
        return str(way.getsockname()[0])
    raise CourseError("This machine is in no network; join one, or leave out --lan.")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
