"""`course wall` in a subprocess, with real sockets: what it takes, shows and keeps."""

import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.stories.wall.helpers import RunningWall, running_wall, seat

ON_NETWORK = "127.0.0.2"  # represents a network address of this machine


@pytest.fixture(scope="module")
def wall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWall]:
    with running_wall(tmp_path_factory.mktemp("class"), "--lan", ON_NETWORK) as wall:
        yield wall


def test_class_of_sixty_guesses_at_once_and_the_teacher_uncovers_the_measured_value(
    wall: RunningWall,
) -> None:
    first = wall.shown()
    assert (first["guessed"], first["seats"], first["text"][-1]) == (0, 0, "?")
    with ThreadPoolExecutor(60) as pool:
        posts = [pool.submit(wall.post, "guess", "02a", n, seat(n)) for n in range(60)]
        assert {one.result() for one in posts} == {204}
    assert wall.post("guess", "02b", 2, seat(0)) == 204
    assert wall.post("measured", "02a", 24, "teacher", wall.teacher_token) == 204
    assert wall.post("measured", "02a", 17, seat(1)) == 204
    shown = wall.shown()
    assert (shown["key"], shown["guessed"], shown["seats"]) == ("02a", 60, 60)
    assert (len(shown["dots"]), shown["marks"], shown["page"]) == (60, [], wall.page)
    assert wall.choose("02a", uncover=True) == 204
    shown = wall.shown()
    assert (shown["marks"], shown["sentence"][-17:]) == ([0.17, 0.24], "Measured: 20.5 %.")
    assert wall.choose("02b") == 204
    assert (wall.shown()["key"], wall.shown()["guessed"]) == ("02b", 1)
    assert wall.choose("") == 204
    assert wall.post("guess", "02a", 30, seat(2)) == 204  # the last guess of a seat counts
    assert wall.shown()["guessed"] == 60


def test_posts_survive_a_kill(tmp_path: Path) -> None:
    with running_wall(tmp_path) as wall:
        wall.post("guess", "02b", 3)
        wall.process.kill()
    with (tmp_path / "work" / "wall.jsonl").open("a") as lines:
        lines.write('{"seat": "a')  # not completely written
    with running_wall(tmp_path) as wall:
        assert (wall.shown()["key"], wall.shown()["guessed"]) == ("02b", 1)
        assert "questions" not in wall.shown()
        assert len(wall.shown(wall.teacher_token)["questions"]) > 80
        wall.process.send_signal(signal.SIGINT)
        rest, error = wall.process.communicate(timeout=20)
        assert (wall.process.returncode, error) == (0, "")
        assert "continues with its posts" in rest


def test_wall_is_reachable_from_network_only_with_lan(tmp_path: Path, wall: RunningWall) -> None:
    assert urlsplit(wall.page).hostname == ON_NETWORK
    with running_wall(tmp_path) as here, pytest.raises(OSError, match="refused"):
        socket.create_connection((ON_NETWORK, urlsplit(here.page).port or 0), 5)
