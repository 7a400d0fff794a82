"""Posts of a notebook to the wall, from `cu.ready`, `cu.predict`, `cu.reveal` and `cu.check`."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from typing import Any

import ipywidgets as widgets
from IPython.display import display

from course_utils.errors import CourseError
from course_utils.teaching.wall.membership import Wall, joined
from course_utils.teaching.wall.sender import WRONG_TOKEN, Sender

_sender: Sender | None = None  # created by `cu.ready`, so never in a worker


def connect(notebook: str) -> None:
    """Send the number of the notebook that this kernel has started, if a wall was joined."""
    global _sender
    if _wall() is None:
        return
    if _sender is None:
        _sender = Sender()
        send("hand", "", up=False)  # the button of an earlier kernel is gone
    _sender.wake()
    send("at", "", notebook=notebook)


def send(kind: str, about: str, **fields: Any) -> None:
    """Queue a post, and return at once. Does nothing without a wall, and in a forked process."""
    if _sender is not None and _sender.pid == os.getpid():
        _sender.put(kind, about, fields)


def announce() -> None:
    """Print what the wall receives, and show the button "I am stuck"."""
    wall = _wall()
    if _sender is None or wall is None:
        return
    if _sender.status in WRONG_TOKEN:
        print(
            "The wall does not accept your token. Your notebook works without it. To join, copy "
            "the line from the board again: `course join ADDRESS TOKEN`."
        )
    elif _sender.status not in (None, 204):
        print("The wall does not answer. Your notebook works without it.")
    else:
        print(
            f"Joined {wall.address} as seat {wall.seat}. To leave it, run `course join --off`.\n"
            "This wall receives your guesses, measured values and check results, the notebook's "
            "number, and the button below. It receives nothing else."
        )
    display(_button())  # type: ignore[no-untyped-call]


def _wall() -> Wall | None:
    with suppress(CourseError, OSError):  # `course join` reports the error
        return joined()
    return None


@cache
def _button() -> widgets.ToggleButton:
    button = widgets.ToggleButton(description="I am stuck", icon="hand-paper-o")

    def toggle(change: dict[str, Any]) -> None:
        button.description = "I can continue" if change["new"] else "I am stuck"
        send("hand", "", up=change["new"])

    button.observe(toggle, "value")
    return button
