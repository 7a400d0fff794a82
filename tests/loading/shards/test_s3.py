"""Shards in a bucket: s3fs, which fsspec takes for s3://, and a server on this machine, moto."""

import logging
import pickle
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from moto import settings
from moto.server import ThreadedMotoServer
from torch.utils.data import DataLoader

from course_utils.loading.shards import stream_shards, write_shards

# botocore and moto call what Python or each other has deprecated
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.full]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def bucket(server: str, key: str = "a key") -> Any:
    return fsspec.filesystem("s3", key=key, secret="a secret", endpoint_url=server)


@pytest.fixture(scope="module")
def fs(server: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a storage with 40 samples in 5 shards below s3://course/shards."""
    folder = tmp_path_factory.mktemp("data") / "shards"
    samples = ({"__key__": f"{number:03d}", "cls": number} for number in range(40))
    write_shards(samples, folder, per_shard=8)
    fs = bucket(server)
    fs.mkdir("course")
    fs.put(str(folder), "course/shards", recursive=True)
    return fs


def number(sample: dict[str, Any]) -> int:
    return int(sample["cls"])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_every_sample_in_a_bucket_comes_once(num_workers: int, fs: Any) -> None:
    stream = stream_shards("s3://course/shards", fs=fs, decode=number)
    loader = DataLoader(stream, batch_size=None, num_workers=num_workers)
    assert sorted(loader) == list(range(40))
    assert len(stream) == 40


def test_a_copy_for_a_worker_streams_the_same(fs: Any) -> None:
    stream = stream_shards("s3://course/shards/shard-{000000..000004}.tar", fs=fs, decode=number)
    assert sorted(pickle.loads(pickle.dumps(stream))) == list(range(40))


@pytest.mark.parametrize("folder", ["s3://no-such-bucket/shards", "s3://course/nothing"])
def test_a_missing_bucket_or_folder_is_named(folder: str, fs: Any) -> None:
    with pytest.raises(FileNotFoundError, match=rf"There is no {folder}/shards\.json; look at"):
        stream_shards(folder, fs=fs)
    with pytest.raises(FileNotFoundError, match=rf"There is no {folder}/a\.tar"):
        list(stream_shards(f"{folder}/a.tar", fs=fs))


def test_a_wrong_key_is_named_as_such(
    fs: Any, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)  # now it looks at keys
    with pytest.raises(PermissionError, match=r"s3://course/shards/.* without the right token"):
        stream_shards("s3://course/shards", fs=bucket(server, "another key"))
