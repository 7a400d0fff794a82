"""Answers of a served folder: a real process, and real sockets."""

import urllib.request
from concurrent.futures import ThreadPoolExecutor

import fsspec
import numpy as np
import pytest

from course_utils.hardware.object_store import object_store
from tests import requests

SIZE = 300_000
DATA = np.random.default_rng(0).bytes(SIZE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    inside = tmp_path_factory.mktemp("shards")
    (inside / "sub").mkdir()
    (inside / "a.tar").write_bytes(DATA)
    (inside / "empty").write_bytes(b"")
    (inside / "sub" / "name with ä & <b>.tar").write_bytes(b"b")
    return inside


@pytest.fixture(scope="module")
def store(folder):
    with object_store(folder, None) as store:
        yield store


def ask(store, path, *, token="right", **more):
    return requests.ask(store.url, path, token=store.token if token == "right" else token, **more)


def test_file_is_sent_completely(store):
    for path, kind, content in (("a.tar", "x-tar", DATA), ("empty", "octet-stream", b"")):
        for method in ("GET", "HEAD"):
            status, headers, body = ask(store, f"/{path}", method=method)
            assert (status, body) == (200, content if method == "GET" else b"")
            assert headers["Content-Length"] == str(len(content))
            assert headers["Content-Type"] == f"application/{kind}"
            assert headers["Accept-Ranges"] == "bytes"


PARTS = [
    ("bytes=70000-199999", 206, 70_000, 200_000),
    ("bytes=299999-", 206, SIZE - 1, SIZE),
    ("bytes=-500", 206, SIZE - 500, SIZE),
    ("bytes=299000-999999999", 206, 299_000, SIZE),
    ("bytes=300000-", 416, 0, 0),
    ("bytes=0-1,5-9", 200, 0, SIZE),  # several parts, and an invalid part
    ("lines=1-2", 200, 0, SIZE),
]


@pytest.mark.parametrize(("asked", "status", "start", "stop"), PARTS)
def test_part_of_a_file_is_sent(store, asked, status, start, stop):
    got, headers, body = ask(store, "/a.tar", Range=asked)
    said = b"This file has 300,000 bytes. Request a range inside it.\n"
    expected = said if status == 416 else DATA[start:stop]
    assert (got, body) == (status, expected)
    named = {206: f"bytes {start}-{stop - 1}/{SIZE}", 416: f"bytes */{SIZE}"}
    assert headers.get("Content-Range") == named.get(status)
    assert headers["Content-Length"] == str(len(expected))


def test_unchanged_file_is_not_sent_again(store, folder):
    changing = folder / "changing"
    changing.write_bytes(b"first")
    _, first, _ = ask(store, "/changing", method="HEAD")
    assert ask(store, "/changing", If_None_Match=first["Etag"])[::2] == (304, b"")
    assert ask(store, "/changing", If_Modified_Since=first["Last-Modified"])[0] == 304
    changing.unlink()
    changing.write_bytes(b"second version")
    status, second, body = ask(store, "/changing", If_None_Match=first["Etag"])
    assert (status, body) == (200, b"second version")
    part = {"Range": "bytes=6-"}
    assert ask(store, "/changing", If_Range=second["Etag"], **part)[::2] == (206, b" version")
    assert ask(store, "/changing", If_Range=first["Etag"], **part)[::2] == (200, body)
    changing.unlink()
    assert ask(store, "/changing")[0] == 404


def test_missing_file_is_reported_in_one_sentence(store):
    for path in ("/nothing", "/a.tar/", "/a.tar/x", "/" + "x" * 5_000):
        status, headers, body = ask(store, path)
        assert status == 404
        assert body == b"There is no such file here. Request a name from the listing at /.\n"
        assert headers["Content-Type"] == "text/plain; charset=utf-8"


def test_listing_shows_served_files_and_works_with_fsspec(store):
    page = ask(store, f"/?token={store.token}", token="")[2].decode()
    assert f'href="/a.tar?token={store.token}"' in page
    assert f'href="/sub/?token={store.token}"' in page
    with urllib.request.urlopen(store.url_of("sub/name with ä & <b>.tar")) as answer:
        assert answer.read() == b"b"
    fs = fsspec.filesystem("http", headers=store.headers, skip_instance_cache=True)
    assert fs.glob(f"{store.url}/*.tar") == [f"{store.url}/a.tar"]
    assert len(fs.find(store.url)) == 3


def test_parallel_downloads_are_correct_and_counted_once(store):
    store.reset_counters()
    cuts = np.sort(np.random.default_rng(1).integers(0, SIZE, (80, 2)))

    def reads_right(cut):
        return (
            ask(store, "/a.tar", Range=f"bytes={cut[0]}-{cut[1]}")[2] == DATA[cut[0] : cut[1] + 1]
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(reads_right, cuts))
    for method, path, token in (
        ("GET", "/a.tar", "wrong"),
        ("POST", "/a.tar", "right"),
        ("DELETE", "/.counters", "wrong"),
        ("GET", "/nothing", "right"),
        ("HEAD", "/", "right"),
        ("GET", "/", "right"),
    ):
        ask(store, path, method=method, token=token)
    seen = store.counters()
    assert (seen.requests, seen.lookups) == (80, 2)
    assert seen.bytes_sent == (cuts[:, 1] - cuts[:, 0] + 1).sum()
