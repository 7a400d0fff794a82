"""Shards read to their last byte: over connections that break, or with an error that says what."""

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
from course_utils.loading.shards import (
    decode_image,
    open_shards,
    read_members,
    stream_shards,
    write_shards,
)

KEYS = [f"{number:03d}" for number in range(40)]
SIZE = 50_000  # bytes of a sample


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one shard of 2 MB in it. Do not write into it."""
    folder = tmp_path_factory.mktemp("data") / "shards"
    samples = ({"__key__": key, "bin": bytes([number]) * SIZE} for number, key in enumerate(KEYS))
    write_shards(samples, folder, per_shard=40)
    return folder


@pytest.fixture
def shard(shards: Path, tmp_path: Path) -> Path:
    """Return a copy of the shard, without its list."""
    path = tmp_path / "copy.tar"
    path.write_bytes((shards / "shard-000000.tar").read_bytes())
    return path


@pytest.fixture
def breaking(shards: Path) -> Iterator[ObjectStore]:
    """Return a store that breaks off the first answer after 300,000 bytes."""
    with object_store(shards, None, break_after=300_000) as store:
        yield store


def read(url: object, listed: dict[str, int] | None = None, **options: Any) -> list[str]:
    """Return the keys in a shard, of which a list may say something."""
    opened = open_shards([{"url": str(url), **(listed or {})}], **options)
    return [sample["__key__"] for sample in group_by_keys(read_members(opened))]


def change(shard: Path, at: int) -> None:
    content = bytearray(shard.read_bytes())
    content[at] ^= 1
    shard.write_bytes(content)


@pytest.mark.parametrize("request_bytes", [77, 1000, 10_000, 10_240, 10**8])
def test_every_size_of_request_gives_the_same_samples(request_bytes: int, tmp_path: Path) -> None:
    samples = [{"__key__": f"{number}", "bin": bytes([number]) * 700} for number in range(9)]
    (path,) = write_shards(samples, tmp_path, per_shard=9)
    opened = open_shards([{"url": str(path)}], request_bytes=request_bytes)
    found = list(group_by_keys(read_members(opened)))
    assert [sample["bin"] for sample in found] == [sample["bin"] for sample in samples]


def test_a_broken_connection_is_gone_on_from_where_it_broke(breaking: ObjectStore) -> None:
    waited: list[float] = []
    url = f"{breaking.url}/shard-000000.tar"
    found = read(url, headers=breaking.headers, request_bytes=500_000, wait=waited.append)
    counters = breaking.counters()
    assert found == KEYS
    assert waited == [0.1]
    assert counters.broken == 1
    assert counters.requests == 1 + 1 + 4  # the broken one, half as much again, the rest
    assert counters.lookups == 1


def test_a_server_that_was_killed_is_gone_on_with_once_it_is_back(shards: Path) -> None:
    with object_store(shards, None) as store:
        reading = partial(
            open_shards,
            headers=store.headers,
            request_bytes=500_000,
            wait=lambda seconds: store.restart(),
        )
        samples = group_by_keys(read_members(reading([{"url": f"{store.url}/shard-000000.tar"}])))
        first = next(samples)
        store.kill()

        assert [first["__key__"], *(sample["__key__"] for sample in samples)] == KEYS


def test_a_server_that_stays_away_is_named_with_the_byte(shards: Path) -> None:
    waited: list[float] = []
    with object_store(shards, None) as store:
        url = f"{store.url}/shard-000000.tar"
        options = {"headers": store.headers, "request_bytes": 500_000, "wait": waited.append}
        samples = group_by_keys(read_members(open_shards([{"url": url}], **options)))
        next(samples)
        store.kill()
        message = rf"{url} cannot be read from byte 500,000 on, after 5 attempts \(.+\); see that"
        with pytest.raises(ConnectionError, match=message):
            list(samples)
    assert waited == [0.1, 0.2, 0.4, 0.8]
    with pytest.raises(ConnectionError, match="from byte 0 on"):
        read(url, wait=waited.append)


def never(seconds: float) -> None:
    raise AssertionError


def test_a_wrong_token_and_a_wrong_address_are_said_at_once(breaking: ObjectStore) -> None:
    url = f"{breaking.url}/nothing.tar"
    with pytest.raises(PermissionError, match="without the right token or key; look at"):
        stream_shards(breaking.url, headers={"Authorization": "Bearer wrong"})
    with pytest.raises(PermissionError, match="without the right token"):
        read(f"{breaking.url}/shard-000000.tar", wait=never)
    for listed in ({}, {"bytes": 1000}):
        with pytest.raises(FileNotFoundError, match=rf"There is no {url}; look at the address"):
            read(url, listed, headers=breaking.headers, wait=never)


class Quiet(SimpleHTTPRequestHandler):
    """Sends whole files, whatever is asked for, and keeps what was."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        del self.headers["Range"]
        super().do_GET()

    def log_message(self, *args: Any) -> None:
        pass


class Busy(Quiet):
    """Sends nothing."""

    def do_GET(self) -> None:
        self.send_error(503, "Busy")


