"""Join or leave the wall of a class: `course join`. A file of this user stores the choice."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from course_utils.errors import CourseError
from course_utils.paths import course_home
from keepfed.files import replace_file

_LEFT = "off"
_LEGIBLE = "abcdefghjkmnpqrstuvwxyz23456789"
_COPY = "Copy the line from the board again: `course join ADDRESS TOKEN`."


class Wall(NamedTuple):
    """Address and token of a wall, and the random name of this learner there."""

    address: str  # in the file: "off" after leaving, "" without a choice
    token: str
    seat: str


def join(address: str, token: str = "") -> Wall:
    """Join a wall, and store it for all notebooks of this user.

    Raises:
        CourseError: If the address or the token is not valid.
    """
    return _store(parse_address(address, token))


def leave() -> None:
    """Leave the wall. Afterwards no notebook of this user sends anything."""
    _store(_stored()._replace(address=_LEFT, token=""))


def joined() -> Wall | None:
    """Return the wall of `course join`, otherwise the wall in $COURSE_WALL, otherwise None.

    Raises:
        CourseError: If $COURSE_WALL is not valid.
    """
    wall = _stored()
    if not wall.address and (given := os.environ.get("COURSE_WALL")):
        if not _path().exists():
            with suppress(OSError):  # in a read-only home, each kernel has its own seat
                _store(wall)
        return parse_address(given)
    return wall if wall.address not in ("", _LEFT) else None


def parse_address(address: str, token: str = "") -> Wall:
    """Return the wall at an address, which may contain the token, for this user's seat.

    Raises:
        CourseError: If the address or the token is not valid.
    """
    given = address.strip()
    with suppress(ValueError):  # such as a bracket that is not closed
        parts = urlsplit(given if "://" in given else f"http://{given}")
        if parts.scheme in ("http", "https") and parts.hostname:
            token = token.strip() or parse_qs(parts.query).get("token", [""])[0]
            if not token or not token.isascii() or not token.isprintable():
                raise CourseError(f"The token of the wall is missing or not valid. {_COPY}")
            path = parts.path.removesuffix("/board").removesuffix("/guess").rstrip("/")
            place = f"{parts.scheme}://{parts.netloc}{path}"
            return _stored()._replace(address=place, token=token)
    raise CourseError(f"{given!r} is not the address of a wall. {_COPY}")


def _stored() -> Wall:
    with suppress(OSError, ValueError, TypeError):
        return Wall(**json.loads(_path().read_text("utf-8")))
    return Wall("", "", _new_seat())


_new_seat = cache(lambda: new_token(6))


def new_token(length: int) -> str:
    """Return random letters and digits that are easy to copy from a blackboard."""
    return "".join(secrets.choice(_LEGIBLE) for _ in range(length))


def _store(wall: Wall) -> Wall:
    _path().parent.mkdir(parents=True, exist_ok=True)
    replace_file(_path(), json.dumps(wall._asdict()), mode=0o600)  # it contains the token
    return wall


def _path() -> Path:
    return course_home() / "wall.json"
