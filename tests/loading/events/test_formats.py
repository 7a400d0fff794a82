import pickle
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset

from course_utils.hardware.storage import slow_storage
from course_utils.loading import events
from tests.fixtures import run_python

INDICES = list(range(600))
ONE_FILE = {  # formats with many files: the file of event 300
    "npy": "npy/pulses.npy",
    "npz": "npz/000/000300.npz",
    "npz-deflate": "npz-deflate/000/000300.npz",
    "tar": "tar/events-00001.tar",
}
every_format = pytest.mark.parametrize("name", events.FORMATS)


@pytest.fixture(scope="module")
def truth(all_formats: Path) -> events.EventArrays:
    return events.EventArrays.load(all_formats)


def same_bits(sample: events.Sample, pulses: np.ndarray) -> bool:
    found = sample["pulses"]
    return found.dtype == torch.float32 and found.numpy().tobytes() == pulses.tobytes()


@every_format
def test_every_event_is_bit_for_bit_what_was_written(
    name: str, all_formats: Path, truth: events.EventArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fs in (None, slow_storage(all_formats, "laptop SSD", cache_mb=0)):
        dataset = events.open_events(all_formats, name, fs=fs)
        assert len(dataset) == 600
        samples = dataset.__getitems__(INDICES)
        for row, pulses, sample in zip(truth.table, truth, samples, strict=True):
            assert same_bits(sample, pulses)
            assert sample["n_pulses"] == len(pulses)
            assert all(sample[key] == row[key] for key in ("event_id", "run_id", "kind"))
            assert 10 ** sample["energy"] == pytest.approx(row["energy_gev"], rel=1e-5)
            assert sample["direction"].norm().item() == pytest.approx(1, rel=1e-5)
            assert sample["direction"][2].item() == pytest.approx(np.cos(row["zenith"]), abs=1e-6)
    # a batch may repeat events and shares no memory: a view would send the complete array
    dataset = events.open_events(all_formats, name)
    twins = dataset.__getitems__([7, 300, 7, -1])
    twins[0]["pulses"].zero_()
    twins[0]["direction"].zero_()
    for sample, index in zip(twins[1:], [300, 7, 599], strict=True):
        assert same_bits(sample, truth[index])
        for tensor in (sample["pulses"], sample["direction"]):
            assert tensor.untyped_storage().nbytes() == tensor.nbytes
    assert dataset[7]["direction"].any()
    with pytest.raises(IndexError):
        _ = dataset[600]
    # labels and offsets; all pulses together have 1,600 bytes per event
    assert len(pickle.dumps(dataset)) < 80 * len(dataset)
    if "npz" not in name:
        first = dataset.file
        assert dataset.file is first
        monkeypatch.setattr("keepfed.loaders.workers.worker.os.getpid", lambda: -7)
        assert dataset.file is not first


def test_events_without_pulses_can_be_read(tmp_path: Path) -> None:
    table = np.ones(3, events.EVENT)
    events.write_events(tmp_path, table, [(np.ones((2, 4), np.float32), np.array([0, 2, 0]))])
    arrays = events.EventArrays.load(tmp_path)
    for name in ("npz", "hdf5", "hdf5-misfit", "sqlite", "tar", "root"):
        events.FORMATS[name].write(arrays, tmp_path / events.FORMATS[name].entry)
        samples = events.open_events(tmp_path, name).__getitems__([0, 1, 2])
        assert [sample["n_pulses"] for sample in samples] == [0, 2, 0], name


def test_batch_is_padded_to_its_longest_event_and_masked(all_formats: Path) -> None:
    samples = events.open_events(all_formats, "npy").__getitems__([0, 599, 17])
    counts = [sample["n_pulses"] for sample in samples]
    batch = pickle.loads(pickle.dumps(events.pad_collate))(samples)  # as a worker receives it
    assert batch["pulses"].shape == (len(samples), max(counts), 4)
    assert batch["n_pulses"].tolist() == batch["mask"].sum(dim=1).tolist() == counts
    for row, mask, sample in zip(batch["pulses"], batch["mask"], samples, strict=True):
        assert torch.equal(row[mask], sample["pulses"])
        assert not row[~mask].any()
    for name in ("event_id", "run_id", "kind", "energy", "direction"):
        kind = torch.float32 if name in ("energy", "direction") else torch.int64
        assert batch[name].dtype == kind
        for value, sample in zip(batch[name], samples, strict=True):
            assert torch.equal(value, torch.as_tensor(sample[name], dtype=kind))


@pytest.mark.slow
def test_two_workers_and_many_threads_read_every_format(
    all_formats: Path, truth: events.EventArrays, start_method: str
) -> None:
    some = INDICES[::10]
    datasets = [events.open_events(all_formats, name) for name in events.FORMATS]
    for dataset in datasets:
        _ = dataset[5]  # opened in this process first, as learners do
    all_of_them = ConcatDataset([Subset(dataset, some) for dataset in datasets])
    how: Any = {"num_workers": 2, "multiprocessing_context": start_method, "timeout": 120}
    loader = DataLoader(all_of_them, batch_size=None, **how)
    samples: list[events.Sample] = list(loader)
    assert len(samples) == len(events.FORMATS) * len(some)
    for sample, index in zip(samples, some * len(events.FORMATS), strict=True):
        assert same_bits(sample, truth[index])
    batches = [INDICES[first::40] for first in range(40)]
    for dataset in datasets:
        with ThreadPoolExecutor(4) as pool:
            for batch, found in zip(batches, pool.map(dataset.__getitems__, batches), strict=True):
                assert all(map(same_bits, found, map(truth.__getitem__, batch))), dataset


def test_one_thread_at_a_time_reads_a_row_group(all_formats: Path) -> None:
    dataset = events.open_events(all_formats, "parquet")
    file = dataset.file
    read, is_locked = file.read_row_group, []

    def recorded(*args: Any, **options: Any) -> Any:
        is_locked.append(file.turn.locked())
        return read(*args, **options)

    file.read_row_group = recorded
    assert dataset[300]["n_pulses"] > 0
    assert is_locked == [True]


@pytest.fixture
def damaged(all_formats: Path, name: str, tmp_path: Path) -> Path:
    """Return a file with pulses in format `name`, in `tmp_path`, which a test may damage."""
    entry = all_formats / events.FORMATS[name].entry
    shutil.copy(all_formats / "events.parquet", tmp_path)
    copy = shutil.copytree if entry.is_dir() else shutil.copy
    copy(entry, tmp_path / entry.name)
    return tmp_path / ONE_FILE.get(name, entry.name)


@every_format
def test_damage_raises_an_error_with_file_and_next_step(
    name: str, damaged: Path, truth: events.EventArrays, tmp_path: Path
) -> None:
    whole, complaints = damaged.read_bytes(), []
    wanted = [299, 300] if name.startswith("npz") else INDICES  # event 300 is damaged
    contents: list[bytes | None] = [None, b"", whole[: len(whole) // 2]]
    for turn, place in enumerate(np.linspace(0, len(whole) - 1, 5).astype(int).tolist()):
        contents.append(whole[:place] + bytes([whole[place] ^ 1 << turn % 8]) + whole[place + 1 :])
    for turn, content in enumerate(contents):
        damaged.unlink() if content is None else damaged.write_bytes(content)
        fs = fsspec.filesystem("file") if turn % 2 else None
        try:
            samples = events.open_events(tmp_path, name, fs=fs).__getitems__(wanted)
        except OSError as error:
            complaints.append(str(error))
        else:
            assert all(map(same_bits, samples, map(truth.__getitem__, wanted)))
    assert len(complaints) > 3
    assert all(str(damaged) in said for said in complaints)
    for said in complaints[1:]:  # the first damage removes the file
        assert re.match(r"Cannot read .*(, sample \d+)?: ", said)
        assert said.endswith(f"make_events --check --out {tmp_path}`.")


@pytest.mark.usefixtures("end_loops")
@pytest.mark.parametrize("name", ["tar"])
def test_error_in_a_batch_or_worker_names_it(name: str, damaged: Path, tmp_path: Path) -> None:
    damaged.write_bytes(b"")
    dataset = events.open_events(tmp_path, name)
    with pytest.raises(OSError, match="sample 300: "):
        dataset.__getitems__([5, 599, 300])
    some = Subset(dataset, [5, 9, 300, 599])
    loader = DataLoader(some, batch_size=2, num_workers=1, collate_fn=events.pad_collate)
    with pytest.raises(OSError, match=rf"{damaged.name}, sample 300: "):
        list(loader)


def test_missing_data_and_other_labels_are_reported(all_formats: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no format 'xls'\. Choose one of npy, npz"):
        events.open_events(all_formats, "xls")
    with pytest.raises(FileNotFoundError, match="make_events --check --out"):
        events.open_events(tmp_path, "npy")
    path = Path(shutil.copy(all_formats / "events.parquet", tmp_path))
    for name in events.FORMATS:
        with pytest.raises(FileNotFoundError, match="convert_events --help"):
            events.open_events(tmp_path, name)
    table = pq.read_table(path)
    pq.write_table(table.set_column(1, "run_id", table["event_id"]), path)
    with pytest.raises(OSError, match=r"does not match its columns, or these have other types"):
        events.open_events(tmp_path, "npy")


@pytest.mark.slow
def test_importing_events_does_not_import_unused_libraries() -> None:
    code = "import sys, course_utils.loading.events; print(*sys.modules)"
    loaded = run_python("-c", code, check=True).stdout.split()
    assert "torch" in loaded
    assert {"matplotlib", "h5py", "pyarrow", "uproot", "webdataset"}.isdisjoint(loaded)
