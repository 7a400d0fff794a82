"""`course wall` in a subprocess, with real sockets: what it shows, and the desk."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.stories.wall.helpers import TOKEN, RunningWall, running_wall

GUESS = {"kind": "guess", "key": "02a"}
LETTERS = "abcdefghjk"


def seat(number: int) -> str:
    return "".join(LETTERS[int(digit)] for digit in f"{number:04}")


@pytest.fixture(scope="module")
def wall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWall]:
    with running_wall(tmp_path_factory.mktemp("class")) as wall:
        yield wall


def test_sixty_concurrent_guesses_arrive(wall: RunningWall) -> None:
    with ThreadPoolExecutor(60) as pool:
        posts = [pool.submit(wall.post, seat=seat(n), **GUESS, value=n) for n in range(60)]
        assert {one.result() for one in posts} == {204}
    shown = wall.picture()
    assert (shown["key"], shown["guessed"], shown["seats"]) == ("02a", 60, 60)
    assert len(shown["dots"]) == 60
    assert shown["join"].endswith(TOKEN)


def test_measured_values_are_sent_only_when_uncovered(wall: RunningWall) -> None:
    assert wall.post(seat="aaaa", kind="measured", key="02c", value=1.2) == 204
    assert wall.post(seat="aaaa", kind="guess", key="02c", value=50) == 204
    covered = wall.picture("?key=02c")
    assert (covered["marks"], covered["measured"], covered["median"]) == ([], 1, None)
    assert wall.picture("?key=02c&uncover=1")["marks"] == [0.012]
    assert wall.steer(key="02c", uncover=True) == 204
    assert wall.picture()["marks"] == [0.012]
    assert wall.steer(key="02c") == 204
    assert wall.picture()["marks"] == []
    assert wall.steer(key="") == 204


def test_phones_alone_have_the_first_question_and_the_desk_measures_for_them(
    tmp_path: Path,
) -> None:
    with running_wall(tmp_path) as wall:
        shown = wall.picture()
        first, after = shown["keys"]
        assert (shown["key"], shown["guessed"], shown["seats"]) == (first, 0, 0)
        assert (shown["text"][-1], wall.picture(f"?key={after}")["keys"][0]) == ("?", after)
        for number in (17, 19):
            wall.post(seat=seat(number), **GUESS, value=number)
        fields = {"seat": "desk", "kind": "measured", "key": "02a", "value": 24}
        body = json.dumps(fields).encode()
        assert wall.ask("/posts", body, token=wall.desk_token)[0] == 204
        shown = wall.picture("?uncover=1")
        assert (shown["key"], shown["seats"], shown["marks"]) == ("02a", 2, [0.24])
        assert shown["sentence"] == "Measured: 24 %."


def test_unchanged_picture_is_not_sent_again(wall: RunningWall) -> None:
    _, headers, _ = wall.ask("/wall.json")
    status, _, body = wall.ask("/wall.json", **{"If-None-Match": headers["Etag"]})
    assert (status, body) == (304, "")
