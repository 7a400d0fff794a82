import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from course_utils.loading.events import Batch, MemmapEvents, pad_collate
from course_utils.loading.fast.ragged import RaggedLoader


def expected(folder: Path, ids: torch.Tensor) -> Batch:
    events = MemmapEvents(folder)
    place = {int(event_id): index for index, event_id in enumerate(events.labels.event_id)}
    return pad_collate(events.__getitems__([place[int(event_id)] for event_id in ids]))


def assert_same(batch: Batch, wanted: Batch) -> None:
    assert batch.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(batch[name], tensor)  # type: ignore[literal-required, arg-type]
        assert batch[name].dtype == tensor.dtype  # type: ignore[literal-required, attr-defined]


def test_in_the_order_of_the_file_it_gives_what_a_loader_gives(events_folder: Path) -> None:
    usual = DataLoader(MemmapEvents(events_folder), 64, collate_fn=pad_collate)
    fast = RaggedLoader(events_folder, 64, shuffle=False)

    assert len(fast) == len(usual)
    for batch, wanted in zip(fast, usual, strict=True):
        assert_same(batch, wanted)


@pytest.mark.parametrize("options", [{}, {"ahead": 1}, {"sort": True}, {"buffers": None}])
def test_shuffled_batches_are_those_of_pad_collate(
    events_folder: Path, options: dict[str, Any]
) -> None:
    seen = []
    for batch in RaggedLoader(events_folder, 50, **options):
        assert_same(batch, expected(events_folder, batch["event_id"]))
        seen += batch["event_id"].tolist()

    assert len(seen) == len(set(seen)) == 600


def test_epochs_differ_and_ranks_are_disjoint(events_folder: Path) -> None:
    def ids(rank: int, epoch: int) -> list[int]:
        loader = RaggedLoader(events_folder, 32, rank=rank, world_size=2)
        loader.set_epoch(epoch)
        return [number for batch in loader for number in batch["event_id"].tolist()]

    assert ids(0, 0) == ids(0, 0) != ids(0, 1)
    assert len(set(ids(0, 0) + ids(1, 0))) == 600


@pytest.fixture
def folder(events_folder: Path, tmp_path: Path) -> Path:
    """Return a copy of the events in the layout of arrays, to be written into."""
    shutil.copytree(events_folder / "npy", tmp_path / "npy")
    shutil.copy(events_folder / "events.parquet", tmp_path)
    return tmp_path


def test_events_without_pulses_are_padded_too(events_folder: Path, folder: Path) -> None:
    """The labels do not know the checksum of nothing, so they are written without."""
    labels = pq.read_table(events_folder / "events.parquet").drop_columns("crc32").slice(0, 4)
    pq.write_table(labels, folder / "events.parquet")
    np.save(folder / "npy/pulses.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    np.save(folder / "npy/offsets.npy", np.array([0, 0, 3, 3, 3]))
    first, last = RaggedLoader(folder, 2, shuffle=False)

    assert first["n_pulses"].tolist() == [0, 3]
    assert first["pulses"].shape == (2, 3, 4)
    assert not first["pulses"][0].any()
    assert last["pulses"].shape == (2, 0, 4)
    assert last["mask"].shape == (2, 0)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def test_a_changed_byte_names_the_event(folder: Path) -> None:
    place = int(np.load(folder / "npy/offsets.npy")[42]) * 16
    flip(folder / "npy/pulses.npy", 128 + place)

    with pytest.raises(OSError, match=r"Event 42 cannot be read, .*pulses\.npy is missing or corr"):
        list(RaggedLoader(folder, 64, ahead=1))


def change(offsets: NDArray[np.int64], place: int, by: int) -> NDArray[np.int64]:
    offsets[place] += by
    return offsets


@pytest.mark.parametrize(
    "spoil",
    [
        lambda offsets: offsets[:-1],
        lambda offsets: np.append(offsets, offsets[-1]),
        lambda offsets: change(offsets, 0, 1),
        lambda offsets: change(offsets, 5, 2**40),
        lambda offsets: change(offsets, -1, -1),
    ],
)
def test_offsets_of_other_pulses_are_refused(
    folder: Path, spoil: Callable[[NDArray[np.int64]], NDArray[np.int64]]
) -> None:
    np.save(folder / "npy/offsets.npy", spoil(np.load(folder / "npy/offsets.npy")))
    with pytest.raises(OSError, match="is missing or corrupted"):
        RaggedLoader(folder, 64)


@pytest.mark.parametrize("kept", [0, 100, 5000])
def test_pulses_that_were_cut_short_are_refused(folder: Path, kept: int) -> None:
    path = folder / "npy/pulses.npy"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(OSError, match=r"pulses\.npy"):
        RaggedLoader(folder, 64)


def test_a_folder_without_events_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no events"):
        RaggedLoader(tmp_path, 64)


def test_it_goes_to_a_worker_without_the_pulses(events_folder: Path) -> None:
    loader = RaggedLoader(events_folder, 64)
    ids = [batch["event_id"].tolist() for batch in loader]
    sent = pickle.dumps(loader)

    assert len(sent) < 110 * 600  # labels and offsets; the pulses have 1,600 bytes each
    assert [batch["event_id"].tolist() for batch in pickle.loads(sent)] == ids


def test_workers_give_the_same_batches(events_folder: Path) -> None:
    events = RaggedLoader(events_folder, 64)
    ids = [batch["event_id"].tolist() for batch in events]
    loader = DataLoader(events, batch_size=None, num_workers=2, timeout=120)

    assert [batch["event_id"].tolist() for batch in loader] == ids
