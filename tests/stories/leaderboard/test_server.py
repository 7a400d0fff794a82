"""The leaderboard of `course wall`, in a subprocess with real sockets."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from course_utils.command import cli
from course_utils.stories.leaderboard import post
from course_utils.stories.wall import network_address
from keepfed.errors import KeepfedError
from tests.stories.leaderboard.helpers import GOOD
from tests.stories.wall.helpers import TOKEN, RunningWall, running_wall


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("class")


@pytest.fixture(scope="module")
def path(home: Path) -> Path:
    return home / "work" / "leaderboard.json"


@pytest.fixture(scope="module")
def wall(home: Path) -> Iterator[RunningWall]:
    with running_wall(home) as wall:
        yield wall


def names_on_board(path: Path) -> list[str]:
    return [line["name"] for line in json.loads(path.read_text("utf-8"))["results"]]


def test_sixty_concurrent_posts_are_all_stored(wall: RunningWall, path: Path) -> None:
    url = wall.wall
    first, *others = a_class = [f"Learner {number}" for number in range(61)]
    post(first, GOOD, url)
    with ThreadPoolExecutor(60) as pool:
        posts = [pool.submit(post, name, GOOD, url) for name in others]
        while not all(one.done() for one in posts):
            assert first in names_on_board(path)  # the file is complete at any moment
    assert sorted(names_on_board(path)) == sorted(a_class)
    assert all(f": {GOOD.points} points, place " in one.result() for one in posts)
    assert len(json.loads(wall.ask("/leaderboard.json")[2])["results"]) == 61


def test_answered_posts_survive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "work" / "leaderboard.json"
    answered: list[str] = []
    many = threading.Event()

    def post_on(who: str) -> None:
        for number in count():
            name = f"{who} {number}"
            if "place" not in post(name, GOOD, url):
                return
            answered.append(name)
            if len(answered) >= 40:
                many.set()

    with running_wall(tmp_path) as wall, ThreadPoolExecutor(4) as pool:
        url = wall.wall
        for who in "ABCD":
            pool.submit(post_on, who)
        assert many.wait(30)
        wall.process.kill()
    assert {*names_on_board(path)} >= {*answered}
    with running_wall(tmp_path) as wall:
        assert "points, place" in post("E", GOOD, wall.wall)


def test_damaged_board_is_reported_and_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "work" / "leaderboard.json"
    with running_wall(tmp_path) as wall:
        assert "place 1 of 1" in post("A", GOOD, wall.wall)
        path.write_text("{", "utf-8")
        said = "Not posted. leaderboard.json is not a leaderboard, or it is damaged"
        assert post("B", GOOD, wall.wall).startswith(said)
        assert wall.ask("/leaderboard.json")[0] == 500
        assert path.read_text("utf-8") == "{"


@pytest.mark.skipif(os.name == "nt", reason="Windows has other interrupts")
def test_interrupted_board_resumes_with_its_results(tmp_path: Path) -> None:
    path = tmp_path / "work" / "leaderboard.json"
    for name in ("A", "B"):
        with running_wall(tmp_path) as wall:
            post(name, GOOD, wall.wall)
            wall.process.send_signal(signal.SIGINT)
            rest, error = wall.process.communicate(timeout=20)
            assert (wall.process.returncode, error) == (0, "")
            assert "The leaderboard is kept." in rest
    assert names_on_board(path) == ["A", "B"]


def test_wall_is_reachable_from_network_only_with_lan(tmp_path: Path, wall: RunningWall) -> None:
    other = "127.0.0.2"  # represents a network address of this machine
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((other, urlsplit(wall.wall).port or 0), 5)
    with running_wall(tmp_path, "--lan", other) as lan:
        assert urlsplit(lan.wall).hostname == other
        assert "place 1 of 1" in post("A", GOOD, lan.wall)
        assert lan.ask("/leaderboard.json", token="")[0] == 401
        assert lan.ask("/leaderboard.json", Host="evil.example")[0] == 403


def test_invalid_arguments_stop_wall_with_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COURSE_HOME", str(tmp_path))
    cannot = [
        (["--lan", "203.0.113.9"], TOKEN, "Cannot listen on port 8765 of 203.0.113.9"),
        (["--port", "99999"], TOKEN, "Cannot listen on port 99999"),
        ([], "ä", "A token may contain only letters, digits and ._~+/-. Choose a different token."),
    ]
    for options, token, said in cannot:
        monkeypatch.setenv("COURSE_TOKEN", token)
        assert cli.main(["wall", *options]) == 1
        assert capsys.readouterr().err.startswith(f"course: {said}")
    (tmp_path / "work" / "leaderboard.json").write_text("{", "utf-8")
    assert cli.main(["wall"]) == 1
    assert "leaderboard.json is not a leaderboard, or it is damaged" in capsys.readouterr().err


def test_network_address_without_network_raises_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(self: socket.socket, address: tuple[str, int]) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(KeepfedError, match="not connected to a network"):
        network_address()


NO_ADDRESS = ["10.0.0.7:8765", "http://10.0.0.7:8765/", "file:///etc/passwd?token=a", "http:?token"]


@pytest.mark.parametrize("board", NO_ADDRESS)
def test_post_to_invalid_address_reports_error(board: str) -> None:
    assert post("A", GOOD, board).startswith("Not posted. An address must look like http://")


def test_post_without_board_or_result_reports_error() -> None:
    assert post("A", GOOD, " ").startswith("Not posted. The address of the board is empty")
    assert post("A", None, "http://x/?token=a").startswith("Not posted. You have no result yet")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = post("A", GOOD, f"http://127.0.0.1:{port}/?token=a")
    assert said.startswith(f"Not posted. There is no answer from 127.0.0.1:{port}")
