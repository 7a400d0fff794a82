import multiprocessing
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import webdataset as wds
from webdataset.tariterators import group_by_keys

from course_utils.hardware.object_store import ObjectStore, object_store
from course_utils.hardware.storage import slow_storage
from course_utils.loading.shards import decode_event, event_samples, stream_shards, write_shards
from course_utils.loading.shards.stream import TarStream, open_shards, read_members
from course_utils.measure.trace import record
from tests.loading.ranks import MORE_WORKERS_THAN_CORES, event_ids, load, set_rank

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


def keys(stream: TarStream) -> list[int]:
    return [int(sample["__key__"]) for sample in stream]


@pytest.mark.slow
@pytest.mark.filterwarnings(MORE_WORKERS_THAN_CORES)
@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
def test_all_workers_of_all_ranks_together_serve_every_sample_once(
    num_workers: int, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for world_size in (1, 2, 3):
        served: Counter[int] = Counter()
        for rank in range(world_size):
            set_rank(monkeypatch, rank, world_size)
            stream = stream_shards(shards, decode=decode_event, buffer=50)
            with record() as trace:
                for _ in trace.batches(load(stream, num_workers), ids="event_id"):
                    pass
            assert trace.samples == len(stream)
            assert trace.served == stream.count_batches(32, num_workers=num_workers)
            served.update(trace.sample_ids)  # type: ignore[arg-type]
        assert set(served.values()) == {1}
        assert len(served) == 600


@pytest.mark.slow
def test_workers_without_a_shard_serve_nothing(shards: Path) -> None:
    one = sorted(shards.glob("*.tar"))[:1]
    stream = stream_shards(one, decode=decode_event)

    assert len(set(event_ids(load(stream, 2)))) == 47


def test_ranks_without_a_shard_serve_nothing(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = sorted(shards.glob("*.tar"))[:2]
    counts = []
    for rank in range(3):
        set_rank(monkeypatch, rank, 3)
        counts.append(len(keys(stream_shards(two))))

    assert sorted(counts) == [0, 47, 47]


@pytest.mark.slow
def test_persistent_workers_of_a_rank_stream_its_samples_over_http_and_see_the_epoch(
    start_method: str, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if start_method == "forkserver":
        from multiprocessing import forkserver  # does not exist on Windows

        forkserver.ensure_running()  # so its workers inherit an environment without the rank
    set_rank(monkeypatch, 1, 2)
    stream = stream_shards(store.url, headers=store.headers, decode=decode_event, buffer=50)
    store.reset_counters()
    loader = load(stream, 2, multiprocessing_context=start_method, persistent_workers=True)
    orders = []
    for epoch in (0, 1, 0):
        stream.set_epoch(epoch)
        orders.append(event_ids(loader))
    set_rank(monkeypatch, 0, 2)
    stream.set_epoch(0)
    others = event_ids(load(stream))
    counters = store.counters()

    assert orders[0] == orders[2] != orders[1]
    assert len(set(orders[0] + others)) == len(orders[0] + others) == 600
    assert (counters.requests, counters.lookups) == (3 * 6 + 7, 0)


def test_the_order_hangs_on_seed_and_epoch(shards: Path) -> None:
    stream, other = (stream_shards(shards, seed=seed) for seed in (0, 1))
    first = keys(stream)
    stream.set_epoch(1)

    assert first == keys(stream_shards(shards)) != keys(stream)
    assert first != keys(other)
    assert sorted(first) == IDS


def test_nothing_is_shuffled_if_nothing_is_asked_for(shards: Path) -> None:
    assert keys(stream_shards(shards, shuffle_shards=False, buffer=1)) == IDS


def test_the_buffer_holds_bytes_and_what_is_drawn_is_decoded(shards: Path) -> None:
    decoded: list[str] = []
    stream = stream_shards(
        shards, buffer=100, decode=lambda sample: decoded.append(sample["__key__"])
    )
    started = iter(stream)
    next(started)

    assert len(decoded) == 1


def test_a_pattern_a_list_and_a_folder_are_the_same_shards(shards: Path) -> None:
    pattern = stream_shards(f"{shards}/shard-{{000000..000012}}.tar")
    listed = stream_shards(sorted(shards.glob("*.tar")))

    assert keys(pattern) == keys(listed) == keys(stream_shards(str(shards)))


def test_only_a_folder_knows_its_length(shards: Path) -> None:
    one = stream_shards(shards / "shard-000000.tar")

    assert len(stream_shards(shards)) == 600
    with pytest.raises(TypeError, match=r"give the folder that has their shards\.json"):
        len(one)
    with pytest.raises(TypeError, match="do not say how many"):
        one.count_batches(32)
    assert (
        len(event_ids(load(stream_shards(shards / "shard-000000.tar", decode=decode_event)))) == 47
    )


@pytest.mark.parametrize(
    ("urls", "options", "error", "message"),
    [
        ([], {}, ValueError, "no shards to stream"),
        ("nowhere", {}, FileNotFoundError, r"There is no nowhere/shards\.json; look at"),
        ("a.tar", {"buffer": 0}, ValueError, "buffer=0 cannot be"),
        ("a.tar", {"request_bytes": 0}, ValueError, "request_bytes=0 cannot be"),
    ],
    ids=["nothing", "nowhere", "buffer", "request"],
)
def test_what_cannot_be_is_refused(
    urls: Any, options: dict[str, int], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        stream_shards(urls, **options)


def test_a_shard_that_fits_into_a_request_is_one_request(shards: Path) -> None:
    storage = slow_storage(shards, "laptop SSD", cache_mb=0)
    stream = stream_shards(shards, fs=storage)
    storage.reset_counters()
    keys(stream)
    counters = storage.counters()

    assert (counters.requests, counters.opens) == (13, 13)
    assert counters.bytes_read == sum(path.stat().st_size for path in shards.glob("*.tar"))


def test_workers_of_slow_storage_share_its_counters(shards: Path) -> None:
    storage = slow_storage(shards, "laptop SSD", cache_mb=0)
    stream = stream_shards(shards, fs=storage, decode=decode_event)
    storage.reset_counters()
    ids = event_ids(load(stream, 2))

    assert len(set(ids)) == len(ids) == 600
    assert storage.counters().requests == 13


def test_a_copy_for_a_worker_streams_from_the_same_storage(shards: Path) -> None:
    storage = slow_storage(shards, "laptop SSD", cache_mb=0)
    copy = pickle.loads(pickle.dumps(stream_shards(shards, fs=storage)))
    storage.reset_counters()

    assert sorted(keys(copy)) == IDS
    assert storage.counters().requests == 13


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

    assert [int(sample["__key__"]) for sample in data] == IDS
    assert pickle.loads(pickle.dumps(data)).pipeline[2] is open_shards


@pytest.mark.slow
def test_leaving_early_leaves_no_worker(shards: Path) -> None:
    for batch in load(stream_shards(shards, decode=decode_event), 2):
        assert len(batch["event_id"]) == 32
        break
    del batch

    assert multiprocessing.active_children() == []
