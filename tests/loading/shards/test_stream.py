"""Streams of tar shards: what they may be named by, what they ask for, and what they refuse."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import webdataset as wds
from webdataset.tariterators import group_by_keys

from course_utils.hardware.object_store import ObjectStore, object_store
from course_utils.hardware.storage import slow_storage
from course_utils.loading.shards import (
    decode_event,
    event_samples,
    open_shards,
    read_members,
    stream_shards,
    write_shards,
)
from tests.loading.stream.ranks import event_ids, load

IDS = list(range(600))


@pytest.fixture(scope="module")
def shards(events_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with 600 events in 13 shards. Do not write into it."""
    folder = tmp_path_factory.mktemp("data") / "shards"
    write_shards(event_samples(events_folder), folder, per_shard=47)
    return folder


@pytest.fixture(scope="module")
def store(shards: Path) -> Iterator[ObjectStore]:
    """Return a store without limits that serves the shards."""
    with object_store(shards, None) as store:
        yield store


def keys(stream: Any) -> list[int]:
    return [int(sample["__key__"]) for sample in stream]


def test_the_buffer_holds_bytes_and_what_is_drawn_is_decoded(shards: Path) -> None:
    decoded: list[str] = []
    stream = stream_shards(
        shards, buffer=100, decode=lambda sample: decoded.append(sample["__key__"])
    )
    next(iter(stream))
    assert len(decoded) == 1


def test_a_pattern_a_list_and_a_folder_are_the_same_shards(shards: Path) -> None:
    pattern = stream_shards(f"{shards}/shard-{{000000..000012}}.tar")
    listed = stream_shards(sorted(shards.glob("*.tar")))
    assert keys(pattern) == keys(listed) == keys(stream_shards(str(shards)))


def test_only_a_folder_knows_its_length(shards: Path) -> None:
    one = stream_shards(shards / "shard-000000.tar", decode=decode_event)
    assert len(stream_shards(shards)) == 600
    with pytest.raises(TypeError, match=r"give the folder that has their shards\.json"):
        len(one)
    with pytest.raises(TypeError, match="do not say how many"):
        one.count_batches(32)
    assert len(event_ids(load(one))) == 47


@pytest.mark.parametrize(
    ("urls", "options", "error", "message"),
    [
        ([], {}, ValueError, "no shards to stream"),
        ("nowhere", {}, FileNotFoundError, r"There is no nowhere/shards\.json; look at"),
        ("a.tar", {"request_bytes": 0}, ValueError, "request_bytes=0 cannot be"),
    ],
    ids=["nothing", "nowhere", "request"],
)
def test_what_cannot_be_is_refused(
    urls: Any, options: dict[str, int], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        stream_shards(urls, **options)


@pytest.mark.parametrize("how", ["here", "sent", "workers"])
def test_a_shard_that_fits_into_a_request_is_one_request_whoever_asks(
    how: str, shards: Path
) -> None:
    storage = slow_storage(shards, "laptop SSD", cache_mb=0)
    stream = stream_shards(shards, fs=storage, decode=decode_event)
    if how == "sent":
        stream = pickle.loads(pickle.dumps(stream))
    storage.reset_counters()
    ids = event_ids(load(stream, 2 if how == "workers" else 0))
    counters = storage.counters()
    assert sorted(ids) == IDS
    assert (counters.requests, counters.opens) == (13, 13)
    assert counters.bytes_read == sum(path.stat().st_size for path in shards.glob("*.tar"))


def test_an_address_that_holds_the_token_needs_no_headers(store: ObjectStore) -> None:
    pattern = stream_shards(store.url_of("shard-{000000..000001}.tar"))
    single = stream_shards(store.url_of("shard-000000.tar"))
    assert len(keys(pattern)) == 2 * len(keys(single)) == 94


def test_the_address_that_a_server_prints_is_that_of_a_folder(store: ObjectStore) -> None:
    stream = stream_shards(f"{store.url}/?token={store.token}")
    assert len(stream) == 600
    assert keys(stream) == keys(stream_shards(store.url, headers=store.headers))


def test_a_folder_with_a_question_mark_is_one_on_a_disk(tmp_path: Path) -> None:
    folder = tmp_path / "what?"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("no file has such a name here")
    write_shards([{"__key__": "7", "txt": "x"}], folder, per_shard=1)
    assert keys(stream_shards(folder)) == [7]


def test_the_stages_take_their_places_in_a_pipeline_of_webdataset(shards: Path) -> None:
    urls = [str(path) for path in sorted(shards.glob("*.tar"))]
    data = wds.DataPipeline(
        wds.SimpleShardList(urls), wds.split_by_worker, open_shards, read_members, group_by_keys
    )
    assert keys(data) == IDS
    assert pickle.loads(pickle.dumps(data)).pipeline[2] is open_shards
