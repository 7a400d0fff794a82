"""Measure how fast a wall answers 60 guesses within a second, and 500 checks within a minute.

    python -m tests.stories.wall.load [--seconds 60]

Two walls and 60 phones poll at the same time. Each client opens a new connection for each request.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from random import Random

import numpy as np

CLIENTS, CHECKS, WALLS = 60, 500, 2
_LETTERS = "abcdefghjk"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a wall in a process, and print how long its answers take."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of the run")
    seconds = parser.parse_args(arguments).seconds
    with tempfile.TemporaryDirectory() as home:
        code = (
            "from pathlib import Path; from course_stories.wall import serve_wall; serve_wall("
            f"Path({home!r}), ready=lambda a: print(a.join, flush=True))"
        )
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            address, token = server.stdout.readline().split()[2:]
            try:
                times = _load(address, token, seconds)
            finally:
                server.kill()
        lines = (Path(home) / "work" / "wall-0.jsonl").read_text("utf-8").count('"seat"')
    for kind, measured in times.items():
        middle, high, top = np.percentile(measured, (50, 99, 100))
        said = f"median {middle:4.0f} ms  99 % {high:4.0f} ms  max {top:4.0f} ms"
        print(f"{kind:6} {len(measured):5}  {said}")
    print(f"posts in the journal: {lines}")
    return 0


def _load(address: str, token: str, seconds: float) -> dict[str, list[float]]:
    times = defaultdict[str, list[float]](list)
    random, began = Random(0), time.perf_counter()

    def ask(what: str, path: str, /, **fields: object) -> None:
        start = time.perf_counter()
        connection = HTTPConnection(address, timeout=30)
        method, body = ("POST", json.dumps(fields)) if fields else ("GET", None)
        connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        assert answer.status in (200, 204), answer.status
        times[what].append(1000 * (time.perf_counter() - start))

    def at(moment: float, act: Callable[..., None], /, *given: object, **fields: object) -> None:
        time.sleep(max(0, began + moment - time.perf_counter()))
        act(*given, **fields)

    def poll(start: float) -> None:
        time.sleep(start)  # pages do not open at the same moment
        while time.perf_counter() < began + seconds:
            ask("poll", "/wall.json")
            time.sleep(2)

    with ThreadPoolExecutor(2 * CLIENTS + WALLS + 40) as pool:
        jobs = [pool.submit(poll, 2 * random.random()) for _ in range(CLIENTS + WALLS)]
        for number in range(CLIENTS):
            seat = "".join(_LETTERS[int(digit)] for digit in f"{number:04}")
            guess = {"seat": seat, "kind": "guess", "key": "02a", "value": number}
            jobs.append(pool.submit(at, 5 + random.random(), ask, "guess", "/posts", **guess))
        for number in range(round(CHECKS * seconds / 60)):
            seat = "".join(_LETTERS[int(digit)] for digit in f"{number % CLIENTS:04}")
            check = {"seat": seat, "kind": "verdict", "exercise": f"02.{1 + number % 2}"}
            check |= {"status": ("right", "wrong")[number // CLIENTS % 2], "misconception": ""}
            moment = number * 60 / CHECKS
            jobs.append(pool.submit(at, moment, ask, "check", "/posts", **check))
        for job in jobs:
            job.result()
    return times


if __name__ == "__main__":
    sys.exit(main())
