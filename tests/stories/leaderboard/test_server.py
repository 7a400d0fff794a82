"""The leaderboard server: `course leaderboard` in a subprocess, with real sockets."""

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
from tests.stories.leaderboard.helpers import GOOD, TOKEN, post_fields, running_board


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("class") / "leaderboard.json"


@pytest.fixture(scope="module")
def url(path: Path) -> Iterator[str]:
    with running_board(path) as (_, url):
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


def names_on_board(path: Path) -> list[str]:
    return [line["name"] for line in json.loads(path.read_text("utf-8"))["results"]]


def test_sixty_concurrent_posts_are_all_stored(url: str, path: Path) -> None:
    first, *others = a_class = [f"Learner {number}" for number in range(61)]
    post(first, GOOD, url)
    with ThreadPoolExecutor(60) as pool:
        posts = [pool.submit(post, name, GOOD, url) for name in others]
        while not all(one.done() for one in posts):
            assert first in names_on_board(path)  # the file is complete at any moment
    assert sorted(names_on_board(path)) == sorted(a_class)
    assert all(f": {GOOD.points} points, place " in one.result() for one in posts)
    assert "word" not in json.loads(ask(url, "/leaderboard.json")[2])["results"][0]
    assert len(json.loads(ask(url, "/leaderboard.json")[2])["results"]) == 61


def test_answered_posts_survive_a_kill(tmp_path: Path) -> None:
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

    with running_board(path) as (server, url), ThreadPoolExecutor(4) as pool:
        for who in "ABCD":
            pool.submit(post_on, who)
        assert many.wait(30)
        server.kill()
    assert {*names_on_board(path)} >= {*answered}
    with running_board(path) as (_, url):
        assert "points, place" in post("E", GOOD, url)


def test_requests_without_valid_token_are_rejected(url: str, path: Path) -> None:
    body = json.dumps(post_fields("Guest")).encode()
    for token, status, said in (
        ("", 401, "A token is required"),
        ("wrong", 403, "Wrong token for"),
    ):
        for method, at in (("GET", "/"), ("GET", "/leaderboard.json"), ("GET", "/x")):
            got, _, sentence = ask(url, at, method=method, token=token)
            assert (got, said in sentence) == (status, True)
        got, _, sentence = ask(url, "/results", method="POST", token=token, body=body)
        assert (got, said in sentence) == (status, True)
    assert not path.exists() or "Guest" not in names_on_board(path)


def test_foreign_host_header_is_rejected(url: str) -> None:
    status, headers, said = ask(url, "/leaderboard.json", Host="evil.example")
    assert (status, "The address of this board is 127.0.0.1" in said) == (403, True)
    assert "Access-Control-Allow-Origin" not in headers


BAD: list[tuple[bytes, int, str]] = [
    (b"", 400, "This is not JSON"),
    (b"\xff\xfe", 400, "This is not JSON"),
    (b"{" * 4000, 400, "This is not JSON"),
    (b"[" * 4000, 400, "This is not JSON"),
    (b"[]", 400, "The data are not a result"),
    (b" " * 5000, 413, "A post must have at most 4,096 bytes."),
    (json.dumps(post_fields(" ")).encode(), 400, "A name must have 1 to 30"),
    (json.dumps(post_fields("a\r\nSet-Cookie: b")).encode(), 200, "a Set-Cookie: b: 85 points"),
    (json.dumps(post_fields(au=float("nan"))).encode(), 400, "'au' is nan, which is out of range."),
    (
        json.dumps(post_fields(refused="Lost\r\nevents.")).encode(),
        400,
        "The check refused this result: Lo",
    ),
]


@pytest.mark.parametrize(("body", "status", "said"), BAD, ids=range(len(BAD)))
def test_invalid_post_gets_clear_error(url: str, body: bytes, status: int, said: str) -> None:
    got, headers, sentence = ask(url, "/results", method="POST", body=body)
    assert (got, headers["Content-Type"]) == (status, "text/plain; charset=utf-8")
    assert sentence.startswith(said)
    assert sentence.endswith(".\n")
    assert "Set-Cookie" not in headers


def test_unknown_pages_and_methods_get_clear_error(url: str) -> None:
    wrong = [("GET", "/results", 405), ("POST", "/", 405), ("DELETE", "/leaderboard.json", 405)]
    for method, at, status in [*wrong, ("GET", "/../work", 404), ("POST", "/x", 404)]:
        got, _, said = ask(url, at, method=method)
        assert got == status, (method, at)
        assert said.endswith("The board is at /, and results are posted to /results.\n")


def test_page_allows_only_its_script_and_contains_no_token(url: str) -> None:
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


def test_damaged_board_is_reported_and_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "leaderboard.json"
    with running_board(path) as (_, url):
        assert "place 1 of 1" in post("A", GOOD, url)
        path.write_text("{", "utf-8")
        said = "Not posted. leaderboard.json is not a leaderboard, or it is damaged"
        assert post("B", GOOD, url).startswith(said)
        assert ask(url, "/leaderboard.json")[0] == 500
        assert path.read_text("utf-8") == "{"


@pytest.mark.skipif(os.name == "nt", reason="Windows has other interrupts")
def test_interrupted_board_resumes_with_its_results(tmp_path: Path) -> None:
    path = tmp_path / "leaderboard.json"
    for name in ("A", "B"):
        with running_board(path) as (server, url):
            post(name, GOOD, url)
            server.send_signal(signal.SIGINT)
            rest, error = server.communicate(timeout=20)
            assert (server.returncode, error) == (0, "")
            assert f"It is stored in {path}." in rest
    assert names_on_board(path) == ["A", "B"]


def test_board_is_reachable_from_network_only_with_lan(path: Path, url: str) -> None:
    other = "127.0.0.2"  # represents a network address of this machine
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((other, urlsplit(url).port or 0), 5)
    with running_board(path.with_name("lan.json"), "--lan", other) as (_, url):
        assert urlsplit(url).hostname == other
        assert "place 1 of 1" in post("A", GOOD, url)
        assert ask(url, "/leaderboard.json", token="")[0] == 401
        assert ask(url, "/leaderboard.json", Host="evil.example")[0] == 403


def test_invalid_arguments_stop_board_with_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "leaderboard.json"
    cannot = [
        (["--lan", "203.0.113.9"], TOKEN, "Cannot listen on port 8765 of 203.0.113.9"),
        (["--port", "99999"], TOKEN, "Cannot listen on port 99999"),
        ([], "ä", "A token may contain only letters, digits and ._~+/-. Choose a different token."),
    ]
    for options, token, said in cannot:
        monkeypatch.setenv("COURSE_TOKEN", token)
        assert cli.main(["leaderboard", "--file", str(path), *options]) == 1
        assert capsys.readouterr().err.startswith(f"course: {said}")
    path.write_text("{", "utf-8")
    assert cli.main(["leaderboard", "--file", str(path)]) == 1
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
