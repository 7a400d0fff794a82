"""Answers of a served folder: a real process, real sockets, and requests as raw bytes."""

import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote, urlsplit

import fsspec
import numpy as np
import pytest

from course_utils.hardware.object_store import object_store

SIZE = 300_000
DATA = np.random.default_rng(0).bytes(SIZE)
SECRET = b"not for you"
on_posix = pytest.mark.skipif(os.name == "nt", reason="Windows links and locks in other ways")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder to serve, next to a file and a folder whose name starts the same."""
    outside = tmp_path_factory.mktemp("around")
    inside = outside / "shards"
    for made in (inside / "sub", inside / ".git", outside / "shards-of-others"):
        made.mkdir(parents=True)
    for secret in ("secret", "shards-of-others/secret", "shards/.secret", "shards/.git/config"):
        (outside / secret).write_bytes(SECRET)
    (inside / "a.tar").write_bytes(DATA)
    (inside / "empty").write_bytes(b"")
    (inside / "sub" / "name with ä & <b>.tar").write_bytes(b"b")
    return inside


@pytest.fixture(scope="module")
def store(folder):
    with object_store(folder, None) as store:
        yield store


def ask(store, path, *, method="GET", token="right", **headers):
    """Send a request with the exact path, because other clients normalise it."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        sent["Authorization"] = f"Bearer {store.token if token == 'right' else token}"
    connection = HTTPConnection(urlsplit(store.url).netloc, timeout=10)
    try:
        connection.putrequest(method, path, skip_host="Host" in sent)
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def raw(store, request, *, hang_up=False):
    """Send bytes, perhaps hang up, and return everything until the connection closes."""
    address = urlsplit(store.url)
    with socket.create_connection((address.hostname, address.port), 10) as line:
        line.sendall(request)
        if hang_up:
            line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(2**16), b""))


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


def test_request_without_token_gets_no_information(store):
    for token, status, said in (("", 401, b"A token is required"), ("wrong", 403, b"Wrong token")):
        for path in ("/a.tar", "/", "/nothing", "/.counters", "/../secret"):
            assert ask(store, path, method="HEAD", token=token)[::2] == (status, b"")
            status_in_url, _, sentence = ask(store, f"{path}?token={token}", token="")
            assert ask(store, path, token=token)[::2] == (status_in_url, sentence)
            assert status_in_url == status
            assert said in sentence
    assert ask(store, f"/a.tar?token={store.token}", token="wrong")[0] == 403
    assert ask(store, "/a.tar?token=%ff%00", token="")[0] in (400, 403)
    assert ask(store, "/a.tar", token="", Authorization="Basic cmlnaHQ=")[0] == 401


def test_foreign_host_header_is_rejected(store):
    port = store.url.rpartition(":")[2]
    hosts = (f"localhost:{port}", 200), ("evil.example", 403), ("127.0.0.1.evil.example", 403)
    for host, status in hosts:
        got = ask(store, "/a.tar", Host=host)
        assert got[0] == status
        assert "Access-Control-Allow-Origin" not in got[1]


def test_writing_is_rejected(store, folder):
    before = sorted(folder.rglob("*"))
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NEVER"):
        for path in ("/a.tar", "/new"):
            status, headers, body = ask(store, path, method=method, Content_Length="0")
            assert (status, headers["Allow"]) == (405, "GET, HEAD")
            assert body == b"This store is read-only. Use GET or HEAD.\n"
    assert sorted(folder.rglob("*")) == before


OUTSIDE = r"""
/../secret  /sub/../../secret  /%2e%2e/secret  /%2E%2E%2Fsecret  /..%2fsecret  /.%2e/secret
/%252e%252e/secret  /..%5csecret  /..\secret  /sub/..%5c..%5csecret  /../shards-of-others/secret
/%2e%2e%00/secret  /a.tar%00  /a.tar%00.txt  /....//secret  /./a.tar  /sub/../a.tar
/sub//../../secret  /..;/secret  /%c0%ae%c0%ae/secret  /.secret  /%2esecret  /.git/config
/sub/..%2f.secret  //etc/passwd  /%2fetc%2fpasswd  /C:%5cWindows%5cwin.ini  /file:///etc/passwd
/~root  http://127.0.0.1/../secret  http://127.0.0.1/etc/passwd  *  ..  ../secret
"""


def test_no_spelling_of_a_path_leaves_the_folder(store, folder):
    whole = [(folder / "a.tar").as_posix(), (folder.parent / "secret").as_posix()]
    spellings = [*OUTSIDE.split(), *whole, *(f"/{path}" for path in whole)]
    head = f" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {store.token}\r\n"
    for path in [*spellings, *(f"/{quote(path, safe='')}" for path in whole)]:
        for method in ("GET", "HEAD"):
            got = raw(store, f"{method} {path}{head}Connection: close\r\n\r\n".encode())
            assert got.split()[1] in (b"400", b"403", b"404"), path
            assert not any(text in got for text in (SECRET, b"root:", DATA[:100])), path