@contextmanager
def serving(folder: Path, handler: type[Quiet] = Quiet) -> Iterator[tuple[str, list[str]]]:
    """Give the address of a server in a thread, and the paths that it is asked for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", server.asked  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            thread.join()


def test_a_server_without_range_is_asked_for_a_whole_shard_once(shards: Path) -> None:
    with (
        serving(shards) as (url, asked),
        pytest.raises(UnsupportedOperation, match=r"take a server that understands Range\.$"),
    ):
        read(f"{url}/shard-000000.tar", request_bytes=500_000, wait=never)
    assert asked == ["/shard-000000.tar"]


def test_a_server_without_range_will_do_where_a_request_is_for_all_of_a_shard(
    shards: Path,
) -> None:
    with serving(shards) as (url, _):
        assert read(f"{url}/shard-000000.tar", wait=never) == KEYS


def stays_away(store: ObjectStore) -> None:
    stream = stream_shards(f"{store.url}/?token={store.token}")
    store.kill()
    read(stream.shards[0].url, {"bytes": 1000}, wait=[].append)


@pytest.mark.parametrize(
    "fails",
    [
        lambda store: read(store.url_of("nothing.tar")),
        lambda store: stream_shards(f"{store.url}/nothing/?token={store.token}"),
        lambda store: read(store.url_of("shard-000000.tar"), {"bytes": 10**7}, wait=[].append),
        lambda store: read(store.url_of("shard-000000.tar"), {"crc32": 1}, wait=[].append),
        lambda store: read(store.url_of("shards.json")),
        stays_away,
    ],
    ids=["missing", "missing folder", "shorter than listed", "checksum", "no tar", "stays away"],
)
def test_no_message_tells_the_token(
    fails: Callable[[ObjectStore], None], breaking: ObjectStore
) -> None:
    with pytest.raises(OSError, match="http://") as error:
        fails(breaking)
    # a worker's error reaches the main process with all of its traceback
    assert breaking.token not in "".join(traceback.format_exception(error.value))


def test_a_status_is_said_without_the_address_that_holds_the_token(shards: Path) -> None:
    message = r"after 5 attempts \(503, message='Busy', url='http[^?]*tar'\); see that the server"
    with serving(shards, Busy) as (url, _):
        address = f"{url}/a.tar?token=abc"  # in a line that no traceback quotes
        with pytest.raises(ConnectionError, match=message) as error:
            read(address, {"bytes": 1000}, wait=[].append)
    assert "abc" not in "".join(traceback.format_exception(error.value))


def cut(shard: Path, at: int) -> None:
    shard.write_bytes(shard.read_bytes()[:at])


HEADER = [offset * (SIZE // 512 + 2) * 512 for offset in range(40)]  # of each member
DAMAGE: dict[str, Callable[[Path], None]] = {
    "cut in a sample": lambda shard: cut(shard, 1_000_000),
    "cut between samples": lambda shard: cut(shard, HEADER[20]),
    "cut in a header": lambda shard: cut(shard, HEADER[20] + 100),
    "cut at its end": lambda shard: cut(shard, HEADER[39] + 512 + SIZE + 400),
    "flip in a header": lambda shard: change(shard, HEADER[20] + 10),
    "flip in the last header": lambda shard: change(shard, HEADER[39] + 10),
    "empty": lambda shard: cut(shard, 0),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_shard_that_is_not_whole_is_an_error(damage: str, shard: Path) -> None:
    with tarfile.open(shard) as archive:
        assert [member.offset for member in archive] == HEADER
    DAMAGE[damage](shard)
    with pytest.raises(OSError, match=r"copy\.tar is cut off or corrupted near byte [\d,]+; write"):
        read(shard)


@pytest.mark.parametrize("damage", ["cut between samples", "flip in a header"])
def test_tarfile_itself_takes_the_same_shard_for_whole(damage: str, shard: Path) -> None:
    DAMAGE[damage](shard)
    with tarfile.open(shard, "r|") as archive:
        assert len(list(archive)) == 20


def test_a_shard_without_samples_serves_none(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    assert read(tmp_path / "empty.tar") == []


def damaged(shards: Path, folder: Path, damage: Callable[[Path], None]) -> Path:
    for path in shards.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    damage(folder / "shard-000000.tar")
    return folder


def test_with_the_list_a_flipped_bit_in_a_sample_is_an_error_too(
    shards: Path, tmp_path: Path
) -> None:
    folder = damaged(shards, tmp_path, lambda shard: change(shard, 1_000_000))
    assert len(list(stream_shards(folder / "shard-000000.tar"))) == 40  # nobody notices
    with pytest.raises(OSError, match=r"shard-000000\.tar is not what was written, its CRC-"):
        list(stream_shards(folder))


def test_with_the_list_a_shorter_file_is_an_error_where_it_ends(
    shards: Path, tmp_path: Path
) -> None:
    folder = damaged(shards, tmp_path, DAMAGE["cut in a sample"])
    with pytest.raises(OSError, match=r"from byte 1,000,000 on: it ends there, but should have"):
        list(stream_shards(folder))
    with object_store(folder, None) as store:
        stream = stream_shards(store.url, headers=store.headers)
        with pytest.raises(OSError, match=r"cannot be read from byte 1,000,000 on: .*fetch the"):
            list(stream)


def test_a_flipped_bit_in_a_jpeg_may_be_another_image_without_an_error(
    images_folder: Path, tmp_path: Path
) -> None:
    content = bytearray(next(images_folder.glob("*/*.jpg")).read_bytes())
    whole = decode_image({"jpg": bytes(content), "cls": b"0"})[0]
    content[len(content) // 2] ^= 1
    other = decode_image({"jpg": bytes(content), "cls": b"0"})[0]
    assert whole.shape == other.shape
    assert not whole.equal(other)
