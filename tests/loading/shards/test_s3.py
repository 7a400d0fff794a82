"""Shards in a bucket: s3fs, which fsspec uses for s3://, and moto, a local server."""

import logging
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from torch.utils.data import DataLoader

from course_utils.loading.shards import stream_shards, write_shards

# botocore and moto use features that Python or each other has deprecated
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.full]


@pytest.fixture
def server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def number(sample: dict[str, Any]) -> int:
    return int(sample["cls"])


def test_bucket_serves_every_sample_once_and_errors_are_named(
    server: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("data") / "shards"
    samples = ({"__key__": f"{number:03d}", "cls": number} for number in range(40))
    write_shards(samples, folder, per_shard=8)
    fs, stranger = (
        fsspec.filesystem("s3", key=key, secret="a secret", endpoint_url=server)
        for key in ("a key", "another key")
    )
    fs.mkdir("course")
    fs.put(str(folder), "course/shards", recursive=True)
    for urls in ("s3://course/shards", [f"s3://course/shards/shard-{n:06}.tar" for n in range(5)]):
        stream = stream_shards(urls, fs=fs, decode=number)
        for num_workers in (0, 2):
            loader = DataLoader(stream, batch_size=None, num_workers=num_workers)
            assert sorted(stream.follow(loader)) == list(range(40))
    for nowhere in ("s3://no-such-bucket/shards", "s3://course/nothing"):
        with pytest.raises(FileNotFoundError, match=rf"{nowhere}/shards\.json does not exist"):
            stream_shards(nowhere, fs=fs)
    monkeypatch.setattr("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0)  # makes moto check keys
    with pytest.raises(PermissionError, match=r"s3://course/shards/.* without the right token"):
        stream_shards("s3://course/shards", fs=stranger)
