"""`course wall` in a subprocess, with real sockets: what it takes, shows and keeps."""

import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from course_utils.stories.capstone import Result, post
from course_utils.stories.wall.server import PostLimits
from tests.stories.wall.helpers import GOOD, RunningWall, running_wall, seat

ON_NETWORK = "127.0.0.2"  # represents a network address of this machine


@pytest.fixture(scope="module")
def wall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWall]:
    with running_wall(tmp_path_factory.mktemp("class"), "--lan", ON_NETWORK) as wall:
        yield wall


def test_sixty_guess_at_once_and_the_teacher_uncovers_the_measured_value(wall: RunningWall) -> None:
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


def test_pace_is_for_all_and_mistakes_and_hands_are_for_the_teacher(tmp_path: Path) -> None:
    with running_wall(tmp_path) as wall:
        for number in range(3):
            wall.post("at", "", "01", seat(number))
            slip = {"status": "wrong" if number else "right", "slip": "No mask" * bool(number)}
            wall.post("verdict", "01.1", slip, seat(number))
            wall.post("hand", "", True, seat(number))
        wall.post("at", "", "02", seat(0))  # a new kernel, whose button is not pressed
        wall.post("hand", "", False, seat(1))
        shown, trouble = wall.shown(), wall.shown(wall.teacher_token)
    assert [row[::2] for row in shown["notebooks"] if row[2]] == [["01", 2], ["02", 1]]
    assert shown["passed"] == [["01.1", 1]]
    assert not {"hands", "checks", "questions"} & shown.keys()
    assert trouble["checks"] == [["01.1", [1, 2, 0], [["No mask", 2]]]]
    assert trouble["hands"] == [[seat(2), "01"]]
    assert len(trouble["questions"]) > 80


def test_best_result_of_each_seat_has_its_place_and_survives_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def post_as(number: int, result: Result, name: str = "") -> str:
        monkeypatch.setenv("COURSE_HOME", str(tmp_path / str(number)))
        return post(name or f"Learner {number}", result, wall.page)

    with running_wall(tmp_path) as wall:
        (tmp_path / "0").mkdir()
        monkeypatch.setattr("course_utils.teaching.notebook.wall._new_seat", lambda: next(seats))
        seats = map(seat, range(10))
        assert post_as(0, GOOD, "李政道") == "李政道: 85 points, place 1 of 1."
        for number, better in enumerate(({"points": 90}, {"au": 0.95}, {"start_up_s": 0.1}), 1):
            said = post_as(number, replace(GOOD, **better))
            assert said.endswith("place 1 of 2.") == (number == 1)
        assert post_as(4, replace(GOOD, seed=7)) == "Learner 4: 85 points, place 1 of 1."
        first, second, *_ = (result["name"] for result in wall.shown()["results"])
        assert (first, second) == ("Learner 1", "Learner 2")
        wall.process.kill()
    file = tmp_path / "work" / "wall.jsonl"
    with file.open("a") as lines:
        lines.write('{"seat": "a')  # not completely written
    with running_wall(tmp_path) as wall:
        assert len(wall.shown()["results"]) == 5
        wall.process.send_signal(signal.SIGINT)
        rest, error = wall.process.communicate(timeout=20)
        assert (wall.process.returncode, error) == (0, "")
        assert "continues with its posts" in rest


def test_post_without_address_result_or_answer_reports_error() -> None:
    assert post("A", GOOD, " ").startswith("Not posted. The address of the wall is empty")
    said = post("A", None, "http://x/?token=a")
    assert said.startswith("Not posted. You have no accepted result yet")
    assert "is not the address of a wall" in post("A", GOOD, "file:///etc/passwd?token=a")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = post("A", GOOD, f"http://127.0.0.1:{port}/?token=a")
    assert said.startswith(f"Not posted. There is no answer from 127.0.0.1:{port}")


def test_rescued_requires_accepted_result_and_target_au() -> None:
    assert replace(GOOD, au=0.846).rescued  # printed as 85 %
    assert not replace(GOOD, au=0.844).rescued
    assert not replace(GOOD, refused="Each event came twice.").rescued


def test_posts_of_one_client_are_limited_in_each_span() -> None:
    now = [0.0]
    limits = PostLimits(lambda: now[0])
    assert [limits.exceeded("a", 3) for _ in range(5)] == [False] * 3 + [True] * 2
    assert not limits.exceeded("b", 3)
    now[0] = 11
    assert not limits.exceeded("a", 3)


def test_wall_is_reachable_from_network_only_with_lan(tmp_path: Path, wall: RunningWall) -> None:
    assert urlsplit(wall.page).hostname == ON_NETWORK
    with running_wall(tmp_path) as here, pytest.raises(OSError, match="refused"):
        socket.create_connection((ON_NETWORK, urlsplit(here.page).port or 0), 5)
