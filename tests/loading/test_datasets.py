import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from course_utils.hardware.storage import SlowFileSystem, slow_storage
from course_utils.loading.events import Events, MemmapEvents, NpzEvents, pad_collate
from course_utils.loading.events.datasets import Hdf5Events, ParquetEvents, neighbours
from course_utils.measure.trace import record
from data_scripts import native

ALL = [NpzEvents, MemmapEvents, Hdf5Events, ParquetEvents]
Kind = type[Events]


def fast_storage(folder: Path) -> SlowFileSystem:
    return slow_storage(folder, "laptop SSD", cache_mb=0)


@pytest.fixture(params=ALL, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


def test_every_sample_is_what_was_made(kind: Kind, events_folder: Path) -> None:
    truth, dataset = native.load(events_folder), kind(events_folder)

    assert len(dataset) == len(truth) == 600
    for index in (0, 1, 255, 256, 300, 599):
        sample, row = dataset[index], truth.table[index]
        np.testing.assert_array_equal(sample["pulses"].numpy(), truth[index])
        assert sample["pulses"].dtype == torch.float32
        assert sample["n_pulses"] == len(truth[index])
        assert sample["event_id"] == row["event_id"]
        assert sample["run_id"] == row["run_id"]
        assert sample["kind"] == row["kind"]
        assert 10 ** sample["energy"] == pytest.approx(row["energy_gev"], rel=1e-5)
        assert sample["direction"].norm().item() == pytest.approx(1, rel=1e-5)
        assert sample["direction"][2].item() == pytest.approx(np.cos(row["zenith"]), abs=1e-6)


def test_a_batch_at_once_is_the_same_as_one_by_one(kind: Kind, events_folder: Path) -> None:
    dataset = kind(events_folder)
    indices = [5, 400, 6, 5, -1, 599]

    for together, index in zip(dataset.__getitems__(indices), indices, strict=True):
        alone = dataset[index]
        assert together.keys() == alone.keys()
        assert torch.equal(together["pulses"], alone["pulses"])
        assert together["event_id"] == alone["event_id"]


def test_an_index_behind_the_end_is_refused(kind: Kind, events_folder: Path) -> None:
    with pytest.raises(IndexError):
        kind(events_folder)[600]


def test_samples_share_no_memory(kind: Kind, events_folder: Path) -> None:
    """A view would drag all that it is a view of to the main process."""
    dataset = kind(events_folder)
    twins = dataset.__getitems__([7, 7])

    twins[0]["pulses"].zero_()
    twins[0]["direction"].zero_()
    assert twins[1]["pulses"].any()
    assert dataset[7]["direction"].any()
    for tensor in (twins[0]["pulses"], twins[0]["direction"]):
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_a_dataset_goes_to_a_worker_without_file_and_pulses(
    kind: Kind, events_folder: Path
) -> None:
    dataset = kind(events_folder)
    _ = dataset[0]
    sent = pickle.dumps(dataset)

    assert len(sent) < 80 * len(dataset)  # labels and offsets; the pulses have 1,600 bytes each
    assert pickle.loads(sent)[3]["event_id"] == dataset[3]["event_id"]


@pytest.mark.parametrize("kind", [MemmapEvents, Hdf5Events, ParquetEvents])
def test_a_forked_process_opens_its_own_file(
    kind: Kind, events_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = kind(events_folder)
    first = dataset.file
    assert dataset.file is first

    monkeypatch.setattr("course_utils.loading.workers.lazy_file.os.getpid", lambda: -7)
    assert dataset.file is not first


@pytest.mark.parametrize("fs", ["file", "slow"])
def test_it_reads_the_same_through_a_file_system(kind: Kind, fs: str, events_folder: Path) -> None:
    storage = fsspec.filesystem("file") if fs == "file" else fast_storage(events_folder)
    remote, local = kind(events_folder, fs=storage), kind(events_folder)

    for there, here in zip(
        remote.__getitems__([3, 4, 599]), local.__getitems__([3, 4, 599]), strict=True
    ):
        assert torch.equal(there["pulses"], here["pulses"])


def requests(dataset: Events, ask: Callable[[], object]) -> int:
    dataset.fs.reset_counters()
    ask()
    count: int = dataset.fs.counters().requests
    return count


@pytest.mark.parametrize("kind", [MemmapEvents, Hdf5Events, ParquetEvents])
def test_a_batch_takes_at_most_a_third_of_the_requests_of_single_events(
    kind: Kind, events_folder: Path
) -> None:
    dataset = kind(events_folder, fs=fast_storage(events_folder))
    indices = np.random.default_rng(0).permutation(600)[:64].tolist()
    single = requests(dataset, lambda: [dataset[index] for index in indices])
    batch = requests(dataset, lambda: dataset.__getitems__(indices))

    assert single >= 64
    assert batch <= single / 3


def test_npz_takes_one_request_for_each_event(events_folder: Path) -> None:
    dataset = NpzEvents(events_folder, fs=fast_storage(events_folder))

    assert requests(dataset, lambda: dataset.__getitems__([1, 2, 3, 400])) == 4


def test_events_that_lie_close_together_are_fetched_together() -> None:
    offsets = np.array([0, 10, 20, 50, 60, 70])

    assert list(neighbours([3, 0, 1, 1], offsets, 0)) == [[0, 1], [3]]
    assert list(neighbours([3, 0, 1], offsets, 29)) == [[0, 1], [3]]
    assert list(neighbours([3, 0, 1], offsets, 30)) == [[0, 1, 3]]
    assert list(neighbours([], offsets, 30)) == []


@pytest.mark.parametrize(
    ("kind", "stages"),
    [
        (NpzEvents, ["read", "decode"] * 2),
        (MemmapEvents, ["read"]),
        (Hdf5Events, ["read"]),
        (ParquetEvents, ["read", "decode"]),
    ],
)
def test_the_stages_are_marked(kind: Kind, stages: list[str], events_folder: Path) -> None:
    dataset = kind(events_folder)
    with record() as trace:
        dataset.__getitems__([1, 2])

    assert [span.stage for span in trace.spans] == stages


def cut_short(content: bytes) -> bytes:
    return content[: len(content) // 2]


def overwrite(content: bytes) -> bytes:
    return content[: len(content) // 2].ljust(len(content), b"\0")


@pytest.mark.parametrize(
    ("kind", "name", "damage", "event"),
    [
        (NpzEvents, "npz/000/000300.npz", cut_short, 300),
        (NpzEvents, "npz/000/000300.npz", overwrite, 300),
        (MemmapEvents, "npy/pulses.npy", cut_short, 300),
        (Hdf5Events, "events.h5", cut_short, 0),
        (ParquetEvents, "pulses.parquet", cut_short, 0),
        (ParquetEvents, "pulses.parquet", overwrite, 0),
    ],
)
def test_a_damaged_file_is_named_with_the_event_and_the_next_step(
    kind: Kind,
    name: str,
    damage: Callable[[bytes], bytes],
    event: int,
    events_folder: Path,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "events"
    shutil.copytree(events_folder, folder)
    (folder / name).write_bytes(damage((folder / name).read_bytes()))

    with pytest.raises(OSError, match=f"Event {event} cannot be read") as caught:
        kind(folder).__getitems__([300])
    assert str(folder / name) in str(caught.value)
    assert str(caught.value).endswith(f"make_events --check --out {folder}`.")


def test_a_file_that_ends_too_early_is_found_through_a_file_system_too(
    events_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(events_folder, tmp_path / "events")
    with (tmp_path / "events/npy/pulses.npy").open("r+b") as file:
        file.truncate(50_000)
    dataset = MemmapEvents(tmp_path / "events", fs=fsspec.filesystem("file"))

    with pytest.raises(OSError, match="Event 599 cannot be read"):
        _ = dataset[599]


@pytest.mark.slow
def test_the_error_of_a_worker_names_the_file_too(events_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(events_folder, tmp_path / "events")
    (tmp_path / "events/npz/000/000001.npz").write_bytes(b"")
    loader = DataLoader(
        NpzEvents(tmp_path / "events"), batch_size=4, num_workers=1, collate_fn=pad_collate
    )

    with pytest.raises(OSError, match=r"Event 1 cannot be read, .*000001\.npz"):
        list(loader)


def test_a_folder_without_events_says_how_to_make_some(kind: Kind, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make_events --out"):
        kind(tmp_path)


def test_a_missing_format_says_how_to_add_it(
    kind: Kind, events_folder: Path, tmp_path: Path
) -> None:
    shutil.copy(events_folder / "events.parquet", tmp_path)

    with pytest.raises(FileNotFoundError, match="convert_events --help"):
        kind(tmp_path)
