"""A running `course wall`, and requests to it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from course_utils.stories.capstone import Result
from tests.requests import ask

TOKEN = "of-the-class"
GOOD = Result(
    seed=0, points=85, refused="", au=0.91, start_up_s=0.4, held=100, events=2000, samples=4000,
    distinct=4000, lost=0, when="2026-11-22T18:40:00",
)  # fmt: skip
# background processes of a script ignore interrupts, and so do their child processes
WITH_INTERRUPTS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from course_utils.command.cli import main
sys.exit(main())
"""


class RunningWall(NamedTuple):
    process: subprocess.Popen[str]
    page: str
    teacher: str

    def ask(
        self, path: str, body: bytes | None = None, *, token: str = TOKEN
    ) -> tuple[int, dict[str, str], str]:
        """Send a request, and return status, headers and body of the answer."""
        method = "GET" if body is None else "POST"
        status, headers, text = ask(self.page, path, method=method, token=token, body=body or b"")
        return status, headers, text.decode()

    def post(
        self, kind: str, about: str, value: Any, seat: str = "aaaa", token: str = TOKEN
    ) -> int:
        post = {"seat": seat, "kind": kind, "about": about, "value": value}
        return self.ask("/posts", json.dumps(post).encode(), token=token)[0]

    def shown(self, token: str = TOKEN) -> dict[str, Any]:
        """Return what the wall shows, or what the teacher sees."""
        return dict(json.loads(self.ask("/wall.json", token=token)[2]))

    @property
    def teacher_token(self) -> str:
        return self.teacher.partition("token=")[2]

    def choose(self, key: str, *, uncover: bool = False) -> int:
        """Choose as the teacher what the wall shows, and return the status."""
        body = json.dumps({"key": key, "uncover": uncover}).encode()
        return self.ask("/wall.json", body, token=self.teacher_token)[0]


def seat(number: int) -> str:
    return "".join("abcdefghjk"[int(digit)] for digit in f"{number:04}")


@contextmanager
def running_wall(home: Path, *options: str, token: str = TOKEN) -> Iterator[RunningWall]:
    """Run `course wall` with a home folder, and yield it with its addresses."""
    command = [sys.executable, "-c", WITH_INTERRUPTS, "wall", "--port", "0", *options]
    env = os.environ | {"COURSE_TOKEN": token, "COURSE_HOME": str(home), "COLUMNS": "200"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=env, **pipes) as server:
        try:
            said = ""
            while "Press Ctrl-C to stop.\n" not in said:
                line = server.stdout.readline()
                assert line, server.stderr and server.stderr.read()
                said += line
            yield RunningWall(server, *re.findall(r"http://\S+", said))
        finally:
            server.kill()
