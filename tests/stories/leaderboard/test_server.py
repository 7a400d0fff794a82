"""What a board answers: `course leaderboard` in a process of its own, and real sockets."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from course_stories.leaderboard import network_address, post
from course_utils.command import cli
from keepfed.errors import KeepfedError
from tests.stories.leaderboard.posted import GOOD, TOKEN, sent, serving


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("class") / "leaderboard.json"


@pytest.fixture(scope="module")
def url(path: Path) -> Iterator[str]:
    with serving(path) as (_, url):
        yield url


def ask(
    url: str, path: str, *, method: str = "GET", token: str = TOKEN, body: bytes = b"", **more: str
) -> tuple[int, dict[str, str], str]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request(method, path, body, headers | more)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def on_board(path: Path) -> list[str]:
    return [line["name"] for line in json.loads(path.read_text("utf-8"))["results"]]


def test_sixty_post_at_once_and_nothing_is_lost_nor_half_written(url: str, path: Path) -> None:
    first, *others = a_class = [f"Learner {number}" for number in range(61)]
    post(first, GOOD, url)
    with ThreadPoolExecutor(60) as pool:
        posts = [pool.submit(post, name, GOOD, url) for name in others]
        while not all(one.done() for one in posts):
            assert first in on_board(path)  # a reader at any moment finds a whole board
    assert sorted(on_board(path)) == sorted(a_class)
    assert all(f": {GOOD.points} points, place " in one.result() for one in posts)
    assert len(json.loads(ask(url, "/leaderboard.json")[2])["results"]) == 61


def test_what_was_answered_is_there_after_a_kill_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "leaderboard.json"
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

    with serving(path) as (server, url), ThreadPoolExecutor(4) as pool:
        for who in "ABCD":
            pool.submit(post_on, who)
        assert many.wait(30)
        server.kill()
    assert {*on_board(path)} >= {*answered}
    with serving(path) as (_, url):
        assert "points, place" in post("E", GOOD, url)


def test_nothing_is_said_or_taken_before_the_token_was_seen(url: str, path: Path) -> None:
    body = json.dumps(sent("Guest")).encode()
    for token, status, said in (("", 401, "A token is needed"), ("wrong", 403, "not the token of")):
        for method, at in (("GET", "/"), ("GET", "/leaderboard.json"), ("GET", "/x")):
            got, _, sentence = ask(url, at, method=method, token=token)
            assert (got, said in sentence) == (status, True)
        got, _, sentence = ask(url, "/results", method="POST", token=token, body=body)
        assert (got, said in sentence) == (status, True)
    assert not path.exists() or "Guest" not in on_board(path)


def test_a_page_from_elsewhere_cannot_ask_through_a_name_of_its_own(url: str) -> None:
    status, headers, said = ask(url, "/leaderboard.json", Host="evil.example")
    assert (status, "This board is called 127.0.0.1" in said) == (403, True)
    assert "Access-Control-Allow-Origin" not in headers


BAD: list[tuple[bytes, int, str]] = [
    (b"", 400, "This is no JSON"),
    (b"\xff\xfe", 400, "This is no JSON"),
    (b"{" * 4000, 400, "This is no JSON"),
    (b"[" * 4000, 400, "This is no JSON"),
    (b"[]", 400, "This is no result: send an object"),
    (b" " * 5000, 413, "A post has at most 4,096 bytes."),
    (json.dumps(sent(" ")).encode(), 400, "A name has 1 to 30 letters"),
    (json.dumps(sent("a\r\nSet-Cookie: b")).encode(), 200, "a Set-Cookie: b: 85 points"),
    (json.dumps(sent(au=float("nan"))).encode(), 400, "'au' is nan, which cannot be."),
    (json.dumps(sent(refused="Lost\r\nevents.")).encode(), 400, "Refused, so not on the board: Lo"),
]


@pytest.mark.parametrize(("body", "status", "said"), BAD, ids=range(len(BAD)))
def test_a_bad_post_is_answered_with_a_sentence(
    url: str, body: bytes, status: int, said: str
) -> None:
    got, headers, sentence = ask(url, "/results", method="POST", body=body)
    assert (got, headers["Content-Type"]) == (status, "text/plain; charset=utf-8")
    assert sentence.startswith(said)
    assert sentence.endswith(".\n")
    assert "Set-Cookie" not in headers


def test_other_methods_and_other_pages_are_answered_with_a_sentence(url: str) -> None:
    wrong = [("GET", "/results", 405), ("POST", "/", 405), ("DELETE", "/leaderboard.json", 405)]
    for method, at, status in [*wrong, ("GET", "/../work", 404), ("POST", "/x", 404)]:
        got, _, said = ask(url, at, method=method)
        assert got == status, (method, at)
        assert said.endswith("the board is at /, and results are posted to /results.\n")


def test_the_page_runs_no_script_but_its_own_and_holds_no_token(url: str) -> None:
    status, headers, page = ask(url, "/")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    nonce = policy.partition("script-src 'nonce-")[2].partition("'")[0]
    assert page.count(f'nonce="{nonce}"') == 2
    assert TOKEN not in page
    assert "innerHTML" not in page
    assert ask(url, "/")[1]["Content-Security-Policy"] != policy


def test_a_board_that_is_damaged_meanwhile_is_named_and_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "leaderboard.json"
    with serving(path) as (_, url):
        assert "place 1 of 1" in post("A", GOOD, url)
        path.write_text("{", "utf-8")
        said = "Not posted: leaderboard.json is no board, or damaged; mend it"
        assert post("B", GOOD, url).startswith(said)
        assert ask(url, "/leaderboard.json")[0] == 500
        assert path.read_text("utf-8") == "{"


@pytest.mark.skipif(os.name == "nt", reason="Windows interrupts in another way")
def test_a_board_ends_at_an_interrupt_and_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "leaderboard.json"
    for name in ("A", "B"):
        with serving(path) as (server, url):
            post(name, GOOD, url)
            server.send_signal(signal.SIGINT)
            rest, error = server.communicate(timeout=20)
            assert (server.returncode, error) == (0, "")
            assert f"it is in {path}." in rest
    assert on_board(path) == ["A", "B"]


def test_the_network_reaches_a_board_by_its_flag_alone(path: Path, url: str) -> None:
    other = "127.0.0.2"  # stands for an address of this machine in a network
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((other, urlsplit(url).port or 0), 5)
    with serving(path.with_name("lan.json"), "--lan", other) as (_, url):
        assert urlsplit(url).hostname == other
        assert "place 1 of 1" in post("A", GOOD, url)
        assert ask(url, "/leaderboard.json", token="")[0] == 401
        assert ask(url, "/leaderboard.json", Host="evil.example")[0] == 403


def test_a_board_that_cannot_be_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "leaderboard.json"
    cannot = [
        (["--lan", "203.0.113.9"], TOKEN, "Port 8765 of 203.0.113.9 is taken or cannot be had"),
        (["--port", "99999"], TOKEN, "Port 99999 is taken or cannot be had"),
        ([], "ä", "A token has letters, digits and ._~+/- in it; choose another."),
    ]
    for options, token, said in cannot:
        monkeypatch.setenv("COURSE_TOKEN", token)
        assert cli.main(["leaderboard", "--file", str(path), *options]) == 1
        assert capsys.readouterr().err.startswith(f"course: {said}")
    path.write_text("{", "utf-8")
    assert cli.main(["leaderboard", "--file", str(path)]) == 1
    assert "leaderboard.json is no board, or damaged; mend it" in capsys.readouterr().err


def test_a_machine_in_no_network_has_no_address_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(self: socket.socket, address: tuple[str, int]) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(KeepfedError, match="in no network; join one, or leave out --lan"):
        network_address()


NO_ADDRESS = ["10.0.0.7:8765", "http://10.0.0.7:8765/", "file:///etc/passwd?token=a", "http:?token"]


@pytest.mark.parametrize("board", NO_ADDRESS)
def test_what_is_no_address_of_a_board_is_not_asked(board: str) -> None:
    assert post("A", GOOD, board).startswith("Not posted: the address of a board is like http://")


def test_who_has_no_board_or_no_result_is_told_so() -> None:
    assert post("A", GOOD, " ").startswith("Not posted: there is no board")
    assert post("A", None, "http://x/?token=a").startswith("Not posted: you have no result yet")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = post("A", GOOD, f"http://127.0.0.1:{port}/?token=a")
    assert said.startswith(f"Not posted: nobody answers at 127.0.0.1:{port}")
