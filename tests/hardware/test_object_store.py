"""A store from the user's view: its answers, timing, counters, failures and workers."""

import http.client
import multiprocessing
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import fsspec
import numpy as np
import psutil
import pytest

from course_utils.hardware.object_store import ObjectStore, object_store
from course_utils.hardware.object_store import store as module
from course_utils.hardware.object_store.server import Limits
from course_utils.hardware.storage import storage_preset
from keepfed.errors import KeepfedError
from tests.requests import ask

SIZE, MB = 400_000, 1_000_000
DATA = np.random.default_rng(0).bytes(SIZE)
S3 = storage_preset("S3")
PRESET = replace(S3, open_ms=50, opens_per_s=100, request_ms=100, mb_s=40, stream_mb_s=10)
SLOW = replace(S3, request_ms=1, mb_s=0.4, stream_mb_s=0.4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shards" / "sub").mkdir(parents=True)
    for name in ("a.tar", "b.tar"):
        (tmp_path / "shards" / name).write_bytes(DATA)
    (tmp_path / "shards" / "empty").touch()
    (tmp_path / "shards" / "sub" / "name with ä & <b>.tar").write_bytes(b"b")
    return tmp_path / "shards"


@pytest.fixture
def store(folder: Path) -> Iterator[ObjectStore]:
    with object_store(folder, None) as store:
        yield store


def children() -> set[psutil.Process]:
    return set(psutil.Process().children())


def get(store: ObjectStore, name: str = "a.tar", **headers: str) -> bytes:
    return ask(store.url, f"/{name}", token=store.token, **headers)[2]


PARTS = [
    (None, 200, 0, SIZE),
    ("bytes=70000-199999", 206, 70_000, 200_000),
    ("bytes=399999-", 206, SIZE - 1, SIZE),
    ("bytes=-500", 206, SIZE - 500, SIZE),
    ("bytes=399000-999999999", 206, 399_000, SIZE),
    ("bytes=400000-", 416, 0, 0),
    ("lines=1-2", 200, 0, SIZE),
]


def test_files_and_parts_of_them_are_sent(store: ObjectStore) -> None:
    for path, kind, content in (("a.tar", "x-tar", DATA), ("empty", "octet-stream", b"")):
        for method in ("GET", "HEAD"):
            status, headers, body = ask(store.url, f"/{path}", method=method, token=store.token)
            assert (status, body) == (200, content if method == "GET" else b"")
            assert headers["Content-Length"] == str(len(content))
            assert headers["Content-Type"] == f"application/{kind}"
            assert headers["Accept-Ranges"] == "bytes"
    for part, status, start, stop in PARTS:
        asked = {"Range": part} if part else {}
        got, headers, body = ask(store.url, "/a.tar", token=store.token, **asked)
        assert (got, body) == (status, DATA[start:stop]), part
        named = {206: f"bytes {start}-{stop - 1}/{SIZE}", 416: f"bytes */{SIZE}"}
        assert headers.get("Content-Range") == named.get(status)
        assert headers["Content-Length"] == str(stop - start)
    fs = fsspec.filesystem("http", skip_instance_cache=True)
    assert fs.cat_file(store.url_of("sub/name with ä & <b>.tar")) == b"b"
    for path in ("/nothing", "/sub", "/a.tar/", "/a.tar/x"):
        got, _, body = ask(store.url, path, token=store.token)
        assert (got, body) == (404, b"There is no such file here. Check the name.\n"), path


def test_parallel_downloads_are_correct_and_counted_once(store: ObjectStore) -> None:
    cuts = np.sort(np.random.default_rng(1).integers(0, SIZE, (80, 2)))

    def reads_right(cut: Any) -> bool:
        body = get(store, Range=f"bytes={cut[0]}-{cut[1]}")
        return bool(body == DATA[cut[0] : cut[1] + 1])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(reads_right, cuts))
    for method, path, token in (
        ("GET", "/a.tar", "wrong"),
        ("POST", "/a.tar", store.token),
        ("GET", "/nothing", store.token),
        ("HEAD", "/a.tar", store.token),
    ):
        ask(store.url, path, method=method, token=token)
    counters = store.counters()
    assert (counters.requests, counters.lookups) == (80, 1)
    assert counters.bytes_sent == (cuts[:, 1] - cuts[:, 0] + 1).sum()


