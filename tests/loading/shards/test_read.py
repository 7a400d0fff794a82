"""Reading shards to their last byte, over broken connections, or with a precise error."""

import tarfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import UnsupportedOperation
from pathlib import Path
from typing import Any

import pytest
from webdataset.tariterators import group_by_keys

from course_utils.hardware.object_store import ObjectStore, object_store
from course_utils.loading.shards import open_shards, read_members, stream_shards, write_shards
from course_utils.loading.shards import read as module

KEYS = [f"{number:03d}" for number in range(40)]
SIZE = 50_000  # bytes per sample


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one shard of 2 MB. Do not write to it."""
    folder = tmp_path_factory.mktemp("data") / "shards"
    samples = ({"__key__": key, "bin": bytes([number]) * SIZE} for number, key in enumerate(KEYS))
    write_shards(samples, folder, per_shard=40)
    return folder


@pytest.fixture
def breaking(shards: Path) -> Iterator[ObjectStore]:
    """Return a store that breaks off the first answer after 300,000 bytes."""
    with object_store(shards, None, break_after=300_000) as store:
        yield store


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Use requests of 500,000 bytes, and list the delays between attempts instead of waiting."""
    seconds: list[float] = []
    monkeypatch.setattr(module, "_REQUEST_BYTES", 500_000)
    monkeypatch.setattr(module, "sleep", seconds.append)
    return seconds


def samples(url: object, listed: dict[str, int] | None = None, **options: Any) -> Iterator[Any]:
    """Yield the samples in a shard, described by entries of a list if given."""
    opened = open_shards([{"url": str(url), **(listed or {})}], **options)
    found: Iterator[Any] = group_by_keys(read_members(opened))
    return found


def read(url: object, listed: dict[str, int] | None = None, **options: Any) -> list[str]:
    return [sample["__key__"] for sample in samples(url, listed, **options)]


