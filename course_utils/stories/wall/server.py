"""Serve the wall of a class: the projector's page, the desk, a page for phones, and the posts.

The server is open to this machine only, or to its local network. Everyone with the token of the
class can see the wall and post to it. Only the token of the desk can choose what the wall shows.
The server uses plain HTTP, so anyone who can listen to the network can read the tokens.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import segno
from tornado.web import HTTPError

from course_utils.errors import CourseError
from course_utils.stories.leaderboard import Board, PostLimits
from course_utils.stories.wall.board import BOARD_ROUTES
from course_utils.stories.wall.handlers import PageHandler, WallHandler
from course_utils.stories.wall.picture import draw
from course_utils.stories.wall.questions import read_course
from course_utils.stories.wall.room import DESK, Room, RoomFull
from course_utils.teaching.wall import new_token
from course_utils.token_server import LOOPBACK, serve_with_token

_LONGEST_POST = 1000
_PATIENCE_S = 20
_PACE = "pace"


class WallAddresses(NamedTuple):
    """The addresses of a running wall."""

    wall: str
    desk: str
    phone: str
    join: str  # command for learners


class _Hall:
    """The state of the server."""

    addresses: WallAddresses
    code: list[str]  # QR code of the phone's address, a text of 0 and 1 for each row

    def __init__(self, room: Room) -> None:
        self.room = room
        self.address_limits = PostLimits(burst=300, a_second=30)
        self.seat_limits = PostLimits(burst=20, a_second=5)
        self.key = ""  # question that the desk shows, or "" to follow the room
        self.uncovered: set[str] = set()
        self.turn = 0  # number of choices of the desk

    def picture(self, key: str, *, uncover: bool) -> dict[str, Any]:
        """Return what the wall shows, for a key or for the one that the desk shows."""
        room, key = self.room, key or self.key or self.room.followed()
        uncovered = uncover or key in self.uncovered
        shown = {"key": key, "uncovered": uncovered, "keys": room.near(key)}
        if question := room.course.questions.get(key):
            guesses, measured = room.values("guess", key), room.values("measured", key)
            shown |= question._asdict() | draw(question, guesses, measured if uncovered else ())
            shown |= {"guessed": len(guesses), "measured": len(measured)}
        shown |= {"seats": room.seats, "turn": self.turn, "pace": room.pace()}
        shown |= {"join": self.addresses.join, "phone": self.addresses.phone}
        return shown | {"code": self.code}


class _Picture(WallHandler):
    def get(self) -> None:
        hall: _Hall = self.settings["hall"]
        uncover = bool(self.get_query_argument("uncover", ""))
        self.set_header("Cache-Control", "no-cache")
        shown = hall.picture(self.get_query_argument("key", ""), uncover=uncover)
        self.write(shown | {"is_desk": self.has_token(self.settings["desk"])})


class _Desk(WallHandler):
    SUPPORTED_METHODS = ("GET", "POST")
    only_desk = True

    def get(self) -> None:
        self.set_header("Cache-Control", "no-cache")
        self.write(self.settings["hall"].room.trouble())

    def post(self) -> None:
        """Show a key ("" follows the room), and uncover or cover its measured values."""
        hall: _Hall = self.settings["hall"]
        given = _read_json(self.request.body)
        key = given.get("key")
        if not isinstance(key, str) or key not in {"", _PACE, *hall.room.course.questions}:
            raise HTTPError(400, reason="The value of 'key' does not exist in this course.")
        hall.key, hall.turn = key, hall.turn + 1
        (hall.uncovered.add if given.get("uncover") is True else hall.uncovered.discard)(key)
        self.set_status(204)


class _Posts(WallHandler):
    SUPPORTED_METHODS = ("POST",)

    def post(self) -> None:
        hall: _Hall = self.settings["hall"]
        given = _read_json(self.request.body)
        if given.get("seat") == DESK and not self.has_token(self.settings["desk"]):
            raise HTTPError(401, reason="Only the desk may post under its name.")
        said = hall.address_limits.refusal(self.request.remote_ip or "", given.get("seat"))
        try:
            post = hall.room.read(given)
            if said := said or hall.seat_limits.refusal(post.seat, ""):
                raise HTTPError(429, reason=said)
            hall.room.take(post)
        except ValueError as error:
            raise HTTPError(400, reason=str(error)) from None
        except RoomFull:
            raise HTTPError(429, reason="The wall is full.") from None
        self.set_status(204)


class _Nothing(WallHandler):
    SUPPORTED_METHODS = ("GET", "HEAD", "POST")

    def prepare(self) -> None:
        super().prepare()
        raise HTTPError(404, reason=self.sentences[404])


def serve_wall(
    home: Path,
    *,
    ready: Callable[[WallAddresses], None],
    token: str = "",
    port: int = 0,
    address: str = LOOPBACK,
) -> None:
    """Serve the wall until the process is interrupted.

    Args:
        home: Folder of the user. The leaderboard is in its folder `work`.
        ready: Called with the addresses when the server is running.
        token: Token of the class; "" for a new one.
        port: Port to listen on; 0 for a free port.
        address: Address to listen on, for this machine only or for its network.

    Raises:
        CourseError: If the server cannot start with these arguments.
        OSError: If the folder cannot be written.
    """
    board, room = Board(home / "work" / "leaderboard.json"), Room(read_course())
    hall, token, desk = _Hall(room), token or new_token(8), new_token(12)

    def start(port: int) -> None:
        at = f"{address}:{port}"
        hall.addresses = WallAddresses(
            f"http://{at}/?token={token}",
            f"http://{at}/desk?token={desk}",
            f"http://{at}/guess?token={token}",
            f"course join {at} {token}",
        )
        code = segno.make(hall.addresses.phone, micro=False)
        hall.code = ["".join(map(str, row)) for row in code.matrix]
        ready(hall.addresses)

    names = {"/": "wall", "/desk": "desk", "/guess": "guess", "/board": "board"}
    pages = [(path, PageHandler, {"page": page}) for path, page in names.items()]
    answers = [(r"/wall\.json", _Picture), (r"/desk\.json", _Desk), (r"/posts", _Posts)]
    with suppress(KeyboardInterrupt):
        serve_with_token(
            [*pages, *answers, *BOARD_ROUTES, (r"(?s).*", _Nothing)],
            token=token,
            desk=desk,
            ready=start,
            port=port,
            address=address,
            patience_s=_PATIENCE_S,
            hall=hall,
            board=board,
            limits=PostLimits(),
        )


def network_address() -> str:
    """Return the address of this machine in its local network.

    Raises:
        CourseError: If there is no network.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way, suppress(OSError):
        way.connect(("192.0.2.1", 9))  # a reserved address, as this only selects a route
        return str(way.getsockname()[0])
    raise CourseError("This machine is not connected to a network. Connect it, or omit --lan.")


def _read_json(body: bytes) -> dict[str, Any]:
    if len(body) > _LONGEST_POST:
        raise HTTPError(413, reason=f"A post must have at most {_LONGEST_POST:,} bytes.")
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise HTTPError(400, reason="The post is not a JSON object.")
    return given
