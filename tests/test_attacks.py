"""Attacks on the store, the wall and the hub: real processes, real sockets, tables of requests."""

import json
import os
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import yaml
from traitlets.config import PyFileConfigLoader

from course_utils.hardware.object_store import object_store
from course_utils.paths import REPO
from tests.requests import ask, raw
from tests.stories.wall.fake import until
from tests.stories.wall.helpers import GOOD, TOKEN, RunningWall, running_wall, seat

SECRET, DATA = b"not for you", bytes(range(256)) * 1000
on_posix = pytest.mark.skipif(os.name == "nt", reason="Windows links and locks in other ways")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder to serve, next to a file and a folder whose name starts the same."""
    outside = tmp_path_factory.mktemp("around")
    for name in ("secret", "shards-of-others/secret"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_bytes(SECRET)
    (outside / "shards" / "sub").mkdir(parents=True)
    (outside / "shards" / "a.tar").write_bytes(DATA)
    (outside / "shards" / "sub" / "<b>&.tar").write_bytes(b"b")
    return outside / "shards"


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[Any]:
    with object_store(folder, None) as store:
        yield store


@pytest.fixture(scope="module")
def wall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWall]:
    with running_wall(tmp_path_factory.mktemp("class")) as wall:
        yield wall


GUESS = {"seat": "aaaa", "kind": "guess", "about": "02a", "value": 40}
PATHS = {
    "store": ("/a.tar", "/", "/nothing", "/.counters", "/../secret"),
    "wall": ("/", "/wall", "/wall.json", "/x", "/posts"),
}


def test_only_the_token_and_the_own_name_open_a_door(store: Any, wall: RunningWall) -> None:
    evil = f"evil.example:{urlsplit(wall.page).port}"
    for url, right, paths, wrong in (
        (store.url, store.token, PATHS["store"], 403),
        (wall.page, TOKEN, PATHS["wall"], 401),
    ):
        for path in paths:
            for given, status, said in (
                ({}, 401, b"A token is required"),
                ({"token": "wrong"}, wrong, b"Wrong token"),
                ({"token": "\xe4"}, wrong, b"Wrong token"),
                ({"Authorization": "Basic cmlnaHQ="}, 401, b"A token is required"),
                ({"token": right, "Host": evil}, 403, b"Unknown host name. The address of this"),
                ({"token": right, "Host": "127.0.0.1.evil.example"}, 403, b"Unknown host name."),
            ):
                method = "POST" if path == "/posts" else "GET"
                body = json.dumps(GUESS | {"seat": "zzzz"}).encode() if method == "POST" else b""
                got, headers, sentence = ask(url, path, method=method, body=body, **given)
                assert (got, said in sentence, sentence[-2:]) == (status, True, b".\n"), path
                assert "Access-Control-Allow-Origin" not in headers
                assert right.encode() not in sentence
        assert ask(url, f"/?token={right}", token="wrong")[0] == wrong
        assert ask(url, "/?token=%ff%00")[0] in (400, wrong)
        port = urlsplit(url).port
        served = paths[0]
        assert ask(url, f"{served}?token={right}", Host=f"localhost:{port}")[0] == 200
    assert wall.shown()["seats"] == 0
    body = b'{"key": "02a", "uncover": true}'
    assert ask(wall.page, "/wall.json", method="POST", token=TOKEN, body=body)[0] == 401
    assert wall.post("measured", "02a", 1, "teacher") == 401
    assert wall.choose("99z") == 400


OUTSIDE = r"""
/../secret  /sub/../../secret  /%2e%2e/secret  /%2E%2E%2Fsecret  /..%2fsecret  /.%2e/secret
/%252e%252e/secret  /..%5csecret  /..\secret  /sub/..%5c..%5csecret  /../shards-of-others/secret
/%2e%2e%00/secret  /a.tar%00  /a.tar%00.txt  /....//secret  /sub//../../secret  /..;/secret
/%c0%ae%c0%ae/secret  //etc/passwd  /%2fetc%2fpasswd  /C:%5cWindows%5cwin.ini  /file:///etc/passwd
/~root  http://127.0.0.1/../secret  http://127.0.0.1/etc/passwd  *  ..  ../secret
/pages/shared.js  /../wall.jsonl  /wall.html
"""


def test_no_spelling_of_a_path_escapes(store: Any, wall: RunningWall, folder: Path) -> None:
    whole = [(folder / "a.tar").as_posix(), (folder.parent / "secret").as_posix()]
    spellings = [*OUTSIDE.split(), *whole, *(f"/{path}" for path in whole)]
    spellings += [f"/{quote(path, safe='')}" for path in whole] + ["/" + "x" * 5_000]
    for url, token in ((store.url, store.token), (wall.page, TOKEN)):
        head = f" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        for path in spellings:
            for method in ("GET", "HEAD"):
                got = raw(url, f"{method} {path}{head}Connection: close\r\n\r\n".encode())
                assert got.split()[1] in (b"400", b"403", b"404"), path
                assert not any(text in got for text in (SECRET, b"root:", DATA[:100])), path


@on_posix
def test_links_are_served_only_if_they_stay_inside(store: Any, folder: Path) -> None:
    links = {"in": "a.tar", "file": "../secret", "folder": "..", "beside": "../shards-of-others"}
    links |= {"absolute": str(folder.parent / "secret"), "nowhere": "nothing", "circle": "circle"}
    through = "folder/secret", "beside/secret", "folder/shards/a.tar", "pipe"
    try:
        for name, target in links.items():
            (folder / name).symlink_to(target)
        os.mkfifo(folder / "pipe")
        got = {
            name: ask(store.url, f"/{name}", token=store.token)[0] for name in (*links, *through)
        }
        inside = {"in": 200, "folder/shards/a.tar": 200}
        assert got == dict.fromkeys(got, 404) | inside
    finally:
        for name in (*links, "pipe"):
            (folder / name).unlink(missing_ok=True)


def test_tokens_do_not_get_into_pages(wall: RunningWall) -> None:
    nonces = set()
    for path in ("/", "/wall"):
        status, headers, page = wall.ask(path, token=wall.teacher_token)
        policy = headers["Content-Security-Policy"]
        nonce = policy.partition("script-src 'nonce-")[2].partition("'")[0]
        assert (status, page.count(f'nonce="{nonce}"')) == (200, 2)
        assert ("default-src 'none'" in policy, "unsafe" in policy) == (True, False)
        for word in ("innerHTML", "NONCE", TOKEN, wall.teacher_token, "LIGHT;", "/* shared"):
            assert word not in page
        nonces.add(nonce)
    assert len(nonces) == 2


def result(**changed: Any) -> dict[str, Any]:
    return {"kind": "result", "value": {**asdict(GOOD), "name": "Marie", **changed}}


NO_SUCH, NO_VALUE = "The wall takes no such post", " must be a number from 0 to "
POSTS: list[tuple[bytes, int, str]] = [
    *((body, 400, "The post is not a JSON") for body in (b"\xff\xfe\x00", b"[]", b"1")),
    *((body * 900, 400, "The post is not a JSON") for body in (b"[", b"{", b"1")),
    (b" " * 2001, 413, "A post must have at most 2,000"),
    *(
        (json.dumps(GUESS).replace("40", value).encode(), 400, "The value must be a number")
        for value in ("NaN", "1e999", "-1", "101", '"40"', "true", "null", "[1]", "9" * 400)
    ),
    *(
        (json.dumps(GUESS | changed).encode(), status, said)
        for status, said, *different in (
            (400, "'seat' must have", *({"seat": s} for s in ("abc", "a" * 17, "AA", "aaa1", 4))),
            (400, "'seat' must have", {"seat": "\u0430\u0430aa"}, {"seat": None}),
            (400, NO_SUCH, *({"about": key} for key in ("99z", "", None, ["02a"], {}))),
            (400, "one of the choices", *({"about": "03c", "value": v} for v in ("<b>", [], 1))),
            (400, NO_SUCH, {"kind": "at", "value": "99"}, {"kind": "at", "value": ["02"]}),
            (400, NO_SUCH, {"kind": "verdict", "about": "x", "value": {"status": "right"}}),
            (400, NO_SUCH, {"kind": "verdict", "about": "01.1", "value": {"status": "great"}}),
            (400, NO_SUCH, {"kind": "name"}, {"kind": ["guess"]}, {"kind": "hand", "value": 1}),
            (204, "", {"name": "<img src=x>"}),
            *(
                (400, "A name must have", result(name=name))
                for name in (" ", "x" * 31, "a\u202eb", "a\u200bb", "a\0b", "\ud800", "")
            ),
            (200, "a Set-Cookie: b: 85 points", result(name="a\r\nSet-Cookie: b")),
            (400, NO_VALUE, *(result(au=value) for value in (float("nan"), 1.2, -1.0, True))),
            (400, NO_VALUE, result(start_up_s=float("inf")), result(start_up_s=10**400)),
            (400, NO_VALUE, result(points=101), result(points=None), result(seed="0")),
        )
        for changed in different
    ),
]


def test_rubbish_gets_one_sentence_of_plain_text(wall: RunningWall) -> None:
    for body, status, sentence in POSTS:
        got, headers, said = wall.ask("/posts", body)
        assert (got, sentence in said) == (status, True), (body, said)
        assert "Set-Cookie" not in headers
        if said:
            assert headers["Content-Type"] == "text/plain; charset=utf-8"
            assert headers["X-Content-Type-Options"] == "nosniff"  # a browser shows no HTML in it
            assert (said.endswith(".\n"), said.count("\n")) == (True, 1)


@pytest.mark.full
@pytest.mark.slow
def test_floods_and_slow_clients_stop_nobody_else(tmp_path: Path) -> None:
    with running_wall(tmp_path) as wall, ThreadPoolExecutor(8) as pool:

        def flood(number: int) -> int:
            return wall.post("guess", "02a", number % 100, seat(number))

        assert {*pool.map(flood, range(1000))} == {204, 429}
        assert wall.shown()["seats"] <= 500
        until(lambda: wall.post("hand", "", True, seat(0)) == 204)  # may post again soon
        at = urlsplit(wall.page)
        slow = [socket.create_connection((at.hostname, at.port), 5) for _ in range(280)]
        for line in slow:
            line.sendall(b"POST /posts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")
        assert wall.shown()["seats"] <= 500
        slow += [socket.create_connection((at.hostname, at.port), 5) for _ in range(40)]
        assert slow[-1].recv(1) == b""  # the server closes it
        for line in slow:
            line.close()

        def answers() -> bool:
            with suppress(OSError):
                return wall.ask("/wall.json")[0] == 200
            return False

        until(answers)
        assert wall.process.poll() is None


def test_hub_takes_no_path_as_name_and_limits_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    path, before = str(REPO / "deploy" / "jupyterhub_config.py"), os.umask(0o022)
    monkeypatch.delenv("COURSE_PASSWORD", raising=False)
    with pytest.raises(SystemExit, match="COURSE_PASSWORD is not set"):
        PyFileConfigLoader(path).load_config()
    monkeypatch.setenv("COURSE_PASSWORD", "at-least-8")
    monkeypatch.setenv("COURSE_IMAGE", "course")
    config = PyFileConfigLoader(path).load_config()
    assert os.umask(before) == 0o077  # what the hub writes is for its owner only
    pattern = re.compile(config.Authenticator.username_pattern)
    assert all(map(pattern.match, ("ada", "Ada Lovelace", "emmy-2")))
    bad = "", "..", "../ada", "a/b", ".ssh", "a\\b", "a\n", "-v", "$(x)"
    assert [name for name in bad if pattern.match(name)] == []
    host = config.DockerSpawner.extra_host_config
    assert (host["cap_drop"], host["security_opt"]) == (["ALL"], ["no-new-privileges"])
    assert host["pids_limit"] > 0
    assert config.Spawner.mem_limit
    compose = yaml.safe_load((REPO / "deploy" / "compose.yml").read_text("utf-8"))
    for service in compose["services"].values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["pids_limit"] == host["pids_limit"]
