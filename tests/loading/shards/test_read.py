import pickle
import tarfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from course_utils.hardware.object_store import object_store
from course_utils.hardware.storage import slow_storage
from course_utils.loading.shards import decode_event, event_samples, stream_shards, write_shards
from course_utils.loading.shards import read as module
from tests.loading.stream.ranks import event_ids, load

KEYS = [f"{number:03d}" for number in range(40)]
SIZE = 50_000  # bytes per sample


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one shard of 2 MB. Do not write to it."""
    folder = tmp_path_factory.mktemp("data") / "shards"
    samples = ({"__key__": key, "bin": bytes([number]) * SIZE} for number, key in enumerate(KEYS))
    write_shards(samples, folder, per_shard=40)
    return folder


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Use requests of 500,000 bytes, and list the delays between attempts instead of waiting."""
    seconds: list[float] = []
    monkeypatch.setattr(module, "_REQUEST_BYTES", 500_000)
    monkeypatch.setattr(module, "sleep", seconds.append)
    return seconds


def samples(url: object, **options: Any) -> Iterator[Any]:
    return iter(stream_shards([str(url)], shuffle_shards=False, buffer=1, **options))


def read(url: object, **options: Any) -> list[str]:
    return [sample["__key__"] for sample in samples(url, **options)]


def test_size_of_requests_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [{"__key__": f"{number}", "bin": bytes([number]) * 700} for number in range(9)]
    (path,) = write_shards(written, tmp_path, per_shard=9)
    for request_bytes in (77, 1000, 10_240, 10**8):
        monkeypatch.setattr(module, "_REQUEST_BYTES", request_bytes)
        found = [sample["bin"] for sample in samples(path)]
        assert found == [sample["bin"] for sample in written], request_bytes
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    assert read(tmp_path / "empty.tar") == []


def test_reading_resumes_after_a_broken_connection_and_a_restart(
    shards: Path, waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_store(shards, None, break_after=300_000) as store:
        url = f"{store.url}/shard-000000.tar"
        assert read(url, headers=store.headers) == KEYS
        counters = store.counters()
        assert (counters.broken, counters.requests, counters.lookups) == (1, 1 + 5, 1)
        assert waited == [0.1]
    with object_store(shards, None) as store:
        url = f"{store.url}/shard-000000.tar"
        found = samples(url, headers=store.headers)
        next(found)
        store.kill()
        message = rf"{url} from byte 500,000 failed 5 times \(.+\)\. Check that"
        with pytest.raises(ConnectionError, match=message):
            list(found)
        assert waited == [0.1, 0.1, 0.2, 0.4, 0.8]
        monkeypatch.setattr(module, "sleep", lambda seconds: store.restart())
        assert read(url, headers=store.headers) == KEYS


def refused(error: type[Exception], read_it: Callable[[], object], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        read_it()
    # a worker's error reaches the main process with its full traceback
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_errors_are_final_or_repeated_and_never_show_the_token(
    shards: Path, waited: list[float], tmp_path: Path
) -> None:
    with object_store(shards, None) as store:
        options, query = {"headers": store.headers}, "?token=secret"
        wrong = {"headers": {"Authorization": "Bearer secret"}}
        key = r"denied without the right token or key\. Check the"
        refused(PermissionError, lambda: stream_shards(store.url, **wrong), key)
        refused(PermissionError, lambda: read(f"{store.url}/shard-000000.tar{query}"), key)
        gone = rf"^{store.url}/nothing.tar does not exist\. Check the URL"
        address = f"{store.url}/nothing.tar{query}"
        refused(FileNotFoundError, lambda: read(address, **options), gone)
        assert waited == []
        other = f"{store.url}/shards.json{query}"
        refused(OSError, lambda: read(other, **options), r"shards\.json: it is truncated or corr")
    refused(FileNotFoundError, lambda: stream_shards("nowhere"), r"nowhere/shards\.json does not")
    refused(ValueError, lambda: stream_shards([]), "no shards to stream")
    (tmp_path / "a.tar").write_bytes(b"<!doctype html>" * 100)
    refused(OSError, lambda: read(tmp_path / "a.tar"), r"a\.tar: it is a web page\. Write or dow")


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


def test_damaged_shard_raises_an_error(shards: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.tar"
    for damage, (change, at) in DAMAGE.items():
        content = bytearray((shards / "shard-000000.tar").read_bytes())
        change(content, at)
        copy.write_bytes(content)
        with pytest.raises(OSError, match=r"copy\.tar: .*(empty|byte [\d,]+)"):
            pytest.fail(f"{damage}: {len(read(copy))} samples")
        if damage in ("cut between samples", "flip in a header"):  # Python's tarfile accepts it
            with tarfile.open(copy, "r|") as archive:
                assert len(list(archive)) == 20


def test_list_detects_flipped_bits_and_shorter_files(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "shards.json").write_bytes((shards / "shards.json").read_bytes())
    shard = tmp_path / "shard-000000.tar"
    content = bytearray((shards / "shard-000000.tar").read_bytes())
    flip(content, 1_000_000)
    shard.write_bytes(content)
    assert len(list(stream_shards([shard]))) == 40  # not detected without the list
    with pytest.raises(OSError, match=r"shard-000000\.tar: it has changed, because its CRC-"):
        list(stream_shards(tmp_path))
    shard.write_bytes(content[:1_000_000])
    with pytest.raises(OSError, match=r"from byte 1,000,000: the file ends there, but should have"):
        list(stream_shards(tmp_path))
    with object_store(tmp_path, None) as store:
        stream = stream_shards(store.url, headers=store.headers)
        with pytest.raises(OSError, match=r"Cannot read .* from byte 1,000,000: .*download it"):
            list(stream)


def test_list_and_folder_give_the_same_events_with_one_request_a_shard(
    events_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "shards"
    paths = write_shards(event_samples(events_folder), folder, per_shard=47)
    whole = stream_shards(folder)
    expected = [sample["__key__"] for sample in whole]
    assert [sample["__key__"] for sample in stream_shards(paths)] == expected
    assert len(whole) == 600
    with pytest.raises(TypeError, match=r"Pass the folder that contains their shards\.json"):
        len(stream_shards(paths))
    decoded: list[str] = []
    stream = stream_shards(folder, buffer=100, decode=lambda event: decoded.append(event))
    next(iter(stream))
    assert len(decoded) == 1  # the buffer contains bytes
    storage = slow_storage(folder, "laptop SSD", cache_mb=0)
    for num_workers in (0, 2):
        stream = pickle.loads(pickle.dumps(stream_shards(folder, fs=storage, decode=decode_event)))
        storage.reset_counters()
        assert sorted(event_ids(load(stream, num_workers))) == list(range(600))
        counters = storage.counters()
        assert (counters.requests, counters.opens) == (13, 13)
        assert counters.bytes_read == sum(path.stat().st_size for path in paths)
