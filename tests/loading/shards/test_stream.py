"""Streams of tar shards: accepted names, requests, and rejected arguments."""

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
    """Return a folder with 600 events in 13 shards. Do not write to it."""
    folder = tmp_path_factory.mktemp("data") / "shards"
    write_shards(event_samples(events_folder), folder, per_shard=47)
    return folder


def keys(stream: Any) -> list[int]:
    return [int(sample["__key__"]) for sample in stream]


def test_buffer_contains_bytes_that_are_decoded_later(shards: Path) -> None:
    decoded: list[str] = []
    stream = stream_shards(
        shards, buffer=100, decode=lambda sample: decoded.append(sample["__key__"])
    )
    next(iter(stream))
    assert len(decoded) == 1


def test_pattern_list_and_folder_give_the_same_shards(
    shards: Path,
) -> None:
    folder, pattern = stream_shards(shards), f"{shards}/shard-{{000000..000012}}.tar"
    expected = keys(folder)
    for urls in (pattern, sorted(shards.glob("*.tar"))):
        assert keys(stream_shards(urls)) == expected
    assert len(folder) == 600
    with pytest.raises(TypeError, match=r"Pass the folder that contains their shards\.json"):
        len(stream_shards(pattern))


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="no shards to stream"):
        stream_shards([])
    with pytest.raises(FileNotFoundError, match=r"nowhere/shards\.json does not exist\. Check"):
        stream_shards("nowhere")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_small_shard_is_one_request(num_workers: int, shards: Path) -> None:
    storage = slow_storage(shards, "laptop SSD", cache_mb=0)
    stream = pickle.loads(pickle.dumps(stream_shards(shards, fs=storage, decode=decode_event)))
    storage.reset_counters()
    assert sorted(event_ids(load(stream, num_workers))) == IDS
    counters = storage.counters()
    assert (counters.requests, counters.opens) == (13, 13)
    assert counters.bytes_read == sum(path.stat().st_size for path in shards.glob("*.tar"))


def test_url_with_a_token_needs_no_headers(shards: Path) -> None:
    with object_store(shards, None) as store:
        whole = stream_shards(store.url, headers=store.headers)
        printed = stream_shards(f"{store.url}/?token={store.token}")
        pattern = stream_shards(store.url_of("shard-{000000..000012}.tar"))
        assert len(printed) == 600
        assert keys(printed) == keys(pattern) == keys(whole)


def test_stages_work_in_a_webdataset_pipeline(shards: Path) -> None:
    urls = [str(path) for path in sorted(shards.glob("*.tar"))]
    data = wds.DataPipeline(
        wds.SimpleShardList(urls), wds.split_by_worker, open_shards, read_members, group_by_keys
    )
    assert keys(data) == IDS
    assert pickle.loads(pickle.dumps(data)).pipeline[2] is open_shards
