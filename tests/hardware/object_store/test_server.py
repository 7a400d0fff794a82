"""What a served folder answers: a real process, real sockets, requests as they go over the wire."""

import hashlib
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit

import fsspec
import numpy as np
import pytest

from course_utils.hardware.object_store import ObjectStore, object_store

SIZE = 300_000
DATA = np.random.default_rng(0).bytes(SIZE)
SECRET = b"not for you"
Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to serve, and beside it a file, and a folder whose name begins the same."""
    outside = tmp_path_factory.mktemp("around")
    inside = outside / "shards"
    (inside / "sub").mkdir(parents=True)
    (outside / "shards-of-others").mkdir()
    for secret in (outside / "secret", outside / "shards-of-others" / "secret", inside / ".secret"):
        secret.write_bytes(SECRET)
    (inside / ".git").mkdir()
    (inside / ".git" / "config").write_bytes(SECRET)
    (inside / "a.tar").write_bytes(DATA)
    (inside / "empty").write_bytes(b"")
    (inside / "sub" / "name with ä & <b>.tar").write_bytes(b"b")
    return inside


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[ObjectStore]:
    with object_store(folder, None, token="right") as store:
        yield store


def ask(
    store: ObjectStore | str,
    path: str,
    *,
    method: str = "GET",
    token: str = "right",
    **headers: str,
) -> Answer:
    """Send a request just as it is spelled: other clients tidy a path up before."""
    url = store if isinstance(store, str) else store.url
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        sent["Authorization"] = f"Bearer {token}"
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.putrequest(method, path, skip_host="Host" in sent)
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def raw(store: ObjectStore, request: bytes, *, hang_up: bool = False) -> bytes:
    """Send bytes, perhaps hang up, and return all that comes until the connection closes."""
    address = urlsplit(store.url)
    with socket.create_connection((str(address.hostname), int(address.port or 0)), 10) as line:
        line.sendall(request)
        if hang_up:
            line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(2**16), b""))


def test_a_file_comes_whole(store: ObjectStore) -> None:
    status, headers, body = ask(store, "/a.tar")
    assert (status, body) == (200, DATA)
    assert headers["Accept-Ranges"] == "bytes"
    assert headers["Content-Type"] == "application/x-tar"
    status, headers, body = ask(store, "/a.tar", method="HEAD")
    assert (status, headers["Content-Length"], body) == (200, str(SIZE), b"")
    status, headers, body = ask(store, "/empty")
    assert (status, headers["Content-Length"], body) == (200, "0", b"")


@pytest.mark.parametrize(
    ("asked", "status", "start", "stop"),
    [
        ("bytes=0-99", 206, 0, 100),
        ("bytes=70000-199999", 206, 70_000, 200_000),
        ("bytes=299999-", 206, SIZE - 1, SIZE),
        ("bytes=-500", 206, SIZE - 500, SIZE),
        ("bytes=299000-999999999", 206, 299_000, SIZE),
        ("bytes=5-5", 206, 5, 6),
        ("bytes=300000-", 416, 0, 0),
        ("bytes=400000-500000", 416, 0, 0),
        ("bytes=-0", 416, 0, 0),
        # several parts, and what is no part
        ("bytes=0-1,5-9", 200, 0, SIZE),
        ("bytes=x-y", 200, 0, SIZE),
        ("lines=1-2", 200, 0, SIZE),
        ("bytes=0-", 200, 0, SIZE),
    ],
)
def test_a_part_of_a_file_comes(
    store: ObjectStore, asked: str, status: int, start: int, stop: int
) -> None:
    got, headers, body = ask(store, "/a.tar", Range=asked)
    assert (got, body) == (status, DATA[start:stop])
    whole = {206: f"bytes {start}-{stop - 1}/{SIZE}", 416: f"bytes */{SIZE}"}
    assert headers.get("Content-Range") == whole.get(status)
    assert headers["Content-Length"] == str(stop - start)


def test_what_a_client_has_already_is_not_sent_again(store: ObjectStore) -> None:
    _, headers, _ = ask(store, "/a.tar", method="HEAD")
    same = {"If_None_Match": headers["Etag"]}
    assert ask(store, "/a.tar", **same)[::2] == (304, b"")
    assert ask(store, "/a.tar", If_Modified_Since=headers["Last-Modified"])[0] == 304
    assert ask(store, "/a.tar", If_None_Match='"other"')[0] == 200


@pytest.mark.parametrize(
    ("token", "status", "said"), [("", 401, b"A token is needed"), ("wrong", 403, b"not the token")]
)
@pytest.mark.parametrize("path", ["/a.tar", "/", "/nothing", "/.counters", "/../secret"])
def test_without_the_token_all_paths_answer_alike(
    store: ObjectStore, token: str, status: int, said: bytes, path: str
) -> None:
    for method in ("GET", "HEAD"):
        got = ask(store, path, method=method, token=token)
        assert got[0] == status
        assert (said in got[2]) is (method == "GET")
    assert ask(store, f"{path}?token={token}", token="")[0] == status


def test_the_token_may_come_in_the_address(store: ObjectStore) -> None:
    assert ask(store, "/a.tar?token=right", token="")[2] == DATA
    assert ask(store, "/a.tar?token=right", token="wrong")[0] == 403
    assert ask(store, "/a.tar?token=%ff%00", token="")[0] in (400, 403)
    assert ask(store, "/a.tar", token="", Authorization="Basic cmlnaHQ=")[0] == 401


def test_pages_from_elsewhere_cannot_ask_through_a_name_of_theirs(store: ObjectStore) -> None:
    port = store.url.rpartition(":")[2]
    assert ask(store, "/a.tar", Host=f"evil.example:{port}")[0] == 403
    assert ask(store, "/a.tar", Host=f"localhost:{port}")[0] == 200
    assert ask(store, "/a.tar", Host="127.0.0.1.evil.example")[0] == 403
    assert "Access-Control-Allow-Origin" not in ask(store, "/a.tar")[1]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NEVER"])
def test_nothing_can_be_written(store: ObjectStore, folder: Path, method: str) -> None:
    for path in ("/a.tar", "/new", *(["/.counters"] if method != "DELETE" else [])):
        status, headers, body = ask(store, path, method=method, Content_Length="0")
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
        assert body == b"This store only reads; use GET or HEAD.\n"
    assert (folder / "a.tar").read_bytes() == DATA


OUTSIDE = [
    "/../secret",
    "/sub/../../secret",
    "/%2e%2e/secret",
    "/%2E%2E%2Fsecret",
    "/..%2fsecret",
    "/.%2e/secret",
    "/%252e%252e/secret",
    "/..%5csecret",
    "/..\\secret",
    "/sub/..%5c..%5csecret",
    "/../shards-of-others/secret",
    "/%2e%2e%00/secret",
    "/a.tar%00",
    "/a.tar%00.txt",
    "/....//secret",
    "/./a.tar",
    "/sub/../a.tar",
    "/sub//../../secret",
    "/..;/secret",
    "/%c0%ae%c0%ae/secret",
    "/.secret",
    "/%2esecret",
    "/.git/config",
    "/sub/..%2f.secret",
    "//etc/passwd",
    "/%2fetc%2fpasswd",
    "/C:%5cWindows%5cwin.ini",
    "/file:///etc/passwd",
    "/~root",
    "http://127.0.0.1/../secret",
    "http://127.0.0.1/etc/passwd",
    "*",
    "..",
    "../secret",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_the_folder_is_served(store: ObjectStore, path: str) -> None:
    refuses(store, path)


def test_the_whole_path_of_a_file_leads_nowhere(store: ObjectStore, folder: Path) -> None:
    for file in (folder / "a.tar", folder.parent / "secret"):
        refuses(store, file.as_posix())
        refuses(store, f"/{file.as_posix()}")
        refuses(store, f"/{quote(str(file), safe='')}")


def refuses(store: ObjectStore, path: str) -> None:
    for method in (b"GET", b"HEAD"):
        head = b"%s %s HTTP/1.1\r\nHost: localhost\r\n" % (method, path.encode())
        got = raw(store, head + b"Authorization: Bearer right\r\nConnection: close\r\n\r\n")
        assert got.split()[1] in (b"400", b"403", b"404")
        assert SECRET not in got
        assert b"root:" not in got
        assert DATA[:100] not in got


@pytest.mark.skipif(os.name == "nt", reason="Windows makes links for administrators only")
def test_links_serve_what_lies_inside_only(store: ObjectStore, folder: Path) -> None:
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
    try:
        for name, (target, _) in links.items():
            (folder / name).symlink_to(target)
        got = {name: ask(store, f"/{name}")[0] for name in links}
        assert got == {name: status for name, (_, status) in links.items()}
        assert ask(store, "/folder/secret")[0] == 403
        assert ask(store, "/beside/secret")[0] == 403
        assert ask(store, "/folder/shards/a.tar")[0] == 200  # it comes back inside
        listing = ask(store, "/")[2].decode()
        assert {name for name in links if f'href="/{name}' in listing} == {"in"}
    finally:
        for name in links:
            (folder / name).unlink(missing_ok=True)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_no_file_is_not_opened(store: ObjectStore, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    try:
        assert ask(store, "/pipe")[0] == 404
    finally:
        (folder / "pipe").unlink()


@pytest.mark.parametrize("path", ["/nothing", "/a.tar/", "/a.tar/x", "/" + "x" * 5_000])
def test_a_missing_file_is_one_sentence(store: ObjectStore, path: str) -> None:
    status, headers, body = ask(store, path)
    assert status == 404
    assert body == b"There is no such file here; ask for a name from the listing at /.\n"
    assert headers["Content-Type"] == "text/plain; charset=utf-8"


AS_NOBODY = """
import os, sys
from course_utils.hardware.object_store.server import serve
os.geteuid() or os.setuid(65534)  # root may read everything
say = lambda port: print(port, flush=True)
serve(sys.argv[1], None, token="right", ready=say, until_stdin_ends=True)
"""


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """Return a folder that others may enter: all those above `tmp_path` keep them out."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.name == "nt", reason="Windows locks files in other ways")
def test_what_may_not_be_read_is_refused_without_its_path(open_to_all: Path) -> None:
    (open_to_all / "locked").mkdir()
    for name in ("locked.tar", "locked/a.tar"):
        (open_to_all / name).touch(mode=0)
    (open_to_all / "locked").chmod(0)
    command = [sys.executable, "-c", AS_NOBODY, str(open_to_all)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            for name in ("locked", "locked/", "locked.tar"):
                refused = b"This cannot be read here; ask for something else.\n"
                assert ask(url, f"/{name}")[::2] == (403, refused)
            assert ask(url, "/locked/a.tar")[0] == 404
        finally:
            (open_to_all / "locked").chmod(0o755)
            _, logged = server.communicate(timeout=20)
    assert logged == ""


def test_a_listing_has_what_can_be_had(store: ObjectStore) -> None:
    page = ask(store, "/?token=right", token="")[2].decode()
    assert 'href="/a.tar?token=right"' in page
    assert 'href="/sub/?token=right"' in page
    assert "secret" not in page
    assert "right" not in ask(store, "/")[2].decode()  # who sent a header sends it again
    assert "&amp; &lt;b&gt;.tar" in ask(store, "/sub")[2].decode()
    with urllib.request.urlopen(store.url_of("sub/name with ä & <b>.tar")) as answer:
        assert answer.read() == b"b"


def test_fsspec_lists_finds_and_reads(store: ObjectStore) -> None:
    fs = fsspec.filesystem("http", headers=store.headers, skip_instance_cache=True)
    assert fs.glob(f"{store.url}/*.tar") == [f"{store.url}/a.tar"]
    assert len(fs.find(store.url)) == 3
    assert fs.size(f"{store.url}/a.tar") == SIZE
    assert fs.cat_file(f"{store.url}/a.tar", start=10, end=20) == DATA[10:20]
    with fs.open(f"{store.url}/a.tar", block_size=2**16) as file:
        file.seek(200_000)
        assert file.read(1_000) == DATA[200_000:201_000]


def test_a_changed_file_is_another_one_to_who_had_the_first(
    store: ObjectStore, folder: Path
) -> None:
    changing = folder / "changing"
    changing.write_bytes(b"first")
    try:
        _, first, _ = ask(store, "/changing")
        changing.unlink()
        changing.write_bytes(b"second version")
        status, second, body = ask(store, "/changing", If_None_Match=first["Etag"])
        assert (status, body) == (200, b"second version")
        part = {"Range": "bytes=6-"}
        assert ask(store, "/changing", If_Range=second["Etag"], **part)[::2] == (206, b" version")
        assert ask(store, "/changing", If_Range=first["Etag"], **part)[::2] == (200, body)
    finally:
        changing.unlink()
    assert ask(store, "/changing")[0] == 404


def test_a_request_that_cannot_be_read_harms_nobody(store: ObjectStore) -> None:
    host = b"Host: localhost\r\nAuthorization: Bearer right\r\n"
    for request in (
        b"GET /a.tar HTTP/1.1\r\n" + host + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
        b"GET /a.tar\r\n\r\n",
        b"GET  HTTP/1.1\r\n" + host + b"\r\n",
        b"\0" * 100_000,
        b"GET /a.tar HTTP/1.1\r\n" + host + b"Content-Length: 999999999999\r\n\r\n",
        b"GET /a.tar HTTP/1.1\r\n" + host + b"Content-Length: -1\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n",
        b"GET /a.tar HTTP/1.1\r\n" + host,
    ):
        try:
            got = raw(store, request, hang_up=True)
        except ConnectionError:
            got = b""
        assert DATA[:100] not in got
    assert ask(store, "/a.tar")[2] == DATA


def test_eight_readers_at_once_get_the_right_bytes(store: ObjectStore) -> None:
    store.reset_counters()
    cuts = np.random.default_rng(1).integers(0, SIZE, (80, 2))

    def reads_right(cut: np.ndarray) -> bool:
        start, stop = sorted(map(int, cut))
        got = ask(store, "/a.tar", Range=f"bytes={start}-{stop}")[2]
        return hashlib.sha256(got).digest() == hashlib.sha256(DATA[start : stop + 1]).digest()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(reads_right, cuts))
    seen = store.counters()
    assert (seen.requests, seen.lookups) == (80, 0)
    assert seen.bytes_sent == sum(abs(int(a) - int(b)) + 1 for a, b in cuts)


def test_a_client_that_leaves_in_the_middle_costs_no_more(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(50_000_000))
    with object_store(tmp_path, None) as store:
        for _ in range(3):
            with urllib.request.urlopen(store.url_of("large")) as answer:
                answer.read(10)
        ask(store, "/large", token=store.token, Range="bytes=0-9")
        assert store.counters().bytes_sent < 150_000_000


def test_only_what_came_with_the_token_and_is_there_counts(store: ObjectStore) -> None:
    store.reset_counters()
    ask(store, "/a.tar", token="wrong")
    ask(store, "/a.tar", method="POST")
    ask(store, "/.counters", method="DELETE", token="wrong")
    ask(store, "/nothing")
    ask(store, "/a.tar")
    ask(store, "/", method="HEAD")
    ask(store, "/")
    assert (store.counters().requests, store.counters().lookups) == (1, 2)
