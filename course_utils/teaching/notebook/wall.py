"""The learner's side of a class's wall: join it, and send guesses, values and check results.

    cu.ready("02", wall="10.0.0.7:8765/?token=kqmz4h7p")  # join, for all notebooks of this user
    cu.ready("02", wall="")  # leave

A daemon thread sends the posts, so a notebook never waits for the wall.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from contextlib import closing, suppress
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import ipywidgets as widgets
from IPython.display import display

from course_utils.errors import CourseError
from course_utils.paths import course_home
from keepfed.files import replace_file

_LEFT = "off"
_LEGIBLE = "abcdefghjkmnpqrstuvwxyz23456789"
_PATIENCE_S = 1
_LONGEST_ANSWER = 1000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1, 300  # between tries; each pause is twice the one before
_AGAIN = (0, 429, 500, 502, 503, 504, 507)  # HTTP status of a post to repeat, 0 without answer
_ACCEPTED = (None, 200, 204)  # None before the first answer


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


def request(wall: Wall, kind: str, about: str, value: Any, patience_s: float) -> tuple[int, str]:
    """Send a post, and return the HTTP status, or 0, and the answer.

    Raises:
        ValueError: If a number of the post is not finite.
    """
    post = {"seat": wall.seat, "kind": kind, "about": about, "value": value}
    body = json.dumps(post, allow_nan=False).encode()
    headers = {"Authorization": f"Bearer {wall.token}", "Content-Type": "application/json"}
    to = urlsplit(wall.address)
    # This class uses no proxy, which could not reach a machine in the same room, and no redirect.
    connect_to = HTTPSConnection if to.scheme == "https" else HTTPConnection
    try:
        with closing(connect_to(to.netloc, timeout=patience_s)) as connection:
            connection.request("POST", f"{to.path}/posts", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_LONGEST_ANSWER).decode("utf-8", "replace").strip()
    except (OSError, HTTPException):
        return 0, ""


class Sender:
    """Queue of posts, and the thread that sends them. A newer post replaces an older one."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.status: int | None = None  # the answer to the last try
        self.posts: dict[tuple[str, str], Any] = {}  # (kind, about) -> value
        self._lock, self._filled = threading.Lock(), threading.Event()
        threading.Thread(target=self._run, name="wall", daemon=True).start()

    def put(self, kind: str, about: str, value: Any) -> None:
        """Queue a post, and try to send at once, even during a pause after failed tries."""
        with self._lock:
            self.posts[kind, about] = value
        self._filled.set()

    def _run(self) -> None:
        pause_s: float | None = None  # until there is a post
        while True:
            self._filled.wait(pause_s)
            self._filled.clear()
            if self._send_all():
                pause_s = None
            else:
                pause_s = min(2 * pause_s if pause_s else _FIRST_PAUSE_S, _LONGEST_PAUSE_S)

    def _send_all(self) -> bool:
        """Send the posts, oldest first, and return False if one must be sent again."""
        with self._lock:
            posts = [*self.posts.items()]
        for (kind, about), value in posts:
            with suppress(Exception):  # an error loses this post, but must not end the thread
                if wall := joined():  # the learner may have left
                    self.status = request(wall, kind, about, value, _PATIENCE_S)[0]
                    if self.status in _AGAIN:
                        return False
            with self._lock:
                if self.posts.get((kind, about)) is value:
                    del self.posts[kind, about]
        return True


_sender: Sender | None = None  # created by `cu.ready`, so never in a worker


def connect(notebook: str, address: str | None = None) -> None:
    """Join or leave, if there is an address, and send the number of the started notebook.

    Raises:
        CourseError: If the address is not valid.
    """
    global _sender
    if address is not None:
        join(address)
        if not address.strip():
            print("You have left the wall. Your notebooks send nothing.")
    if wall := joined():
        _sender = _sender or Sender()
        _button().value = False  # the wall does the same
        if address is not None:  # report now whether it answers
            _sender.status = request(wall, "at", "", notebook, _PATIENCE_S)[0]
        else:
            _sender.put("at", "", notebook)


def send(kind: str, about: str, value: Any) -> None:
    """Queue a post, and return at once. Does nothing without a wall, and in a forked process."""
    if _sender is not None and _sender.pid == os.getpid() and joined():
        _sender.put(kind, about, value)


def send_verdict(result: Any) -> None:
    """Send the verdict of an exercise that a cell has shown, without the learner's values.

    Args:
        result: Result of the cell, from IPython.
    """
    if summary := getattr(result.result, "summary_for_class", None):
        send("verdict", result.result.exercise, summary)


def announce() -> None:
    """Print what the wall receives, and show the button "I am stuck"."""
    wall = joined()
    if _sender is None or wall is None:
        return
    if _sender.status in (401, 403):
        print(
            "The wall does not accept your token. Your notebook works without it. To join, copy "
            "its address again."
        )
    elif _sender.status not in _ACCEPTED:
        print("The wall does not answer. Your notebook works without it.")
    else:
        print(
            f"Joined {wall.address} as seat {wall.seat}. To leave it, run `cu.ready(..., wall='')`."
            "\nThis wall receives your guesses, measured values and check results, the notebook's "
            "number, and the button below. It receives nothing else."
        )
    display(_button())  # type: ignore[no-untyped-call]


@cache
def _button() -> widgets.ToggleButton:
    button = widgets.ToggleButton(description="I am stuck", icon="hand-paper-o")

    def toggle(change: dict[str, Any]) -> None:
        button.description = "I can continue" if change["new"] else "I am stuck"
        send("hand", "", change["new"])

    button.observe(toggle, "value")
    return button
