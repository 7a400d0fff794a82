import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from webdataset.filters import decode
from webdataset.tariterators import group_by_keys, tar_file_expander

from course_utils.loading.events import MemmapEvents
from course_utils.loading.shards import decode_event, event_samples, stream_shards, write_shards
from course_utils.loading.shards.write import read_list


def texts(count: int) -> list[dict[str, Any]]:
    return [{"__key__": f"{number:04d}", "txt": str(number)} for number in range(count)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_last_shard_has_the_remaining_samples_and_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    paths = write_shards(texts(10), folder, per_shard=4)
    listed = read_list((folder / "shards.json").read_text(), str(folder))
    assert [Path(shard.url) for shard in listed] == paths
    assert [shard.samples for shard in listed] == [4, 4, 2]
    assert [shard.bytes for shard in listed] == [path.stat().st_size for path in paths]
    before = paths[0].read_bytes()
    with pytest.raises(FileExistsError, match=r"already contains shards\. Delete them, or"):
        write_shards(texts(2), folder, per_shard=1)
    with pytest.raises(ValueError, match="per_shard must be at least 1, but is 0"):
        write_shards(texts(1), tmp_path / "new", per_shard=0)
    assert paths[0].read_bytes() == before
    again = stream_shards(folder, shuffle_shards=False, buffer=1)
    copy, *_ = write_shards(again, tmp_path / "again", per_shard=4)
    assert copy.read_bytes() == before  # without webdataset's own fields


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


def test_events_are_restored_and_give_the_same_bytes(events_folder: Path, tmp_path: Path) -> None:
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


def test_invalid_sample_is_rejected_and_leaves_no_files(tmp_path: Path) -> None:
    good = {"__key__": "a", "txt": "x"}
    for samples, message in (
        ([], "There are no samples to write"),
        ([good, {"txt": "x"}], "Sample 1 .* needs a __key__"),
        ([{"__key__": "a.b", "txt": "x"}], r"'a\.b'.* contains a dot"),
        ([good, good], "'a'.* was used before"),
        ([{"__key__": "a"}], "'a'.* has no field"),
        ([{**good, "_id": "1"}], "begin with _"),
        ([{"__key__": "a", "JPG": b"x"}], "JPG.* lower case"),
        ([good, {"__key__": "b", "meta": {"x": 1}}], r"'b' \(meta\) cannot be encoded"),
    ):
        with pytest.raises(ValueError, match=message):
            write_shards(samples, tmp_path / "set", per_shard=1)
        assert not (tmp_path / "set").exists(), message


def test_interrupt_keeps_existing_files(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    unfinished, *shards = [".shard-000002.tar.unfinished", "shard-000000.tar", "shard-000001.tar"]

    def samples() -> Iterator[dict[str, Any]]:
        yield from texts(5)
        assert names(tmp_path) == [unfinished, "mine.txt", *shards]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(samples(), tmp_path, per_shard=2)
    assert names(tmp_path) == ["mine.txt"]
