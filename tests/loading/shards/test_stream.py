"""Streams of tar shards: what they may be named by, what they ask for, and what they refuse."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import webdataset as wds
from webdataset.tariterators import group_by_keys

from course_utils.hardware.object_store import object_store
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


def keys(stream: Any) -> list[int]:
    return [int(sample["__key__"]) for sample in stream]


def test_the_buffer_holds_bytes_and_what_is_drawn_is_decoded(shards: Path) -> None:
    decoded: list[str] = []
    stream = stream_shards(
        shards, buffer=100, decode=lambda sample: decoded.append(sample["__key__"])
    )
    next(iter(stream))
    assert len(decoded) == 1


def test_a_pattern_a_list_and_a_folder_are_the_same_shards_but_only_a_folder_knows_its_length(
    shards: Path,
) -> None:
    folder, pattern = stream_shards(shards), f"{shards}/shard-{{000000..000012}}.tar"
    expected = keys(folder)
    for urls in (pattern, sorted(shards.glob("*.tar"))):
        assert keys(stream_shards(urls)) == expected
    assert len(folder) == 600
    with pytest.raises(TypeError, match=r"give the folder that has their shards\.json"):
        len(stream_shards(pattern))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="no shards to stream"):
        stream_shards([])
    with pytest.raises(FileNotFoundError, match=r"There is no nowhere/shards\.json; look at"):
        stream_shards("nowhere")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_shard_that_fits_into_a_request_is_one_request_whoever_asks(
    num_workers: int, shards: Path
) -> None:
    storage = slow_storage(shards, "laptop SSD", cache_mb=0)
    stream = pickle.loads(pickle.dumps(stream_shards(shards, fs=storage, decode=decode_event)))
    storage.reset_counters()
    assert sorted(event_ids(load(stream, num_workers))) == IDS
    counters = storage.counters()
    assert (counters.requests, counters.opens) == (13, 13)
    assert counters.bytes_read == sum(path.stat().st_size for path in shards.glob("*.tar"))


def test_an_address_that_holds_the_token_needs_no_headers(shards: Path) -> None:
    with object_store(shards, None) as store:
        whole = stream_shards(store.url, headers=store.headers)
        printed = stream_shards(f"{store.url}/?token={store.token}")
        pattern = stream_shards(store.url_of("shard-{000000..000012}.tar"))
        assert len(printed) == 600
        assert keys(printed) == keys(pattern) == keys(whole)


def test_the_stages_take_their_places_in_a_pipeline_of_webdataset(shards: Path) -> None:
    urls = [str(path) for path in sorted(shards.glob("*.tar"))]
    data = wds.DataPipeline(
        wds.SimpleShardList(urls), wds.split_by_worker, open_shards, read_members, group_by_keys
    )
    assert keys(data) == IDS
    assert pickle.loads(pickle.dumps(data)).pipeline[2] is open_shards