@pytest.mark.parametrize("request_bytes", [77, 1000, 10_240, 10**8])
def test_every_size_of_request_gives_the_same_samples(
    request_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REQUEST_BYTES", request_bytes)
    written = [{"__key__": f"{number}", "bin": bytes([number]) * 700} for number in range(9)]
    (path,) = write_shards(written, tmp_path, per_shard=9)
    assert [sample["bin"] for sample in samples(path)] == [sample["bin"] for sample in written]


def test_reading_resumes_after_a_broken_connection(
    breaking: ObjectStore, waited: list[float]
) -> None:
    assert read(f"{breaking.url}/shard-000000.tar", headers=breaking.headers) == KEYS
    counters = breaking.counters()
    assert waited == [0.1]
    assert counters.broken == 1
    assert counters.requests == 1 + 1 + 4  # the broken one, its half, the rest
    assert counters.lookups == 1


def test_reading_resumes_after_a_restart_or_names_the_byte(
    shards: Path, waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_store(shards, None) as store:
        url = f"{store.url}/shard-000000.tar"
        found = samples(url, headers=store.headers)
        next(found)
        store.kill()
        message = rf"{url} from byte 500,000 failed 5 times \(.+\)\. Check that"
        with pytest.raises(ConnectionError, match=message):
            list(found)
        assert waited == [0.1, 0.2, 0.4, 0.8]

        monkeypatch.setattr(module, "sleep", lambda seconds: store.restart())
        assert read(url, headers=store.headers) == KEYS


def test_wrong_token_and_wrong_url_fail_immediately(
    breaking: ObjectStore, waited: list[float]
) -> None:
    url = f"{breaking.url}/nothing.tar"
    with pytest.raises(PermissionError, match=r"without the right token or key\. Check the"):
        stream_shards(breaking.url, headers={"Authorization": "Bearer wrong"})
    for listed in ({}, {"bytes": 1000}):
        with pytest.raises(FileNotFoundError, match=rf"{url} does not exist\. Check the URL"):
            read(url, listed, headers=breaking.headers)
    assert waited == []


class Quiet(SimpleHTTPRequestHandler):
    """Send complete files, whatever range is requested."""

    def do_GET(self) -> None:
        del self.headers["Range"]
        super().do_GET()

    def log_message(self, *args: Any) -> None:
        pass


class Busy(Quiet):
    """Answer with status 503."""

    def do_GET(self) -> None:
        self.send_error(503, "Busy")


@contextmanager
def serving(folder: Path, handler: type[Quiet] = Quiet) -> Iterator[str]:
    """Yield the URL of a server in a thread."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/shard-000000.tar"
        finally:
            server.shutdown()
            thread.join()


def test_server_without_range_works_for_complete_shards(
    shards: Path, waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(shards) as url:
        with pytest.raises(
            UnsupportedOperation, match=r"Use a server that supports Range requests\.$"
        ):
            read(url)
        monkeypatch.setattr(module, "_REQUEST_BYTES", 10**7)
        assert read(url) == KEYS
    assert waited == []


def stays_away(store: ObjectStore) -> None:
    stream = stream_shards(f"{store.url}/?token={store.token}")
    store.kill()
    read(stream.shards[0].url, {"bytes": 1000})


@pytest.mark.parametrize(
    "fails",
    [
        lambda store: stream_shards(f"{store.url}/nothing/?token={store.token}"),
        lambda store: read(store.url_of("shard-000000.tar"), {"bytes": 10**7}),
        lambda store: read(store.url_of("shard-000000.tar"), {"crc32": 1}),
        lambda store: read(store.url_of("shards.json")),
        stays_away,
    ],
    ids=["missing folder", "shorter than listed", "checksum", "no tar", "stays away"],
)
def test_messages_do_not_contain_the_token(
    fails: Callable[[ObjectStore], None], breaking: ObjectStore
) -> None:
    with pytest.raises(OSError, match="http://") as error:
        fails(breaking)
    # a worker's error reaches the main process with its full traceback
    assert breaking.token not in "".join(traceback.format_exception(error.value))


def test_status_is_reported_without_the_url_of_the_token(shards: Path) -> None:
    message = r"failed 5 times \(503, message='Busy', url='http[^?]*tar'\)\. Check that the server"
    with serving(shards, Busy) as url:
        address = f"{url}?token=abc"  # a line that tracebacks do not quote
        with pytest.raises(ConnectionError, match=message) as error:
            read(address, {"bytes": 1000})
    assert "abc" not in "".join(traceback.format_exception(error.value))


def cut(content: bytearray, at: int) -> None:
    del content[at:]


def flip(content: bytearray, at: int) -> None:
    content[at] ^= 1


HEADER = [offset * (SIZE // 512 + 2) * 512 for offset in range(40)]  # offset of each member
DAMAGE = {
    "cut in a sample": (cut, 1_000_000),
    "cut between samples": (cut, HEADER[20]),
    "cut in a header": (cut, HEADER[20] + 100),
    "cut at its end": (cut, HEADER[39] + 512 + SIZE + 400),
    "flip in a header": (flip, HEADER[20] + 10),
    "flip in the last header": (flip, HEADER[39] + 10),
    "empty": (cut, 0),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_shard_raises_an_error(damage: str, shards: Path, tmp_path: Path) -> None:
    content, copy = bytearray((shards / "shard-000000.tar").read_bytes()), tmp_path / "copy.tar"
    change, at = DAMAGE[damage]
    change(content, at)
    copy.write_bytes(content)
    with pytest.raises(
        OSError, match=r"copy\.tar is truncated or corrupted near byte [\d,]+\. Write"
    ):
        read(copy)
    if damage in ("cut between samples", "flip in a header"):  # Python's tarfile accepts it
        with tarfile.open(copy, "r|") as archive:
            assert len(list(archive)) == 20


def test_empty_shard_serves_no_samples(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    assert read(tmp_path / "empty.tar") == []


def test_list_detects_flipped_bits_and_shorter_files(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "shards.json").write_bytes((shards / "shards.json").read_bytes())
    shard, content = (
        tmp_path / "shard-000000.tar",
        bytearray((shards / "shard-000000.tar").read_bytes()),
    )
    flip(content, 1_000_000)
    shard.write_bytes(content)
    assert len(list(stream_shards(shard))) == 40  # not detected without the list
    with pytest.raises(OSError, match=r"shard-000000\.tar has changed: its CRC-"):
        list(stream_shards(tmp_path))

    shard.write_bytes(content[:1_000_000])
    with pytest.raises(OSError, match=r"from byte 1,000,000: the file ends there, but should have"):
        list(stream_shards(tmp_path))
    with object_store(tmp_path, None) as store:
        stream = stream_shards(store.url, headers=store.headers)
        with pytest.raises(OSError, match=r"Cannot read .* from byte 1,000,000: .*download it"):
            list(stream)
