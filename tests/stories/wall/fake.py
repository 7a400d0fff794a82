"""A wall for tests that answers as it is told to, in a thread."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any


class FakeWall(ThreadingHTTPServer):
    """Answers each post with `status`, after `answer_now` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posts: Queue[dict[str, Any]] = Queue()
        self.status = 204
        self.answer_now = threading.Event()
        self.answer_now.set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def get(self) -> tuple[str, str, Any]:
        """Return kind, subject and value of the next post."""
        post = self.posts.get(timeout=30)
        return post["kind"], post["about"], post["value"]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        wall: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        wall.posts.put({**json.loads(body), "header": self.headers["Authorization"]})
        wall.answer_now.wait(30)
        self.send_response(wall.status)
        self.send_header("Location", f"{wall.address}/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def running_fake() -> Iterator[FakeWall]:
    with FakeWall() as wall:
        threading.Thread(target=wall.serve_forever, args=(0.01,), daemon=True).start()
        yield wall
        wall.answer_now.set()
        wall.shutdown()


def until(holds: Callable[[], object]) -> None:
    """Wait until `holds()`, at most 30 seconds."""
    pause = threading.Event()
    for _ in range(3000):
        if holds():
            return
        pause.wait(0.01)
    raise TimeoutError
