"""Answers of a served folder, and the timing of a store with a clock that the test advances."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from course_utils.hardware.object_store import ObjectStore, object_store
from course_utils.hardware.object_store.server import Limits
from course_utils.hardware.storage import storage_preset
from tests import requests

SIZE, MB = 300_000, 1_000_000
DATA = np.random.default_rng(0).bytes(SIZE)
PRESET = replace(
    storage_preset("S3"), open_ms=50, opens_per_s=100, request_ms=100, mb_s=40, stream_mb_s=10
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    inside = tmp_path_factory.mktemp("shards")
    (inside / "sub").mkdir()
    (inside / "a.tar").write_bytes(DATA)
    (inside / "empty").write_bytes(b"")
    (inside / "sub" / "name with ä & <b>.tar").write_bytes(b"b")
    return inside


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[ObjectStore]:
    with object_store(folder, None) as store:
        yield store


def ask(store: ObjectStore, path: str, *, token: str = "right", **more: Any) -> Any:
    return requests.ask(store.url, path, token=store.token if token == "right" else token, **more)


PARTS = [
    (None, 200, 0, SIZE),
    ("bytes=70000-199999", 206, 70_000, 200_000),
    ("bytes=299999-", 206, SIZE - 1, SIZE),
    ("bytes=-500", 206, SIZE - 500, SIZE),
    ("bytes=299000-999999999", 206, 299_000, SIZE),
    ("bytes=300000-", 416, 0, 0),
    ("lines=1-2", 200, 0, SIZE),
]


def test_files_and_parts_of_them_are_sent(store: ObjectStore) -> None:
    for path, kind, content in (("a.tar", "x-tar", DATA), ("empty", "octet-stream", b"")):
        for method in ("GET", "HEAD"):
            status, headers, body = ask(store, f"/{path}", method=method)
            assert (status, body) == (200, content if method == "GET" else b"")
            assert headers["Content-Length"] == str(len(content))
            assert headers["Content-Type"] == f"application/{kind}"
            assert headers["Accept-Ranges"] == "bytes"
    for part, status, start, stop in PARTS:
        got, headers, body = ask(store, "/a.tar", **({"Range": part} if part else {}))
        assert (got, body) == (status, DATA[start:stop]), part
        named = {206: f"bytes {start}-{stop - 1}/{SIZE}", 416: f"bytes */{SIZE}"}
        assert headers.get("Content-Range") == named.get(status)
        assert headers["Content-Length"] == str(stop - start)
    fs = fsspec.filesystem("http", skip_instance_cache=True)
    assert fs.cat_file(store.url_of("sub/name with ä & <b>.tar")) == b"b"
    for path in ("/nothing", "/", "/sub", "/a.tar/", "/a.tar/x", "/" + "x" * 5_000):
        status, headers, body = ask(store, path)
        assert (status, body) == (404, b"There is no such file here. Check the name.\n"), path
        assert headers["Content-Type"] == "text/plain; charset=utf-8"


def test_unchanged_file_is_not_sent_again(store: ObjectStore, folder: Path) -> None:
    changing = folder / "changing"
    changing.write_bytes(b"first")
    _, first, _ = ask(store, "/changing", method="HEAD")
    assert ask(store, "/changing", If_None_Match=first["Etag"])[::2] == (304, b"")
    changing.unlink()
    changing.write_bytes(b"second version")
    status, _, body = ask(store, "/changing", If_None_Match=first["Etag"])
    assert (status, body) == (200, b"second version")
    changing.unlink()
    assert ask(store, "/changing")[0] == 404


def test_parallel_downloads_are_correct_and_counted_once(store: ObjectStore) -> None:
    store.reset_counters()
    cuts = np.sort(np.random.default_rng(1).integers(0, SIZE, (80, 2)))

    def reads_right(cut: Any) -> bool:
        body = ask(store, "/a.tar", Range=f"bytes={cut[0]}-{cut[1]}")[2]
        return bool(body == DATA[cut[0] : cut[1] + 1])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(reads_right, cuts))
    for method, path, token in (
        ("GET", "/a.tar", "wrong"),
        ("POST", "/a.tar", "right"),
        ("DELETE", "/.counters", "wrong"),
        ("GET", "/nothing", "right"),
        ("HEAD", "/a.tar", "right"),
    ):
        ask(store, path, method=method, token=token)
    counters = store.counters()
    assert (counters.requests, counters.lookups) == (80, 1)
    assert counters.bytes_sent == (cuts[:, 1] - cuts[:, 0] + 1).sum()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_readers_share_the_link_fairly_up_to_one_stream_each() -> None:
    for readers, seconds in ((1, 2 / 10), (4, 2 / 10), (16, 32 / 40)):
        limits = Limits(PRESET, clock=(clock := Clock()))
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


def test_late_wake_up_is_compensated_and_look_ups_queue() -> None:
    arrival = Limits(PRESET, clock=(clock := Clock())).answer()
    for _ in range(100):
        clock.now = arrival(MB // 100) + 0.001
    assert clock.now == pytest.approx(0.1 + 1 / 10, abs=0.002)
    clock.now = 60
    assert arrival(MB) > 60 + 0.05  # a pause is not compensated
    limits = Limits(PRESET, clock=Clock())
    assert [limits.look_up() for _ in range(3)] == pytest.approx([0.05, 0.06, 0.07])
    limits = Limits(None, clock=Clock())
    assert limits.look_up() == limits.answer()(10**12) == 0
