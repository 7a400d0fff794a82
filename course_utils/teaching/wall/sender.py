"""Send posts to a wall from one daemon thread, so that a notebook never waits for the wall."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from course_utils.teaching.wall.membership import Wall, joined

Post = Mapping[str, Any]  # a callable value is called in the thread

_PATIENCE_S = 1
_LONGEST = 50
_LONGEST_ANSWER = 1000
_PAUSES_S = (1, 4, 16)  # between tries
_SILENCE_S = 300  # after the last try, and after a wrong token
BUSY, WRONG_TOKEN = (0, 429, 500, 502, 503, 504, 507), (401, 403)  # HTTP status, 0 without answer


class Sender:
    """Queue of posts, and the thread that sends them. A newer post replaces an older one."""

    def __init__(
        self,
        send: Callable[[Wall, Post], int] | None = None,
        pause: Callable[[float], object] | None = None,
    ):
        self.pid = os.getpid()
        self.status: int | None = None  # the answer to the last try
        self._send, self._pause = send or deliver, pause or self._wait
        self._posts: dict[tuple[str, str], Post] = {}
        self._filled, self._woken = threading.Condition(), threading.Event()
        threading.Thread(target=self._run, name="wall", daemon=True).start()

    def put(self, kind: str, about: str, post: Post) -> None:
        """Add a post about an exercise or a question. If the queue is full, drop the oldest."""
        with self._filled:
            self._posts[kind, about] = {"kind": kind, **post}
            if len(self._posts) > _LONGEST:
                del self._posts[next(iter(self._posts))]
            self._filled.notify()

    def wake(self) -> None:
        """Try again now, even during the pause after failed tries."""
        self._woken.set()

    def _run(self) -> None:
        while True:
            for pause in (*_PAUSES_S, _SILENCE_S):
                if self._is_settled():
                    break
                self._pause(_SILENCE_S if self.status in WRONG_TOKEN else pause)

    def _is_settled(self) -> bool:
        """Send the oldest post, and return False if it must be sent again."""
        with self._filled:
            self._filled.wait_for(lambda: self._posts)
            about, post = next(iter(self._posts.items()))
        self.status = self._try(post)
        if self.status in (*BUSY, *WRONG_TOKEN):
            return False
        with self._filled:
            if self._posts.get(about) is post:
                del self._posts[about]
        return True

    def _try(self, post: Post) -> int | None:
        with suppress(Exception):  # an error loses this post, but must not end the thread
            if wall := joined():  # the learner may have left
                values = {name: v() if callable(v) else v for name, v in post.items()}
                return self._send(wall, values)
        return None

    def _wait(self, seconds: float) -> None:
        self._woken.wait(seconds)
        self._woken.clear()


def deliver(wall: Wall, post: Post) -> int:
    """Send a post, and return the HTTP status, or 0 without an answer.

    Raises:
        ValueError: If a value of the post is not finite.
    """
    return request(wall, "posts", {"seat": wall.seat, **post}, patience=_PATIENCE_S)[0]


def request(wall: Wall, page: str, fields: Post, *, patience: float) -> tuple[int, str]:
    """Post JSON to a page of a wall, and return the HTTP status, or 0, and the answer."""
    body = json.dumps(fields, allow_nan=False).encode()
    headers = {"Authorization": f"Bearer {wall.token}", "Content-Type": "application/json"}
    to = urlsplit(wall.address)
    # This class uses no proxy, which could not reach a machine in the same room, and no redirect.
    kind = HTTPSConnection if to.scheme == "https" else HTTPConnection
    try:
        with closing(kind(to.netloc, timeout=patience)) as connection:
            connection.request("POST", f"{to.path}/{page}", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_LONGEST_ANSWER).decode("utf-8", "replace").strip()
    except (OSError, HTTPException):
        return 0, ""
