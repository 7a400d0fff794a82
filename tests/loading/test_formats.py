"""What holds for events in every format, wherever they lie and whatever has happened to them."""

import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset

from course_utils.hardware.storage import slow_storage
from course_utils.loading.events import READERS, Events, Sample, open_events
from data_scripts import native
from data_scripts.formats import FORMATS

FILES = {"npy": "npy/pulses.npy"} | {name: entry for name, (entry, _) in FORMATS.items()}
FILES |= {"npz": "npz/000/000300.npz", "npz-deflate": "npz-deflate/000/000300.npz"}
FILES |= {"tar": "tar/events-00001.tar"}
INDICES = list(range(600))
every_format = pytest.mark.parametrize("name", READERS)


def test_there_is_a_reader_for_all_that_can_be_written() -> None:
    assert set(READERS) == {"npy", *FORMATS}


def test_an_unknown_format_and_an_unknown_variant_are_refused(events_folder: Path) -> None:
    with pytest.raises(ValueError, match="no format 'xls'; take one of npy, npz"):
        open_events(events_folder, "xls")
    with pytest.raises(ValueError, match="no variant 'bzip2'; take one of contiguous, chunked"):
        READERS["hdf5"](events_folder, variant="bzip2")


@every_format
@pytest.mark.parametrize("emulated", [False, True])
def test_every_event_is_bit_for_bit_what_was_made(
    name: str, emulated: bool, all_formats: Path
) -> None:
    truth = native.load(all_formats)
    fs = slow_storage(all_formats, "laptop SSD", cache_mb=0) if emulated else None
    samples = open_events(all_formats, name, fs=fs).__getitems__(INDICES)

    for index, sample in zip(INDICES, samples, strict=True):
        assert same_bits(sample, truth[index])
        assert sample["event_id"] == truth.table["event_id"][index]


@every_format
def test_a_batch_may_name_events_twice_and_from_the_end(name: str, all_formats: Path) -> None:
    dataset, truth = open_events(all_formats, name), native.load(all_formats)
    twins = dataset.__getitems__([7, 300, 7, -1])

    twins[0]["pulses"].zero_()
    for sample, index in zip(twins[1:], [300, 7, 599], strict=True):
        assert same_bits(sample, truth[index])
        assert sample["pulses"].untyped_storage().nbytes() == sample["pulses"].nbytes


def test_events_without_pulses_are_read_too(tmp_path: Path) -> None:
    table = np.ones(3, native.EVENT)
    native.save(tmp_path, table, [(np.ones((2, 4), np.float32), np.array([0, 2, 0]))])
    events = native.load(tmp_path)
    for name in ("npz", "hdf5", "hdf5-misfit", "sqlite", "tar", "root"):
        entry, write = FORMATS[name]
        write(events, tmp_path / entry)
        samples = open_events(tmp_path, name).__getitems__([0, 1, 2])
        assert [sample["n_pulses"] for sample in samples] == [0, 2, 0]


@pytest.mark.slow
def test_two_workers_read_every_format(all_formats: Path, start_method: str) -> None:
    truth, some = native.load(all_formats), INDICES[::10]
    datasets = [open_events(all_formats, name) for name in READERS]
    for dataset in datasets:
        _ = dataset[5]  # opened here first, as a learner would
    loader = DataLoader(
        ConcatDataset([Subset(dataset, some) for dataset in datasets]),
        num_workers=2,
        batch_size=None,
        multiprocessing_context=start_method,
        timeout=120,
    )
    samples: list[Sample] = list(loader)

    assert len(samples) == len(READERS) * len(some)
    for sample, index in zip(samples, some * len(READERS), strict=True):
        assert same_bits(sample, truth[index])


@pytest.mark.parametrize("name", ["npy", "hdf5-gzip", "parquet", "sqlite", "tar", "root"])
def test_threads_may_share_a_dataset(name: str, all_formats: Path) -> None:
    dataset, truth = open_events(all_formats, name), native.load(all_formats)
    batches = [INDICES[first::40] for first in range(40)]
    with ThreadPoolExecutor(4) as pool:
        for batch, samples in zip(batches, pool.map(dataset.__getitems__, batches), strict=True):
            assert all(map(same_bits, samples, map(truth.__getitem__, batch)))


