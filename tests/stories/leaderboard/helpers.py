"""A leaderboard in a subprocess, a valid result, and the fields of its post."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from course_stories.leaderboard import Result

TOKEN = "of-the-class"
# background processes of a script ignore interrupts, and so do their child processes
WITH_INTERRUPTS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from course_utils.command.cli import main
sys.exit(main())
"""

GOOD = Result(
    seed=0,
    points=85,
    refused="",
    au=0.91,
    start_up_s=0.4,
    held=100,
    events=2000,
    samples=4000,
    distinct=4000,
    lost=0,
    when="2026-11-22T18:40:00",
)


def post_fields(name: Any = "Marie", **changed: Any) -> dict[str, Any]:
    return {**GOOD.to_json(), "name": name, **changed}


@contextmanager
def running_board(path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `course leaderboard`, and yield the process and the address of the board."""
    command = [sys.executable, "-c", WITH_INTERRUPTS, "leaderboard", "--file", str(path)]
    server = subprocess.Popen(
        [*command, "--port", "0", *options],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "COURSE_TOKEN": TOKEN},
    )
    with server:
        try:
            assert server.stdout is not None
            said = list(iter(server.stdout.readline, "Press Ctrl-C to stop.\n"))
            yield server, said[0].split()[-1]
        finally:
            server.kill()
