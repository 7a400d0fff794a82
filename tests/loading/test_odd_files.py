"""Odd files: each reader loads the right numbers, or names file, problem and next step."""

import json
import os
import pickle
import re
import tarfile
from io import BytesIO
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from course_utils.loading.events import read_sensors
from course_utils.loading.root_files import RootFiles
from course_utils.loading.shards import decode_event, stream_shards, write_shards
from course_utils.loading.tokens import Corpus
from keepfed.auditing.resume import read_log
from keepfed.errors import KeepfedError, ReadError
from keepfed.loaders.cache import SampleCache
from keepfed.loaders.images import ImageLoader, Jpegs, PackedImages, pack_images
from keepfed.loaders.images.packed import INDEX
from keepfed.loaders.ragged import LengthBuckets, Ragged, RaggedLoader
from keepfed.loaders.resume import ResumableBatches, load_checkpoint, save_checkpoint
from keepfed.loaders.workers import LazyFile
from keepfed.measure.exchange import load_profile
from keepfed.measure.ranks import load_ranks
from keepfed.reading import reading

if os.name == "nt":
    pytest.skip("no pipes, and few users may make links", allow_module_level=True)


def saved(save, *arguments, **options):
    file = BytesIO()
    save(file, *arguments, **options)
    return file.getvalue()


def image(kind="JPEG", mode="RGB"):
    return saved(Image.effect_noise((40, 30), 50).convert(mode).save, kind)


def huge():
    """Return a JPEG whose header promises 65,500 x 65,500 pixels."""
    content = bytearray(image())
    place = content.index(b"\xff\xc0") + 5
    content[place : place + 4] = (65_500).to_bytes(2) * 2
    return bytes(content)


def lying():
    """Return the header of an array of 10^12 rows, with only a few bytes of them."""
    header = {"descr": INDEX.descr, "fortran_order": False, "shape": (10**12,)}
    return saved(np.lib.format.write_array_header_1_0, header) + bytes(1000)


COLORS = cv2.imencode(".png", np.full((9, 9, 3), 300, np.uint16))[1].tobytes()
NOTHING = {("run.pt", 0), ("rank-0.json", 0), ("log.jsonl", 6)}  # to read, which is no error
LOG = b'{"loader": "a", "epoch": 1, "samples": "abc"}\n'
KERNEL = b'{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": NaN, "name": ""}]}'
NO_END = "it is a device, a pipe or a socket"
CUT = "mmap length is greater than file size"
EVERYWHERE = [  # what no reader can read: its content, or a function that makes it
    (lambda path: None, "it does not exist"),
    (lambda path: path.mkdir(), "it is a folder, not a file"),
    (os.mkfifo, NO_END),
    (lambda path: path.symlink_to("/dev/zero"), NO_END),
    (lambda path: path.symlink_to(path.name), "it is a link that leads back to itself"),
    (lambda path: path.symlink_to("gone"), "it is a link to a missing file"),
    (b"", "it is empty"),
    (b"version https://git-lfs.github.com/spec/v1\n", "it is a pointer of Git LFS; `git lfs pull`"),
    (b"<!doctype html><p>404</p>", "it is a web page"),
    (b"\x00\xff" * 500, r"\w+"),
]
READERS = {
    "rows.npy": (
        lambda path: list(RaggedLoader(path, [0, 6], 1)),
        (saved(np.save, np.ones((6, 2)))[:-8], CUT),
        (saved(np.save, np.ones((6, 2), ">f4")), "byte order"),
        (saved(np.save, np.array([None] * 6)), "Python objects in dtype"),
        (saved(np.save, np.zeros(6, [("x", "f4")])), "numpy.void"),
        (saved(np.save, np.float32(3)), "too many indices|0-dim"),
        (b"PK\x03\x04" + bytes(100), "it is a zip archive"),
        (b"\x1f\x8b" + bytes(100), "it is compressed by gzip"),
    ),
    "x.images": (
        lambda path: list(ImageLoader(path, 1, 8, threads=1)),
        (saved(np.save, np.ones(3)), "it is no file of packed images"),
        (lying(), CUT),
    ),
    "run.pt": (
        load_checkpoint,
        (saved(lambda file: torch.save([1], file)), "it is no state of `save_checkpoint`"),
        (saved(lambda file: torch.save({"x": os.system}, file)), "or holds more than tensors"),
    ),
    "1.jpg": (
        lambda path: Jpegs(path.parent.parent)[1],
        (COLORS, "8 bits per color"),
        (image()[:400], "[Tt]runcated"),
        (huge(), "exceeds limit of|truncated"),
        (saved(Image.fromarray(np.full((9, 9), 40_000, np.uint16)).save, "PNG"), "8 bits per col"),
    ),
    "2.jpg": (
        lambda path: pack_images(path.parents[2] / "x.images", path.parent.parent),
        (huge(), "it has more than 178,956,970 pixels"),
        (image(mode="CMYK"), "its colors are CMYK"),
        (image("PNG"), "it is not a JPEG, and its name ends in .jpg"),
        (image()[:400], r"\w+"),
    ),
    "lazy.npy": (lambda path: LazyFile(np.load, path, mmap_mode="r").file,),
    "offsets.npy": (
        lambda path: (np.save(path.with_name("tokens.npy"), [1]), Corpus(path.parent, "")),
    ),
    "sensor_geometry.csv": (lambda path: read_sensors(path.parent), (b"a\nb,2\n", "string 'b'")),
    "x.root": (lambda path: RootFiles([path], ["x"]),),
    "log.jsonl": (read_log, (b"[" * 10**5, "recursion"), (LOG, "it is not a log of an audit")),
    "rank-0.json": (lambda path: load_ranks(path.parent), (b"{}", "KeyError: 'otherData'")),
    "profile.json": (load_profile, (b'{"traceEvents": []}', "it has no profile"), (KERNEL, "NaN")),
}


