import json
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import urlparse

import numpy as np
import pytest
import webdataset as wds
from webdataset.filters import decode
from webdataset.tariterators import group_by_keys, tar_file_expander

from course_utils.loading.events import MemmapEvents
from course_utils.loading.shards import (
    decode_event,
    decode_image,
    event_samples,
    image_samples,
    stream_shards,
    url_of,
    write_shards,
)
from course_utils.loading.shards.write import Shard, read_list


def texts(count: int) -> list[dict[str, Any]]:
    return [{"__key__": f"{number:04d}", "txt": str(number)} for number in range(count)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_last_shard_has_the_remaining_samples(tmp_path: Path) -> None:
    paths = write_shards(texts(10), tmp_path / "set", per_shard=4)
    listed = read_list((tmp_path / "set/shards.json").read_text(), str(tmp_path / "set"))
    assert [Path(shard.url) for shard in listed] == paths
    assert [shard.samples for shard in listed] == [4, 4, 2]
    assert [shard.bytes for shard in listed] == [path.stat().st_size for path in paths]


def test_webdataset_reads_shards_without_owner_and_time(tmp_path: Path) -> None:
    written = {"__key__": "v1.0/b", "npy": np.arange(3), "cls": 7, "json": {"x": 1}}
    (path,) = write_shards([written], tmp_path, per_shard=1)
    with path.open("rb") as file:
        files = tar_file_expander([{"url": "", "stream": file}])
        (sample,) = decode()(group_by_keys(files))
    assert sample["npy"].tolist() == [0, 1, 2]
    assert (sample["__key__"], sample["cls"], sample["json"]) == ("v1.0/b", 7, {"x": 1})
    with tarfile.open(path) as archive:
        member = archive.getmembers()[0]
    assert (member.mtime, member.uid, member.uname) == (0, 0, "bigdata")


def test_events_are_restored_and_give_the_same_bytes_again(
    events_folder: Path, tmp_path: Path
) -> None:
    first, second = (
        write_shards(event_samples(events_folder), tmp_path / name, per_shard=300) for name in "ab"
    )
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    stream = stream_shards(first, decode=decode_event, shuffle_shards=False, buffer=1)
    truth = MemmapEvents(events_folder)
    for index, sample in enumerate(stream):
        wanted = truth[index]
        assert sample.keys() == wanted.keys()
        assert all(np.array_equal(sample[name], wanted[name]) for name in wanted)
    assert index == 599


def test_images_are_restored_in_a_fixed_random_order(images_folder: Path, tmp_path: Path) -> None:
    first, again, other, in_order = (
        [sample["__key__"] for sample in image_samples(images_folder, seed=seed)]
        for seed in (1, 1, 2, None)
    )
    assert first == again != other
    assert sorted(first) == in_order
    write_shards(image_samples(images_folder, seed=1), tmp_path / "set", per_shard=64)
    found = {sample["__key__"]: decode_image(sample) for sample in stream_shards(tmp_path / "set")}
    from torchvision.datasets import ImageFolder

    truth = ImageFolder(str(images_folder))
    assert len(found) == len(truth) == 200
    for path, label in truth.samples[::40]:
        key = Path(path).relative_to(images_folder).with_suffix("").as_posix()
        assert found[key][1] == label
        assert found[key][0].shape[0] == 3


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "There are no samples to write"),
        ([{"txt": "x"}], "Sample 0 has no __key__"),
        ([{"__key__": "a.b", "txt": "x"}], "'a.b' contains a dot"),
        ([{"__key__": "a", "txt": "x"}, {"__key__": "a", "txt": "y"}], "'a' is used twice"),
        ([{"__key__": "a"}], "'a' has no field"),
        ([{"__key__": "a", "txt": "x", "_id": "1"}], "The field '_id' of sample 'a' begins with _"),
        ([{"__key__": "a", "JPG": b"x"}], "'JPG' of sample 'a' would be read as 'jpg'. Write"),
    ],
)
def test_invalid_sample_is_rejected_and_leaves_no_files(
    samples: list[dict[str, Any]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        write_shards(samples, tmp_path / "set", per_shard=1)
    assert not (tmp_path / "set").exists()


def test_interrupt_keeps_existing_files(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()

    def samples() -> Iterator[dict[str, Any]]:
        yield from texts(5)
        assert names(tmp_path) == [
            "mine.txt",
            "shard-000000.tar",
            "shard-000001.tar",
            "shard-000002.tar.part",
        ]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(samples(), tmp_path, per_shard=2)
    assert names(tmp_path) == ["mine.txt"]


def test_existing_shards_are_not_overwritten_and_can_be_copied(tmp_path: Path) -> None:
    (path,) = write_shards(texts(1), tmp_path, per_shard=1)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"already contains shards\. Delete them, or"):
        write_shards(texts(2), tmp_path, per_shard=1)
    with pytest.raises(ValueError, match="per_shard must be at least 1, but is 0"):
        write_shards(texts(1), tmp_path / "new", per_shard=0)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["shard-000000.tar", "shards.json"]
    again = write_shards(stream_shards(tmp_path), tmp_path / "again", per_shard=1)
    assert again[0].read_bytes() == before  # without webdataset's own fields


@pytest.mark.parametrize("text", ["", "[]", '{"shards": []}', '{"shards": [{"url": "a"}]}'])
def test_list_gives_full_urls_or_an_error_without_the_token(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"^http://host/shards\.json .*\. Write the shards again\.$"
    ):
        read_list(text, "http://host", "?token=x")
    whole = json.dumps({"shards": [{"url": "a.tar", "samples": 1, "bytes": 2, "crc32": 3}]})
    listed = read_list(whole, "http://host", "?token=x")
    assert listed == [Shard("http://host/a.tar?token=x", 1, 2, 3)]


@pytest.mark.parametrize(
    ("path", "url"),
    [
        (PureWindowsPath(r"C:\data\a 1.tar"), "file:C:/data/a 1.tar"),
        (PureWindowsPath(r"\\server\data\a.tar"), "file:////server/data/a.tar"),
        (PureWindowsPath(r"data\a.tar"), "data/a.tar"),
        (PurePosixPath("/data/a 1.tar"), "/data/a 1.tar"),
    ],
)
def test_path_is_not_mistaken_for_a_scheme_or_host(
    path: PurePosixPath | PureWindowsPath, url: str
) -> None:
    parts = urlparse(url_of(path))  # as in webdataset
    assert url_of(path) == url
    assert (parts.scheme, parts.netloc) == ("file" if path.drive else "", "")
    assert parts.path == path.as_posix()


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # warnings of webdataset
def test_file_url_is_read_as_a_path(tmp_path: Path) -> None:
    (path,) = write_shards(texts(3), tmp_path, per_shard=3)
    url = f"file:{path.as_posix()}"
    for data in (stream_shards([url], buffer=1), wds.WebDataset([url], shardshuffle=False)):
        assert [sample["__key__"] for sample in data] == ["0000", "0001", "0002"]
