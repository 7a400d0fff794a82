"""Serve the wall of a class: a page for everybody, one for the projector, and the posts.

The server is open to this machine only, or to its local network. Everyone with the token of the
class can see the wall and post to it. Only the token of the teacher can choose what the wall shows.
The server uses plain HTTP, so anyone who can listen to the network can read the tokens.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import segno
from tornado.web import HTTPError

from course_utils.errors import CourseError
from course_utils.stories.wall.questions import read_course
from course_utils.stories.wall.room import TEACHER, Room, RoomFull
from course_utils.teaching.notebook.wall import new_token
from course_utils.token_server import LOOPBACK, TokenHandler, serve_with_token
from keepfed.palette import DARK, LIGHT

_PAGES = Path(__file__).with_name("pages")
_LONGEST_POST = 2000  # bytes
_PATIENCE_S = 20
_PER_ADDRESS, _PER_SEAT, _SPAN_S = 600, 50, 10  # posts in a span; a hub is one address


class PostLimits:
    """Counts the posts of each client, and forgets them at the end of each span."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._end = clock, 0.0
        self._posts = Counter[str]()

    def exceeded(self, client: str, most: int) -> bool:
        """Count a post, and return whether the client has sent more than `most`."""
        if self._clock() >= self._end:
            self._posts.clear()
            self._end = self._clock() + _SPAN_S
        self._posts[client] += 1
        return self._posts[client] > most


class _WallHandler(TokenHandler):
    """Request handler that accepts the token of the class and the token of the teacher."""

    called = "wall"
    wrong_token = 401
    sentences: ClassVar[Mapping[int, str]] = {
        400: "The request is not valid. Fix the address or the headers.",
        404: "There is no such page. The page of the class is /, the wall is /wall.",
        405: "This method is not allowed. The page of the class is /, the wall is /wall.",
        500: "The server failed. See the output of `course wall`.",
    }

    def tokens(self) -> list[str]:
        return [self.settings["token"], self.settings["teacher"]]

    @property
    def is_teacher(self) -> bool:
        return self.has_token(self.settings["teacher"])

    def read_json(self) -> Any:
        if len(self.request.body) > _LONGEST_POST:
            raise HTTPError(413, reason=f"A post must have at most {_LONGEST_POST:,} bytes.")
        try:
            return json.loads(self.request.body)
        except (ValueError, RecursionError):
            raise HTTPError(400, reason="The post is not a JSON object.") from None


class _Page(_WallHandler):
    """Request handler for a page. It shows untrusted texts, so only its own script may run."""

    def initialize(self, page: str) -> None:
        self.page = page

    def get(self) -> None:
        nonce = secrets.token_urlsafe(16)
        allowed = f"script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'"
        more = "base-uri 'none'; form-action 'none'"
        if self.page != "wall":  # a slide may show the wall in a frame
            more += "; frame-ancestors 'none'"
        self.set_header("Content-Security-Policy", f"default-src 'none'; {allowed}; {more}")
        self.set_header("Cache-Control", "no-store")
        text = (_PAGES / f"{self.page}.html").read_text("utf-8").replace("NONCE", nonce)
        for name in ("shared.css", "shared.js"):
            text = text.replace(f"/* {name} */", (_PAGES / name).read_text("utf-8"))
        self.write(text.replace("LIGHT;", f"{LIGHT.css()};").replace("DARK;", f"{DARK.css()};"))


class _State(_WallHandler):
    SUPPORTED_METHODS = ("GET", "POST")

    def get(self) -> None:
        room: Room = self.settings["room"]
        self.set_header("Cache-Control", "no-cache")
        more = room.trouble() if self.is_teacher else {}
        self.write(room.shown() | more | self.settings["addresses"])

    def post(self) -> None:
        """Show a question ("" follows the room), and uncover or cover its measured values."""
        room: Room = self.settings["room"]
        if not self.is_teacher:
            raise HTTPError(401, reason="Only the teacher may choose what the wall shows.")
        match self.read_json():
            case {"key": str(key), "uncover": bool(uncover)} if key in {"", *room.questions}:
                room.key = key
                (room.uncovered.add if uncover else room.uncovered.discard)(key)
            case _:
                raise HTTPError(400, reason="There is no such question in this course.")
        self.set_status(204)


class _Posts(_WallHandler):
    SUPPORTED_METHODS = ("POST",)

    def post(self) -> None:
        room: Room = self.settings["room"]
        limits: PostLimits = self.settings["limits"]
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        try:
            is_flood = limits.exceeded(self.request.remote_ip or "", _PER_ADDRESS)
            post = room.read(self.read_json())
            if is_flood or limits.exceeded(post.seat, _PER_SEAT):
                raise HTTPError(429, reason="You sent too many posts. Wait a minute.")
            if post.seat == TEACHER and not self.is_teacher:
                raise HTTPError(401, reason="Only the teacher may post under this name.")
            answer = room.take(post)
        except ValueError as error:
            raise HTTPError(400, reason=" ".join(str(error).split())) from None
        except RoomFull:
            raise HTTPError(429, reason="The wall is full.") from None
        except OSError as error:
            reason = f"The wall cannot save the post ({error.strerror}). Post again later."
            raise HTTPError(507, reason=reason) from None
        self.write(f"{answer}\n") if answer else self.set_status(204)


class _Nothing(_WallHandler):
    SUPPORTED_METHODS = ("GET", "HEAD", "POST")

    def prepare(self) -> None:
        super().prepare()
        raise HTTPError(404, reason=self.sentences[404])


def serve_wall(
    file: Path,
    *,
    ready: Callable[[dict[str, Any]], None],
    token: str = "",
    port: int = 0,
    address: str = LOOPBACK,
) -> None:
    """Serve the wall until the process is interrupted.

    Args:
        file: File of the posts. If it exists, the wall continues with them.
        ready: Called with the addresses when the server is running: of the "page" for everybody,
            of the "wall", and of the wall for the "teacher".
        token: Token of the class; "" for a new one.
        port: Port to listen on; 0 for a free port.
        address: Address to listen on, for this machine only or for its network.

    Raises:
        CourseError: If the server cannot start with these arguments.
        OSError: If the file cannot be read.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    token, teacher, addresses = token or new_token(8), new_token(12), dict[str, Any]()

    def start(port: int) -> None:
        at = f"http://{address}:{port}"
        addresses.update(page=f"{at}/?token={token}", wall=f"{at}/wall?token={token}")
        ready(addresses | {"teacher": f"{at}/wall?token={teacher}"})
        rows = segno.make(addresses["page"], micro=False).matrix
        addresses["code"] = ["".join(map(str, row)) for row in rows]

    with suppress(KeyboardInterrupt):
        serve_with_token(
            [
                ("/", _Page, {"page": "class"}),
                ("/wall", _Page, {"page": "wall"}),
                (r"/wall\.json", _State),
                ("/posts", _Posts),
                (r"(?s).*", _Nothing),
            ],
            token=token,
            teacher=teacher,
            ready=start,
            port=port,
            address=address,
            patience_s=_PATIENCE_S,
            room=Room(file, *read_course()),
            addresses=addresses,
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
