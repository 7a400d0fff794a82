"""`course wall` in a subprocess, with real sockets: attacks, crashes, the desk and the end."""

import csv
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from itertools import count
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from course_stories.wall.journal import Journal, read_journal
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


def test_only_the_desk_steers_and_sees_trouble(wall: RunningWall) -> None:
    place = "nb01/ex1_pad_events:1"
    wall.post(seat="aaaa", kind="verdict", exercise="01.1", status="wrong", misconception=place)
    assert wall.steer(TOKEN, key="02a") == 401
    assert wall.ask("/desk.json")[0] == wall.ask("/desk")[0] == 401
    assert [row["exercise"] for row in wall.trouble()["exercises"]] == ["01.1"]
    assert wall.steer(key="99z") == wall.steer(key=None) == 400
    assert wall.ask("/", token=wall.desk_token)[0] == 200


def test_pages_allow_only_their_scripts_and_contain_no_token(wall: RunningWall) -> None:
    for path in ("/", "/desk", "/guess"):
        status, headers, page = wall.ask(path, token=wall.desk_token)
        policy = headers["Content-Security-Policy"]
        nonce = policy.partition("script-src 'nonce-")[2].partition("'")[0]
        assert (status, page.count(f'nonce="{nonce}"')) == (200, 2)
        assert "unsafe" not in policy
        assert "/* shared" not in page
        for word in ("innerHTML", "NONCE", TOKEN, wall.desk_token, "LIGHT;"):
            assert word not in page


def test_unchanged_picture_is_not_sent_again(wall: RunningWall) -> None:
    _, headers, _ = wall.ask("/wall.json")
    status, _, body = wall.ask("/wall.json", **{"If-None-Match": headers["Etag"]})
    assert (status, body) == (304, "")


RUBBISH = [
    (b"", 400),
    (b"\xff\xfe\x00", 400),
    (b"[" * 900, 400),
    (b'{"seat": ' * 100, 400),
    (b"[]", 400),
    (b"1" * 900, 400),
    (b" " * 1001, 413),
    (b'{"seat": "aaaa", "kind": "guess", "key": "02a", "value": NaN}', 400),
    (b'{"seat": "aaaa", "kind": "guess", "key": "02a", "value": 1e999}', 400),
    (b'{"seat": "aaaa", "kind": "guess", "key": "02f", "value": "\\ud800"}', 400),
    (b'{"seat": "aaaa", "kind": "guess", "key": "02f", "value": "<script>"}', 400),
    (b'{"seat": "\xd0\xb0\xd0\xb0aa", "kind": "hand", "up": true}', 400),
    (b'{"seat": "aaaa", "kind": "hand", "up": true, "name": "<img src=x>"}', 204),
]


@pytest.mark.parametrize(("body", "status"), RUBBISH, ids=range(len(RUBBISH)))
def test_rubbish_gets_one_sentence(wall: RunningWall, body: bytes, status: int) -> None:
    got, headers, said = wall.ask("/posts", body)
    assert got == status
    if status == 204:
        assert (said, headers.get("Content-Length")) == ("", None)
        return
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert said.endswith(".\n")
    assert said.count("\n") == 1
    assert "<" not in said


def test_requests_without_valid_token_are_rejected(wall: RunningWall) -> None:
    body = json.dumps({"seat": "zzzz", **GUESS, "value": 1}).encode()
    for token in ("", "wrong", "ä"):
        assert wall.ask("/posts", body, token=token.encode().decode("latin-1"))[0] == 401
        assert wall.ask("/wall.json", token=token.encode().decode("latin-1"))[0] == 401
    assert wall.ask("/posts", body, Host="evil.example")[0] == 403
    assert wall.ask("/posts", method="GET")[0] == 405


@pytest.mark.slow
def test_flood_of_one_client_stops_nobody_else(tmp_path: Path) -> None:
    with running_wall(tmp_path) as wall, ThreadPoolExecutor(8) as pool:

        def flood(number: int) -> int:
            body = {"seat": seat(number % 5000), **GUESS, "value": number % 100}
            return wall.ask("/posts", json.dumps(body).encode())[0]

        statuses = list(pool.map(flood, range(1000)))
        assert {*statuses} == {204, 429}
        shown = wall.picture()
        assert shown["seats"] <= 100
        assert wall.process.poll() is None
        time.sleep(0.2)  # the address may post again soon
        assert wall.post(seat=seat(0), kind="hand", up=True) == 204


def test_slow_clients_do_not_block_others(wall: RunningWall) -> None:
    at = urlsplit(wall.wall)
    slow = [socket.create_connection((at.hostname, at.port), 5) for _ in range(280)]
    for one in slow:
        one.sendall(b"POST /posts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")
    try:
        assert wall.post(seat="bbbb", kind="hand", up=False) == 204
        more = [socket.create_connection((at.hostname, at.port), 5) for _ in range(40)]
        slow += more
        assert more[-1].recv(1) == b""  # the server closes it
    finally:
        for one in slow:
            one.close()
    time.sleep(0.5)
    assert wall.picture()["seats"] > 0


