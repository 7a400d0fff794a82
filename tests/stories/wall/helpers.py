"""A wall in a subprocess, requests to it, and a small course."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from course_utils.stories.wall.questions import Course, Question
from tests.requests import ask

TOKEN = "of-the-class"
# background processes of a script ignore interrupts, and so do their child processes
WITH_INTERRUPTS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from course_utils.command.cli import main
sys.exit(main())
"""
COURSE = Course(
    questions={
        "01a": Question("01a", "How busy is the GPU?", "%"),
        "01b": Question("01b", "How many times longer?", "times"),
        "02a": Question("02a", "What happens?", choices=("it waits", "an error")),
        "fast-1": Question("fast-1", "How many reads?", "reads"),
    },
    notebooks={"01": "Build", "02": "See"},
    exercises=frozenset({"01.1", "02.1"}),
    mistakes={"nb01/ex1_pad:41": "The batch has no mask."},
)


class RunningWall(NamedTuple):
    process: subprocess.Popen[str]
    wall: str
    desk: str
    phone: str
    said: str

    def ask(
        self,
        path: str,
        body: bytes | None = None,
        *,
        method: str = "",
        token: str = TOKEN,
        **more: str,
    ) -> tuple[int, dict[str, str], str]:
        """Send a request, and return status, headers and body of the answer."""
        method = method or ("GET" if body is None else "POST")
        got = ask(self.wall, path, method=method, token=token, body=body or b"", **more)
        return got[0], got[1], got[2].decode()

    def post(self, **fields: Any) -> int:
        """Send a post, and return the status."""
        return self.ask("/posts", json.dumps(fields).encode())[0]

    def picture(self, query: str = "") -> dict[str, Any]:
        """Return what the wall shows."""
        return dict(json.loads(self.ask(f"/wall.json{query}")[2]))

    @property
    def desk_token(self) -> str:
        return self.desk.partition("token=")[2]

    def steer(self, token: str = "", **fields: Any) -> int:
        """Choose at the desk what the wall shows, and return the status."""
        body = json.dumps(fields).encode()
        return self.ask("/desk.json", body, token=token or self.desk_token)[0]

    def trouble(self) -> dict[str, Any]:
        """Return what the desk shows."""
        return dict(json.loads(self.ask("/desk.json", token=self.desk_token)[2]))


@contextmanager
def running_wall(home: Path, *options: str, token: str = TOKEN) -> Iterator[RunningWall]:
    """Run `course wall` with a home folder, and yield it with its addresses."""
    server = subprocess.Popen(
        [sys.executable, "-c", WITH_INTERRUPTS, "wall", "--port", "0", *options],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "COURSE_TOKEN": token, "COURSE_HOME": str(home)},
    )
    with server:
        try:
            assert server.stdout is not None
            said = "".join(iter(server.stdout.readline, "Press Ctrl-C to stop.\n"))
            yield RunningWall(server, *re.findall(r"http://\S+", said), said)
        finally:
            server.kill()