def test_readers_share_the_link_fairly_up_to_one_stream_each() -> None:
    for readers, seconds in ((1, 2 / 10), (4, 2 / 10), (16, 32 / 40)):
        clock = SimpleNamespace(now=0.0)
        limits = Limits(PRESET, clock=lambda clock=clock: clock.now)
        arrivals = [limits.answer() for _ in range(readers)]
        due = [(arrival(0), reader, 20) for reader, arrival in enumerate(arrivals)]
        ends = [0.0] * readers
        while due:  # the earliest reader continues, in pieces of 0.1 MB
            clock.now, reader, left = min(due)
            due.remove((clock.now, reader, left))
            ends[reader] = clock.now
            if left:
                due.append((arrivals[reader](MB // 10), reader, left - 1))
        assert max(ends) == pytest.approx(0.1 + seconds, 0.02), readers
        assert min(ends) > 0.95 * max(ends)


def test_store_serves_inside_the_block_and_hides_its_token(folder: Path) -> None:
    before = children()
    with object_store(folder, "S3") as store:
        assert get(store) == DATA
        # quoted, except for the braces that WebDataset expands
        url = store.url_of("two words/{000..003}.tar")
        assert url == f"{store.url}/two%20words/{{000..003}}.tar?token={store.token}"
        assert store.headers == {"Authorization": f"Bearer {store.token}"}
        (server,) = children() - before
        assert store.token not in " ".join(server.cmdline())
        if os.name != "nt":  # Windows has no such process groups
            assert os.getpgid(server.pid) != os.getpgid(0)  # Jupyter sends SIGINT to this group
    with pytest.raises(ConnectionError):
        get(store)
    store = object_store(folder, None)
    (server,) = children() - before
    del store
    assert not server.is_running()


def test_all_clients_are_counted_until_a_fork_does_not_end_the_store(folder: Path) -> None:
    (folder / "large").write_bytes(bytes(50_000_000))
    with object_store(folder, None) as store:
        assert len(store.token) >= 20
        with urllib.request.urlopen(store.url_of("large")) as answer:
            answer.read(10)  # a client that disconnects early costs no more
        get(store, Range="bytes=0-99")
        assert store.counters().bytes_sent < 50_000_000
        store.restart()
        if hasattr(os, "fork"):
            fork = multiprocessing.get_context("fork").Process(target=store.kill)
            fork.start()
            fork.join()
        get(store, Range="bytes=0-99")
        assert str(store.counters()) == "1 request, 0 look-ups, 100 B sent, 0 broken off"


def test_connection_breaks_once_per_file(folder: Path) -> None:
    for at in (0, 65_536, 400_000):
        with object_store(folder, None, break_after=at) as store:
            for name in ("a.tar", "b.tar"):
                if at < len(DATA):
                    with pytest.raises(http.client.IncompleteRead) as broken:
                        get(store, name)
                    assert broken.value.partial == DATA[:at]
                    assert DATA[:at] + get(store, name, Range=f"bytes={at}-") == DATA
                assert get(store, name) == DATA
            assert store.counters().broken == (2 if at < len(DATA) else 0)


def test_store_killed_during_an_answer_can_be_restarted(folder: Path) -> None:
    with object_store(folder, SLOW) as store:
        with urllib.request.urlopen(store.url_of("b.tar")) as answer:
            answer.read(10)
            os.truncate(folder / "b.tar", 70_000)
            with pytest.raises(http.client.IncompleteRead):
                answer.read()
        with urllib.request.urlopen(store.url_of("a.tar")) as answer:
            assert answer.read(10) == DATA[:10]
            store.kill()
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                answer.read()
        with pytest.raises(KeepfedError, match=r"Restart it with store\.restart\(\)"):
            store.counters()
        url, token, port = store.url, store.token, int(store.url.rpartition(":")[2])
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(KeepfedError, match=f"^Cannot listen on port {port}"),
        ):
            store.restart()
        store.restart()
        assert (store.url, store.token) == (url, token)
        assert get(store, Range="bytes=10-99") == DATA[10:100]
        assert store.counters().requests == 1


def test_failed_start_leaves_no_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = children()
    with pytest.raises(KeepfedError, match=r"a\.tar is not a folder\. Create it, or choose"):
        object_store(folder / "a.tar")
    with pytest.raises(ValueError, match=r"There is no storage 's3'\. Choose one of"):
        object_store(folder, "s3")
    for patience, server in ((0, "import time; time.sleep(60)"), (30, "")):
        monkeypatch.setattr(module, "_PATIENCE_S", patience)
        monkeypatch.setattr(module, "_SERVER", server)
        with pytest.raises(KeepfedError, match=r"^The store did not start\. Close busy"):
            object_store(folder, None)
    monkeypatch.setattr(module.json, "dumps", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt) as _remembered:
        object_store(folder, None)
    assert children() == before


PROGRAM = """
import psutil, sys
from course_utils.hardware.object_store import object_store
store = object_store(sys.argv[1], None)
print(psutil.Process().children()[0].pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_store_ends_with_its_owner_even_if_the_owner_is_killed(folder: Path) -> None:
    pipes = dict.fromkeys(["stdin", "stdout"], subprocess.PIPE)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)], text=True, **pipes
    ) as starter:
        server = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    assert psutil.wait_procs([server], timeout=20)[1] == []


def test_parallel_answers_are_limited_to_the_number_of_slots(folder: Path) -> None:
    with (
        object_store(folder, replace(S3, request_ms=100, requests_at_once=2)) as store,
        ThreadPoolExecutor(8) as pool,
    ):
        start = time.perf_counter()
        assert set(pool.map(lambda _: get(store), range(8))) == {DATA}
        assert time.perf_counter() - start >= 4 * 0.1
