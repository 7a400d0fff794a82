"""The learner's side of a class's wall: join it, and send guesses and measured values.

    cu.ready("02", wall="10.0.0.7:8765/?token=kqmz4h7p")  # join, for all notebooks of this user
    cu.ready("02", wall="")  # leave

A daemon thread sends each post, so a notebook never waits for the wall.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from contextlib import closing, suppress
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from course_utils.errors import CourseError
from course_utils.paths import course_home
from keepfed.files import replace_file

_LEFT = "off"
_LEGIBLE = "abcdefghjkmnpqrstuvwxyz23456789"
_PATIENCE_S = 1
_PAUSES_S = (0, 1, 5, 30, 120)  # before each try
_FAILED = (0, 500, 507)  # HTTP status of a post to send again, 0 without answer


class Wall(NamedTuple):
    """Address and token of a wall, and the random name of this learner there."""

    address: str  # in the file: "off" after leaving, "" without a choice
    token: str
    seat: str


def join(address: str) -> None:
    """Join the wall at `address`, or leave if it is empty, for all notebooks of this user.

    Raises:
        CourseError: If the address is not valid, or has no token.
    """
    _store(parse_address(address) if address.strip() else Wall(_LEFT, "", _stored().seat))


def joined() -> Wall | None:
    """Return the wall that this user has joined, otherwise the wall in $COURSE_WALL."""
    wall = _stored()
    if not wall.address and (given := os.environ.get("COURSE_WALL")):
        with suppress(OSError):  # in a read-only home, each kernel has its own seat
            _store(wall)
        with suppress(CourseError):  # the learner cannot change the variable
            return parse_address(given)
    return wall if wall.address not in ("", _LEFT) else None


def parse_address(address: str) -> Wall:
    """Return the wall at an address with its token, for the seat of this user.

    Raises:
        CourseError: If the address is not valid, or has no token.
    """
    given = address.strip()
    with suppress(ValueError):  # such as a bracket that is not closed
        parts = urlsplit(given if "://" in given else f"http://{given}")
        token = parse_qs(parts.query).get("token", [""])[0]
        is_web = parts.scheme in ("http", "https") and parts.hostname
        if is_web and token and token.isascii() and token.isprintable():
            path = parts.path.removesuffix("/wall").rstrip("/")
            return Wall(f"{parts.scheme}://{parts.netloc}{path}", token, _stored().seat)
    raise CourseError(
        f"{given!r} is not the address of a wall. Copy it again, with its token, for example "
        "10.0.0.7:8765/?token=abc."
    )


def new_token(length: int) -> str:
    """Return random letters and digits that are easy to copy from a blackboard."""
    return "".join(secrets.choice(_LEGIBLE) for _ in range(length))


_new_seat = cache(lambda: new_token(6))


def _stored() -> Wall:
    with suppress(OSError, ValueError, TypeError):
        return Wall(**json.loads(_path().read_text("utf-8")))
    return Wall("", "", _new_seat())


def _store(wall: Wall) -> None:
    _path().parent.mkdir(parents=True, exist_ok=True)
    replace_file(_path(), json.dumps(wall._asdict()), mode=0o600)  # it contains the token


def _path() -> Path:
    return course_home() / "wall.json"


def request(wall: Wall, method: str, path: str, body: str = "") -> int:
    """Send a request to a wall, and return the HTTP status, or 0 without an answer."""
    to = urlsplit(wall.address)
    # This class uses no proxy, which could not reach a machine in the same room, and no redirect.
    connect_to = HTTPSConnection if to.scheme == "https" else HTTPConnection
    try:
        with closing(connect_to(to.netloc, timeout=_PATIENCE_S)) as connection:
            headers = {"Authorization": f"Bearer {wall.token}"}
            connection.request(method, f"{to.path}/{path}", body.encode(), headers)
            return connection.getresponse().status
    except (OSError, HTTPException):
        return 0


_owner: int | None = None  # process ID of the notebook after `cu.ready`; workers never post
_newest = dict[tuple[str, str], str]()  # (kind, about) -> post, as it is sent
_turn = threading.Lock()  # for one post at a time, so that an older one cannot overtake


def send(kind: str, about: str, value: Any) -> None:
    """Send a post, and return at once. Does nothing without a wall, and in a forked process."""
    wall = joined() if _owner == os.getpid() else None
    if wall and value == value:  # not NaN
        post = {"seat": wall.seat, "kind": kind, "about": about, "value": value}
        text = _newest[kind, about] = json.dumps(post)
        threading.Thread(target=_deliver, args=(kind, about, text), daemon=True).start()


def _deliver(kind: str, about: str, text: str) -> None:
    """Send a post until the wall takes or rejects it, or there is a newer one."""
    for pause_s in _PAUSES_S:
        time.sleep(pause_s)
        with _turn:
            wall = joined()  # the learner may have left
            if wall is None or _newest[kind, about] is not text:
                return
            if request(wall, "POST", "posts", text) not in _FAILED:
                return


def connect(address: str | None = None) -> None:
    """Join or leave the wall, if there is an address, and print what the wall receives.

    Raises:
        CourseError: If the address is not valid.
    """
    global _owner
    if address is not None:
        join(address)
        if not address.strip():
            print("You have left the wall. Your notebooks send nothing.")
    wall = joined()
    if wall is None:
        return
    _owner = os.getpid()
    status = request(wall, "GET", "wall.json")
    if status in (401, 403):
        print(
            "The wall does not accept your token. Your notebook works without it. To join, copy "
            "its address again."
        )
    elif status != 200:
        print("The wall does not answer. Your notebook works without it.")
    else:
        print(
            f"Joined {wall.address} as seat {wall.seat}. To leave it, run `cu.ready(..., wall='')`."
            "\nThis wall receives your guesses and measured values, and nothing else."
        )