def in_class(folder, name="1.jpg"):
    (folder / "images/cat").mkdir(parents=True)
    (folder / "images/cat/0.jpg").write_bytes(image())
    return folder / "images/cat" / name


def test_every_reader_names_the_odd_file_the_problem_and_the_next_step(tmp_path):
    for reader, (read, *more) in READERS.items():
        is_image = reader.endswith(".jpg")
        for number, (make, problem) in enumerate([*EVERYWHERE, *more]):
            if (is_image and number < 2) or (reader, number) in NOTHING:
                continue
            folder = tmp_path / reader / str(number)
            folder.mkdir(parents=True)
            path = in_class(folder, reader) if is_image else folder / reader
            path.write_bytes(make) if isinstance(make, bytes) else make(path)
            with pytest.raises(ReadError) as refused:
                pytest.fail(f"{reader}, {problem}: {read(path)}")
            said = str(refused.value)
            wanted = rf"Cannot read .*{reader}(, sample \d)?: .*({problem}).*\. [A-Z].*\.$"
            assert re.match(wanted, said), (reader, said)
            assert refused.value.path == str(path), (reader, said)


def test_error_of_the_system_or_in_a_worker_keeps_path_and_sample():
    for error, problem in (
        (PermissionError(13, "no"), "you are not allowed to read it. Ask its owner"),
        (OSError(24, "no"), "too many files are open. Use fewer workers, or raise the limit"),
        (OSError(116, "no"), "its storage does not answer. Check that it is mounted"),
        (OSError(36, "no"), "its name is too long. Use a shorter name"),
        (MemoryError(), "it needs more memory than there is, or its header is damaged. Fetch"),
        (KeyError("x"), "its content is not what was expected (KeyError: 'x'). Fetch it"),
        (ValueError(), "ValueError. Fetch it"),
    ):
        with pytest.raises(ReadError) as raised, reading("a\udcff\x1b", 7, step="Fetch it"):
            raise error
        again = pickle.loads(pickle.dumps(raised.value))
        assert (again.path, again.index) == ("a\udcff\x1b", 7)
        assert str(again).startswith(rf"Cannot read a\xff\x1b, sample 7: {problem}"), str(again)


def test_file_that_changes_during_a_training_is_reported_before_it_kills_it(tmp_path):
    rows, packed = tmp_path / "rows.npy", tmp_path / "x.images"
    for change in ("shrinks", "grows", "is replaced", "is removed"):
        rows.write_bytes(saved(np.save, np.ones((6, 2), np.float32)))
        in_class(tmp_path / change)
        pack_images(packed, tmp_path / change / "images")
        loaders = RaggedLoader(rows, [0, 3, 6], 1), ImageLoader(packed, 1, 8, threads=1)
        for path, loader in zip((rows, packed), loaders, strict=True):
            assert len(list(loader)) == 1 + (path == rows)
            loop = iter(loader) if path == rows else loader
            assert path != rows or next(loop)
            if change == "is removed":  # the file stays mapped
                path.unlink()
                assert list(loader)
                continue
            content = path.read_bytes()[: 100 if change == "shrinks" else None]
            if change == "is replaced":
                path.unlink()
            path.write_bytes(content + b"x" * (change == "grows"))
            with pytest.raises(ReadError, match="modified or replaced after it was opened"):
                list(loop)
            loader.close()
            if path == packed and change != "is replaced":
                with pytest.raises(ReadError, match=r"it is not as long as its table says|EOF"):
                    PackedImages(path)