@on_posix
def test_links_are_served_only_if_they_stay_inside(store, folder):
    links = {
        "in": ("a.tar", 200),
        "file": ("../secret", 403),
        "folder": ("..", 403),
        "beside": ("../shards-of-others", 403),
        "hidden": (".secret", 403),
        "absolute": (str(folder.parent / "secret"), 403),
        "nowhere": ("nothing", 404),
        "circle": ("circle", 404),
    }
    through = {"folder/secret": 403, "beside/secret": 403, "folder/shards/a.tar": 200, "pipe": 404}
    expected = {name: status for name, (_, status) in links.items()} | through
    try:
        for name, (target, _) in links.items():
            (folder / name).symlink_to(target)
        os.mkfifo(folder / "pipe")
        assert {name: ask(store, f"/{name}")[0] for name in expected} == expected
        listing = ask(store, "/")[2].decode()
        assert {name for name in links if f'href="/{name}' in listing} == {"in"}
    finally:
        for name in (*links, "pipe"):
            (folder / name).unlink(missing_ok=True)


def test_missing_file_is_reported_in_one_sentence(store):
    for path in ("/nothing", "/a.tar/", "/a.tar/x", "/" + "x" * 5_000):
        status, headers, body = ask(store, path)
        assert status == 404
        assert body == b"There is no such file here. Request a name from the listing at /.\n"
        assert headers["Content-Type"] == "text/plain; charset=utf-8"


AS_NOBODY = """
import os, sys
from course_utils.hardware.object_store.server import serve
os.geteuid() or os.setuid(65534)  # root may read everything
serve(sys.argv[1], None, token="t", ready=lambda port: print(port, flush=True))
"""


@on_posix
def test_unreadable_file_is_rejected_without_its_path():
    with tempfile.TemporaryDirectory() as made:  # other users may enter it, unlike `tmp_path`
        folder = Path(made)
        (folder / "locked").mkdir()
        for name in ("locked.tar", "locked/a.tar"):
            (folder / name).touch(mode=0)
        (folder / "locked").chmod(0)
        folder.chmod(0o755)
        command, pipe = [sys.executable, "-c", AS_NOBODY, made], subprocess.PIPE
        with subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe) as server:
            if not (port := server.stdout.readline().strip()):
                assert "in <module>\nOSError" in server.communicate()[1]
                pytest.skip("root is the only user here, and may read everything")
            theirs = SimpleNamespace(url=f"http://127.0.0.1:{port}", token="t")
            got = [ask(theirs, f"/{name}") for name in ("locked", "locked/", "locked.tar")]
            missing = ask(theirs, "/locked/a.tar")
            (folder / "locked").chmod(0o755)
            server.kill()
            assert server.communicate()[1] == ""
        refused = b"This file cannot be read. Request a different one.\n"
        assert [(status, said) for status, _, said in got] == [(403, refused)] * 3
        assert missing[0] == 404


def test_listing_shows_served_files_and_works_with_fsspec(store):
    page = ask(store, f"/?token={store.token}", token="")[2].decode()
    assert f'href="/a.tar?token={store.token}"' in page
    assert f'href="/sub/?token={store.token}"' in page
    assert "secret" not in page
    assert store.token not in ask(store, "/")[2].decode()  # clients with a header send it again
    assert "&amp; &lt;b&gt;.tar" in ask(store, "/sub")[2].decode()
    with urllib.request.urlopen(store.url_of("sub/name with ä & <b>.tar")) as answer:
        assert answer.read() == b"b"
    fs = fsspec.filesystem("http", headers=store.headers, skip_instance_cache=True)
    assert fs.glob(f"{store.url}/*.tar") == [f"{store.url}/a.tar"]
    assert len(fs.find(store.url)) == 3


def test_malformed_request_does_not_affect_others(store):
    start, host = (
        "GET /a.tar HTTP/1.1\r\n",
        f"Host: localhost\r\nAuthorization: Bearer {store.token}\r\n",
    )
    for request in (
        f"{start}{host}X: {'x' * 200_000}\r\n\r\n",
        "GET /a.tar\r\n\r\n",
        f"GET  HTTP/1.1\r\n{host}\r\n",
        "\0" * 100_000,
        f"{start}{host}Content-Length: 999999999999\r\n\r\n",
        f"{start}{host}Content-Length: -1\r\n\r\n",
        f"GET /\xff\xfe HTTP/1.1\r\n{host}Connection: close\r\n\r\n",
        f"{start}{host}",
    ):
        with suppress(OSError):  # the server closed the connection
            assert DATA[:100] not in raw(store, request.encode("latin1"), hang_up=True)
    assert ask(store, "/a.tar")[2] == DATA


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
