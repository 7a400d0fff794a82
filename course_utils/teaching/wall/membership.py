"""Join the wall of a class, or leave it: `course join`. The choice is in a file of this user."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from course_utils.errors import CourseError
from course_utils.paths import course_home

_LEGIBLE = "abcdefghjkmnpqrstuvwxyz23456789"
_COPY = "Copy the line from the board again: `course join ADDRESS TOKEN`."


class Wall(NamedTuple):
    """Address and token of a wall, and the random name of this learner there."""

    address: str
    token: str
    seat: str


def join(address: str, token: str = "") -> Wall:
    """Join a wall, and store it for all notebooks of this user.

    Raises:
        CourseError: If the address or the token is not valid.
    """
    wall = _parse(address, token)
    _write(wall._asdict())
    return wall


def leave() -> None:
    """Leave the wall. Afterwards no notebook of this user sends anything."""
    _write({"seat": _seat(), "address": "", "token": ""})


def joined() -> Wall | None:
    """Return the wall of `course join`, otherwise the wall in $COURSE_WALL, otherwise None.

    Raises:
        CourseError: If $COURSE_WALL is not valid.
    """
    stored = _read()
    if "address" in stored:
        return Wall(**stored) if stored["address"] else None
    if not (given := os.environ.get("COURSE_WALL")):
        return None
    wall = _parse(given)
    if not stored:
        with suppress(OSError):  # a read-only home: the seat then lasts as long as this process
            _write({"seat": wall.seat})
    return wall


def _parse(address: str, token: str = "") -> Wall:
    given = address.strip()
    parts = urlsplit(given if "://" in given else f"http://{given}")
    token = token.strip() or parse_qs(parts.query).get("token", [""])[0]
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CourseError(f"{given!r} is not the address of a wall. {_COPY}")
    if not token.isascii() or not token.isprintable() or not token:
        raise CourseError(f"The token of the wall is missing or not valid. {_COPY}")
    return Wall(f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}", token, _seat())


def _seat() -> str:
    return _read().get("seat") or "".join(map(secrets.choice, [_LEGIBLE] * 6))


def _path() -> Path:
    return course_home() / "wall.json"


def _read() -> dict[str, Any]:
    with suppress(OSError, ValueError):
        stored = json.loads(_path().read_text("utf-8"))
        if isinstance(stored, dict) and {*stored} in ({"seat"}, {*Wall._fields}):
            return stored
    return {}


def _write(stored: dict[str, Any]) -> None:
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    path.chmod(0o600)  # the token is for this user only
    path.write_text(json.dumps(stored), "utf-8")