def post_until_killed(wall: RunningWall, first: int, answered: dict[str, float]) -> None:
    for number in count():
        name, value = seat(first + number % 10), float(number)  # it only grows
        try:
            if wall.post(seat=name, kind="guess", key="02b", value=value) == 204:
                answered[name] = value
        except (OSError, HTTPException):
            return
        time.sleep(0.02)


@pytest.mark.slow
def test_acknowledged_posts_survive_kills_at_random_moments(tmp_path: Path) -> None:
    random, answered = Random(0), dict[str, float]()
    for turn in range(4):
        with running_wall(tmp_path) as wall, ThreadPoolExecutor(4) as pool:
            for who in range(4):
                pool.submit(post_until_killed, wall, 100 * turn + 10 * who, answered)
            time.sleep(0.3 + random.random())
            wall.process.kill()
    lines = read_journal(tmp_path / "work" / "wall-0.jsonl")
    stored = {one["seat"]: one["value"] for one in lines[1:]}
    assert len(answered) > 40
    assert {*stored} >= {*answered}
    # a newer post may be stored, but not answered
    assert [name for name, value in answered.items() if stored[name] < value] == []
    with running_wall(tmp_path) as wall:
        assert f"continues with {len(stored)} seats" in " ".join(wall.said.split())


@pytest.mark.slow
def test_interrupted_wall_keeps_its_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = []
    for _ in range(2):
        with running_wall(tmp_path, token="") as wall:
            token = wall.wall.partition("token=")[2]
            addresses.append((token, wall.desk_token))
            wall.process.kill()
    assert addresses[0] == addresses[1]
    path = tmp_path / "work" / "wall-0.jsonl"
    if os.name != "nt":
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has other interrupts")
def test_ended_wall_keeps_only_sums(tmp_path: Path) -> None:
    work = tmp_path / "work"
    for keep in ([], ["--keep"], ["--keep"]):
        with running_wall(tmp_path, *keep) as wall:
            for number in range(9):
                wall.post(seat=seat(number), **GUESS, value=10 * number)
                wall.post(seat=seat(number), kind="measured", key="02a", value=19)
            choice = wall.picture("?key=02f")["choices"][0]
            wall.post(seat="aaaa", kind="guess", key="02f", value=choice)
            wall.post(seat="aaaa", kind="verdict", exercise="01.1", status="wrong")
            wall.process.send_signal(signal.SIGINT)
            rest, error = wall.process.communicate(timeout=20)
            assert (wall.process.returncode, error) == (0, "")
            assert "The wall has stopped." in rest
        assert not (work / "wall-0.jsonl").exists()
        assert (work / "guesses.csv").exists() == bool(keep)
    text = (work / "guesses.csv").read_text("utf-8")
    assert seat(3) not in text
    rows = list(csv.DictReader(text.splitlines()))
    assert rows[0]["key"] == "02a"
    sums = ("n", "quarter", "median", "n_measured", "median_measured")
    assert [rows[0][name] for name in sums] == ["9", "20.0", "40.0", "9", "19.0"]
    assert next(row["n"] for row in rows if row["key"] == "02f") == "1"
    assert len(rows) % 2 == 0


@pytest.mark.slow
def test_demo_shows_invented_seats_and_leaves_nothing(tmp_path: Path) -> None:
    with running_wall(tmp_path, "--demo", "60") as wall:
        shown = wall.picture()
        assert shown["seats"] == 60
        assert shown["is_demo"]
        assert shown["guessed"] > 20
        assert wall.trouble()["hands"]
        assert any(row["slips"] for row in wall.trouble()["exercises"])
    assert not (tmp_path / "work").exists()


def test_line_is_completed_after_the_disk_was_full(tmp_path: Path) -> None:
    class FullDisk:
        free = 12

        def write(self, data: bytes) -> int:
            if not self.free:
                raise OSError(28, "No space left on device")
            part, self.free = data[: self.free], self.free - len(data[: self.free])
            return file.write(part)

    path = tmp_path / "wall.jsonl"
    journal = Journal(path, ['{"a": 1}'])
    disk, file = FullDisk(), journal._file
    setattr(journal, "_file", disk)  # noqa: B010  (of another type)
    journal.append('{"a": 2}')
    with pytest.raises(OSError, match="No space"):
        journal.append('{"a": 3}')
    with pytest.raises(OSError, match="No space"):
        journal.append("")  # a repeated post must not be acknowledged either
    disk.free = 1000
    journal.append("")
    assert [line["a"] for line in read_journal(path)] == [1, 2, 3]
    journal._file = file
    journal.delete()