def test_full_disk_is_one_sentence_and_keeps_the_previous_file(tmp_path, monkeypatch):
    full = Mock(side_effect=OSError(28, "No space left on device"))
    in_class(tmp_path)
    path = tmp_path / "x"
    assert load_checkpoint(path) is None
    for writer, write in (
        ("keepfed.files.os.fsync", lambda: pack_images(path, tmp_path / "images")),
        ("torch.save", lambda: save_checkpoint(path, {"step": 1})),
    ):
        write()
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(writer, full)
            with pytest.raises(KeepfedError, match=r"disk is full at .*/x\. Free some"):
                write()
        assert {f: f.read_bytes() for f in tmp_path.iterdir() if f.is_file()} == {path: before}
    assert load_checkpoint(path) == {"step": 1}


def test_numbers_that_would_change_are_refused(tmp_path):
    rows = tmp_path / "rows.npy"
    np.save(rows, np.ones((6, 2), np.float32))
    for offsets, said in (
        ([0, float("nan"), 6], "Offsets must be whole numbers, but are torch.float64"),
        (np.array([0, 2**64 - 1, 6], np.uint64), "Pass increasing offsets"),
        ([], "go from nothing to nothing"),
        ([0, 2, 5], r"go from 0 to 5, but .*rows\.npy has 6 rows"),
        ([1, 6], "go from 1 to 6"),
        ([0, 4, 3, 6], "Pass increasing offsets"),
        (["0", "6"], "Offsets have the type <U1, which torch does not support"),
    ):
        with pytest.raises(ValueError, match=said):
            RaggedLoader(rows, offsets, 1)
    for field in (["a"], np.array([None]), np.zeros(1, "M8[s]"), np.zeros(1, ">f4")):
        with pytest.raises(ValueError, match=r"Fields 'x' have the type .* torch does not support"):
            RaggedLoader(rows, [0, 6], 1, fields={"x": field})
    with pytest.raises(ValueError, match="'x' has 2 entries, but the offsets describe 1"):
        RaggedLoader(rows, [0, 6], 1, fields={"x": [1, 2]})
    with pytest.raises(ValueError, match="Lengths have the type <U1"):
        LengthBuckets(["a", "b"], 1)
    with pytest.raises(ValueError, match="is no state of `state_dict`"):
        ResumableBatches(6, 1).load_state_dict({"epoch": 0, "taken": -1, "made_by": {}})
    for samples in ([np.ones((2, 1)), np.ones((1, 1), int)], [np.float32(3)]):
        with pytest.raises(ValueError, match=r"Return arrays of shape \(rows, \.\.\.\), all"):
            Ragged.join(samples)
    joined = Ragged.join([[], np.full((2, 1), 2**60)])  # [] alone would be float32
    assert (joined.values.tolist(), joined.offsets.tolist()) == ([[2**60], [2**60]], [0, 0, 2])


def test_folders_and_shards_that_would_be_read_wrongly_are_refused(tmp_path):
    in_class(tmp_path)
    pack_images(tmp_path / "x.images", tmp_path / "images")
    images = Jpegs(tmp_path / "images")
    for samples in (images, PackedImages(tmp_path / "x.images"), SampleCache([7], 1)):
        with pytest.raises(IndexError, match=r"no sample 1 in .*, which has 1 samples\. Check the"):
            samples[1]
    for link, target, said in (
        ("images/dog", "cat", "(dog|cat): it is the same folder as (cat|dog)"),
        ("images/cat/again", "../../images", "again: it is a link to a folder that contains it"),
    ):
        (tmp_path / link).symlink_to(target)
        with pytest.raises(ReadError, match=said):
            Jpegs(tmp_path / "images")
        (tmp_path / link).unlink()
    with tarfile.open(tmp_path / "x.tar", "w") as shard:
        for name in ("0.txt", "1.txt", "0.cls", "1.cls"):
            shard.addfile(tarfile.TarInfo(name))
    with pytest.raises(ReadError, match=r"x\.tar: the files of sample '0' are not next to each"):
        list(stream_shards([tmp_path / "x.tar"]))
    with tarfile.open(tmp_path / "x.tar", "w") as shard:
        for _ in "ab":
            shard.addfile(tarfile.TarInfo("0.txt"))
    with pytest.raises(ReadError, match=r"x\.tar: a sample has two files of one name"):
        list(stream_shards([tmp_path / "x.tar"]))
    (shard,) = write_shards([{"__key__": "a", "txt": b""}], tmp_path / "s", per_shard=1)
    with pytest.raises(ReadError, match=r"0\.tar, sample a: .*KeyError: '"):
        list(stream_shards([shard], decode=decode_event))
    for samples, said in (
        ([2], "its list says 2"),
        ([1, 1], "is there twice"),
        ([-1], "no number"),
    ):
        entry = {"url": shard.name, "bytes": shard.stat().st_size}
        text = json.dumps({"shards": [{**entry, "samples": number} for number in samples]})
        shard.with_name("shards.json").write_text(text)
        with pytest.raises((ReadError, ValueError), match=said):
            list(stream_shards(tmp_path / "s"))
