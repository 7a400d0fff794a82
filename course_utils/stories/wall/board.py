"""The leaderboard on the wall: its standings, and an address for results.

Everyone with the token can read the board and post under a new name. The server uses plain HTTP, so
anyone who can listen to the network can read the token.
"""

from __future__ import annotations

import json

from tornado.web import HTTPError

from course_utils.stories.leaderboard import Board, PostLimits
from course_utils.stories.wall.handlers import WallHandler
from keepfed.errors import KeepfedError

_LONGEST_POST = 4096


class _Standings(WallHandler):
    def get(self) -> None:
        board: Board = self.settings["board"]
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-cache")
        try:
            self.write(board.text())
        except KeepfedError as error:
            raise HTTPError(500, reason=str(error)) from None


class _Results(WallHandler):
    SUPPORTED_METHODS = ("POST",)

    def post(self) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        if len(self.request.body) > _LONGEST_POST:
            raise HTTPError(413, reason=f"A post must have at most {_LONGEST_POST:,} bytes.")
        try:
            given = json.loads(self.request.body)
        except (ValueError, RecursionError):
            raise HTTPError(400, reason="This is not JSON. Send a name and a result.") from None
        board: Board = self.settings["board"]
        limits: PostLimits = self.settings["limits"]
        name = given.get("name") if isinstance(given, dict) else None
        if said := limits.refusal(self.request.remote_ip or "", name):
            raise HTTPError(429, reason=said)
        try:
            self.write(f"{board.take(given)}\n")
        except ValueError as error:
            raise HTTPError(400, reason=_line(error)) from None
        except KeepfedError as error:
            raise HTTPError(500, reason=_line(error)) from None
        except OSError as error:
            said = f"The board cannot save the result ({error.strerror}). Post again later."
            raise HTTPError(507, reason=said) from None


BOARD_ROUTES = [(r"/leaderboard\.json", _Standings), (r"/results", _Results)]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