@pytest.fixture
def damaged(all_formats: Path, name: str, tmp_path: Path) -> Iterator[Path]:
    """Return a file that a test may damage: one of the pulses in format `name`."""
    entry = Path(FILES[name]).parts[0]
    shutil.copy(all_formats / "events.parquet", tmp_path)
    if (all_formats / entry).is_dir():
        shutil.copytree(all_formats / entry, tmp_path / entry)
    else:
        shutil.copy(all_formats / entry, tmp_path)
    return tmp_path / FILES[name]


@every_format
def test_a_flipped_bit_is_an_error_or_changes_nothing(
    name: str, damaged: Path, all_formats: Path, tmp_path: Path
) -> None:
    truth, whole = native.load(all_formats), damaged.read_bytes()
    wanted = [299, 300] if name.startswith("npz") else INDICES  # 300 is the one that is damaged
    complaints = []
    for turn, place in enumerate(np.linspace(0, len(whole) - 1, 9).astype(int).tolist()):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << turn % 8
        damaged.write_bytes(flipped)
        fs = fsspec.filesystem("file") if turn % 2 else None
        try:
            samples = open_events(tmp_path, name, fs=fs).__getitems__(wanted)
        except OSError as error:
            complaints.append(str(error))
        else:
            assert all(map(same_bits, samples, map(truth.__getitem__, wanted)))

    assert complaints
    for said in complaints:
        assert re.match(r"Event \d+ cannot be read, ", said)
        assert str(damaged) in said


@every_format
@pytest.mark.parametrize("left", [0, 0.5])
def test_a_file_that_ends_early_is_an_error(
    name: str, left: float, damaged: Path, tmp_path: Path
) -> None:
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: int(left * len(whole))])
    for fs in (None, fsspec.filesystem("file")):
        with pytest.raises(OSError, match=r"Event \d+ cannot be read") as caught:
            open_events(tmp_path, name, fs=fs).__getitems__(INDICES)
        assert str(damaged) in str(caught.value)


@every_format
def test_a_missing_file_is_an_error(name: str, damaged: Path, tmp_path: Path) -> None:
    damaged.unlink()
    with pytest.raises(OSError, match=re.escape(str(damaged))):
        open_events(tmp_path, name).__getitems__(INDICES)


def swap_two(content: bytes) -> bytes:
    return content[:128] + content[144:152] + content[136:144] + content[128:136] + content[152:]


@pytest.mark.parametrize(("name", "index"), [("npy", "npy/offsets.npy"), ("tar", "tar/index.npy")])
@pytest.mark.parametrize("damage", [swap_two, lambda content: content[:300], lambda content: b""])
def test_an_index_that_is_damaged_is_named(
    name: str,
    index: str,
    damage: Callable[[bytes], bytes],
    all_formats: Path,
    damaged: Path,
    tmp_path: Path,
) -> None:
    path = tmp_path / index
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(OSError, match=re.escape(str(path))):
        open_events(tmp_path, name)


def test_an_error_in_a_batch_names_the_event_that_is_at_fault(
    all_formats: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "events"
    shutil.copytree(all_formats, folder)
    (folder / "tar/events-00001.tar").unlink()
    (folder / "npz/000/000300.npz").unlink()

    for name in ("tar", "npz"):
        with pytest.raises(OSError, match="Event 300 cannot be read"):
            open_events(folder, name).__getitems__([5, 599, 300])


def test_pulses_of_another_type_are_refused_though_their_bytes_are_right(
    all_formats: Path, tmp_path: Path
) -> None:
    shutil.copytree(all_formats / "npy", tmp_path / "npy")
    shutil.copy(all_formats / "events.parquet", tmp_path)
    path = tmp_path / "npy/pulses.npy"
    path.write_bytes(path.read_bytes().replace(b"'<f4'", b"'<i4'", 1))

    with pytest.raises(OSError, match="Event 3 cannot be read"):
        _ = open_events(tmp_path, "npy")[3]


def same_bits(sample: Sample, pulses: np.ndarray) -> bool:
    found = sample["pulses"]
    return found.dtype == torch.float32 and found.numpy().tobytes() == pulses.tobytes()


def test_every_reader_is_a_dataset_of_events(all_formats: Path) -> None:
    for name in READERS:
        assert isinstance(open_events(all_formats, name), Events)
