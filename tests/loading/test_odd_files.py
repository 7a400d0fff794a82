"""Odd files give the right data, or one sentence that names the file and the next step."""

import errno
import io
import re
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from course_utils.loading.events import open_events
from course_utils.loading.shards import decode_image, image_samples, stream_shards, write_shards
from course_utils.loading.tokens import Corpus
from keepfed.errors import KeepfedError
from keepfed.loaders.images import ImageLoader, Jpegs, PackedImages, pack_images
from keepfed.loaders.records import write_records
from keepfed.loaders.workers import LazyFile


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a folder with two images in each of two classes."""
    for name in ("cat/0.jpg", "cat/1.jpg", "dog/0.jpg", "dog/1.jpg"):
        draw(tmp_path / "images" / name)
    return tmp_path / "images"


def draw(path: Path, kind: str = "JPEG") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.effect_noise((48, 40), 50).convert("RGB").save(path, kind)


# --- Images ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["cat/2.JPEG", "cat/2.JPG", "cat/2023/5/2.jpeg", "cat/Größe 犬.jpg"]
)
def test_image_of_any_name_is_read_packed_and_sharded(
    name: str, images: Path, tmp_path: Path
) -> None:
    draw(images / name)
    assert [Jpegs(images).name(index) for index in range(5)].count(name) == 1
    assert Jpegs(images).labels.tolist() == [0, 0, 0, 1, 1]
    pack_images(tmp_path / "x.images", images)
    assert len(PackedImages(tmp_path / "x.images")) == 5
    assert len(list(ImageLoader(tmp_path / "x.images", 5, 32, threads=1))) == 1
    write_shards(image_samples(images), tmp_path / "shards", per_shard=3)
    shards = stream_shards(tmp_path / "shards", decode=decode_image, shuffle_shards=False, buffer=1)
    assert [label for _, label in shards] == [0, 0, 0, 1, 1]


def test_other_image_formats_are_read_but_not_packed(images: Path, tmp_path: Path) -> None:
    draw(images / "dog/2.png", "PNG")
    assert Jpegs(images)[4][0].shape == (3, 40, 48)
    with pytest.raises(OSError, match=r"2\.png cannot be packed: .* not a JPEG, .*convert it"):
        pack_images(tmp_path / "x.images", images)
    assert [*tmp_path.iterdir()] == [images]


def test_files_that_are_left_out_are_counted(images: Path) -> None:
    for name in ("cat/notes.txt", "cat/._0.jpg", "cat/.checkpoints/0.jpg", ".cache/0.jpg"):
        draw(images / name)
    with pytest.warns(UserWarning, match=r"ignored 2 files in class folders, .*hidden or not im"):
        assert len(Jpegs(images)) == 4


def no_images(images: Path) -> None:
    (images / "bird").mkdir()


def same_class(images: Path) -> None:
    (images / "puppy").symlink_to(images / "dog")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (no_images, r"class folders without images \(bird\).*numbers of the classes.*Remove them"),
        (same_class, r"puppy and .*dog are the same folder, .*count twice\. Remove the link"),
    ],
)
def test_labels_that_would_change_are_reported(
    change: Callable[[Path], None], says: str, images: Path
) -> None:
    change(images)
    with pytest.raises(OSError, match=says):
        Jpegs(images)


def test_missing_and_damaged_images_are_named(images: Path, tmp_path: Path) -> None:
    (images / "cat/2.jpg").symlink_to(images / "gone.jpg")
    for read in (
        lambda: pack_images(tmp_path / "x.images", images),
        lambda: list(image_samples(images)),
    ):
        with pytest.raises(OSError, match=r"2\.jpg cannot be read: it is a link to a missing file"):
            read()
    (images / "cat/2.jpg").unlink()
    (images / "cat/1.jpg").write_bytes((images / "cat/1.jpg").read_bytes()[:600])
    write_shards(image_samples(images), tmp_path / "shards", per_shard=9)
    with pytest.raises(OSError, match=r"cat/1 of .*shard-000000\.tar cannot be decoded: .*Replace"):
        list(stream_shards(tmp_path / "shards", decode=decode_image))


# --- Shards ---------------------------------------------------------------------------------------


def tar(path: Path, names: list[str]) -> bytes:
    with tarfile.open(path, "w") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"data"))
    return path.read_bytes()


SAMPLES = ["0.txt", "0.cls", "1.txt", "1.cls"]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["0.txt", "1.txt", "0.cls", "1.cls"], "not next to each other. .*--sort=name"),
        (["0 Track 7.0 (clean).txt"], "has a dot before its ending, .* without dots in the keys"),
        (["2024.05.01.txt"], "has a dot before its ending"),
    ],
)
def test_names_that_give_wrong_samples_are_rejected(
    names: list[str], says: str, tmp_path: Path
) -> None:
    tar(tmp_path / "a.tar", names)
    with pytest.raises(ValueError, match=f"a.tar: the files? .*{says}"):
        list(stream_shards(tmp_path / "a.tar"))


@pytest.mark.parametrize("fields", [["seg.png", "jpg"], ["0.jpg", "1.jpg"], ["x.npy", "7z"]])
def test_usual_fields_are_accepted(fields: list[str], tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", [f"s/{key}.{field}" for key in "01" for field in fields])
    assert [set(fields) <= {*sample} for sample in stream_shards(tmp_path / "a.tar")] == [True] * 2


def test_sample_that_two_shards_divide_is_named(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", ["0.txt", "0.cls", "1.txt"])
    tar(tmp_path / "b.tar", ["1.cls", "2.txt", "2.cls"])
    for urls in (["a.tar", "b.tar"], ["b.tar", "a.tar"]):
        stream = stream_shards([tmp_path / url for url in urls], shuffle_shards=False, buffer=1)
        with pytest.raises(ValueError, match=r"sample '1' is divided between .* so that each"):
            list(stream)
    same = [tmp_path / "c.tar", tmp_path / "d.tar"]  # keys begin again in each shard
    for path in same:
        tar(path, SAMPLES[:2])
    assert len(list(stream_shards(same))) == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x1f\x8b\x08", "compressed with gzip. Unpack"),
        (b"PK\x03\x04", "a zip archive"),
        (b"<!doctype html>", "a web page"),
        (b"version https://git-lfs", "pointer of Git LFS. Run `git lfs pull`"),
    ],
)
def test_other_kinds_of_files_are_named(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(content.ljust(2000, b"x"))
    with pytest.raises(OSError, match=f"a.tar is not a plain tar file: it is .*{re.escape(says)}"):
        list(stream_shards(tmp_path / "a.tar"))


def test_joined_tar_files_are_named(tmp_path: Path) -> None:
    whole = tar(tmp_path / "a.tar", SAMPLES)
    (tmp_path / "a.tar").write_bytes(whole + whole)
    with pytest.raises(OSError, match=r"joined from two tar files, .*`tar --concatenate`"):
        list(stream_shards(tmp_path / "a.tar"))


@pytest.mark.parametrize(
    ("field", "value"), [("meta", {"a": 1}), ("npy", torch.ones(3, requires_grad=True))]
)
def test_value_that_cannot_be_encoded_is_named(field: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"sample 'k' \({field}\) cannot be encoded: .*Give"):
        write_shards([{"__key__": "k", field: value}], tmp_path / "shards", per_shard=1)
    assert [*tmp_path.iterdir()] == []


# --- Full disks -----------------------------------------------------------------------------------


def test_full_disk_is_one_sentence_and_leaves_nothing(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setattr("os.fsync", full)
    monkeypatch.setattr("numpy.lib.format.write_array", full)
    monkeypatch.setattr("numpy.lib.format.write_array_header_1_0", full)
    for write in (
        lambda: write_shards([{"__key__": "0", "txt": "x"}], out / "shards", per_shard=1),
        lambda: write_records(out / "r.npy", {"x": np.ones(3)}),
        lambda: pack_images(out / "x.images", images),
    ):
        with pytest.raises(
            KeepfedError, match=r"disk is full at .*out/.*Free some space, or choose"
        ):
            write()
        assert [*out.iterdir()] == []


# --- Records, tokens and lazy files ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({0: np.arange(4)}, "name of a field is 0"),
        ({"": np.arange(4)}, "name of a field is ''"),
        ({"x": torch.ones(4, requires_grad=True)}, "'x' cannot be read: .*detach"),
        ({"x": torch.ones(4, dtype=torch.bfloat16)}, r"'x' cannot be read: .*`\.float\(\)`"),
        ({"x": np.array([1, np.nan])}, "'x' is NaN in row 1, .*allow_nan=True"),
        ({"x": np.array([[1], [2, 3]], object)}, "'x' has type object .*array of numbers"),
    ],
)
def test_fields_that_cannot_be_stored_are_named(
    fields: dict[Any, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=says):
        write_records(tmp_path / "r.npy", fields)
    assert [*tmp_path.iterdir()] == []


def test_nan_may_be_allowed(tmp_path: Path) -> None:
    write_records(tmp_path / "r.npy", {"x": np.array([1, np.nan])}, allow_nan=True)
    assert np.isnan(np.load(tmp_path / "r.npy")["x"]).tolist() == [False, True]


def test_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(1000))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:500])
    lazy = LazyFile(np.load, tmp_path / "x.npy", mmap_mode="r")
    with pytest.raises(OSError, match=r"load cannot open .*x\.npy: .*`keepfed why` explains"):
        _ = lazy.file


@pytest.mark.parametrize("offsets", [[0], [0, 4], [0, 9, 4, 10], [1, 10]])
def test_offsets_that_do_not_fit_the_tokens_are_named(offsets: list[int], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    np.save(tmp_path / "mine/tokens.npy", np.zeros(10, np.uint16))
    np.save(tmp_path / "mine/offsets.npy", offsets)
    with pytest.raises(ValueError, match=r"offsets\.npy does not fit the 10 tokens .*Write both"):
        Corpus(tmp_path, "mine")


# --- Events ---------------------------------------------------------------------------------------


@pytest.fixture
def events(tmp_path: Path, all_formats: Path) -> Path:
    """Return a copy of events that a test may change."""
    kept = ("events.parquet", "events.h5", "npy")
    copy = shutil.copytree(
        all_formats,
        tmp_path / "events",
        ignore=lambda at, names: [
            name for name in names if Path(at) == all_formats and name not in kept
        ],
    )
    return Path(copy)


def test_labels_with_wider_integers_are_read_and_other_types_named(events: Path) -> None:
    path = events / "events.parquet"
    table = pq.read_table(path)
    wider = table.set_column(1, "run_id", table["run_id"].cast(pa.int64()))
    pq.write_table(wider, path, row_group_size=1)
    assert open_events(events, "npy").labels.run_id.dtype == np.int32
    pq.write_table(table.set_column(1, "run_id", table["run_id"].cast(pa.float64())), path)
    with pytest.raises(OSError, match=r"the column run_id has type float64 instead of int32"):
        open_events(events, "npy")


@pytest.mark.skipif(sys.platform != "linux", reason="HDF5 locks with flock")
def test_locked_hdf5_file_is_not_called_corrupted(events: Path) -> None:
    import subprocess

    code = f"import h5py; f = h5py.File({str(events / 'events.h5')!r}, 'r+'); print(1); input()"
    command = [sys.executable, "-uc", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(OSError, match=r"another process has it open for writing\. Wait until"):
            open_events(events, "hdf5")
        writer.communicate(b"\n")
    with h5py.File(events / "events.h5"):
        pass
