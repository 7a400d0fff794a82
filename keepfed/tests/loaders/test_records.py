import pickle
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from keepfed.errors import KeepfedError
from keepfed.loaders.prefetch import ThreadPrefetcher
from keepfed.loaders.records import RecordLoader, write_records

N, SIZE = 1000, 104  # number of records, bytes per record


def fields(n: int = N) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    return {
        "pulses": rng.random((n, 5, 4), np.float32),
        "number": np.arange(n),
        "kind": rng.integers(0, 2, n).astype(np.uint8),
        "good": rng.random(n) > 0.5,
        "half": rng.random((n, 3)).astype(np.float16),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with 1,000 records. Do not write to it."""
    file = tmp_path_factory.mktemp("records") / "train.npy"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keepfed.loaders.records._AT_ONCE", 64)
        assert write_records(file, fields()) == file.stat().st_size
    return file


def numbers(loader: Any) -> list[list[int]]:
    return [batch["number"].tolist() for batch in loader]


def flat(batches: Iterable[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


def test_fields_may_be_tensors_big_endian_or_fortran_order(tmp_path: Path) -> None:
    wide, file = np.arange(12.0).reshape(3, 4), tmp_path / "a.npy"
    others = {"b": wide.astype(">f8"), "c": np.asfortranarray(wide)}
    write_records(file, {"a": torch.arange(3), **others})
    (batch,) = RecordLoader(file, 3, shuffle=False)

    assert batch["a"].tolist() == [0, 1, 2]
    assert torch.equal(batch["b"], torch.from_numpy(wide))
    assert torch.equal(batch["c"], batch["b"])
    np.testing.assert_array_equal(np.load(file)["b"], wide)  # numpy can also read the file


@pytest.mark.parametrize("batch_size", [1, 7, 250, 5000])
@pytest.mark.parametrize("drop_last", [False, True])
def test_every_record_is_served_once_per_epoch_with_all_fields(
    path: Path, batch_size: int, drop_last: bool
) -> None:
    loader = RecordLoader(path, batch_size, drop_last=drop_last)
    written, found = fields(), []
    for batch in loader:
        found.append(batch["number"].tolist())
        for name, column in written.items():
            np.testing.assert_array_equal(batch[name].numpy(), column[found[-1]])

    served = N // batch_size * batch_size if drop_last else N
    assert len(set(flat(found))) == len(flat(found)) == served
    assert len(found) == len(loader) == -(-served // batch_size)
    assert all(len(batch) == batch_size for batch in found[:-1])


def test_order_depends_only_on_seed_and_epoch(path: Path) -> None:
    def order(seed: int, epoch: int, **options: Any) -> list[list[int]]:
        loader = RecordLoader(path, 100, seed=seed, **options)
        loader.set_epoch(epoch)
        return numbers(loader)

    drawn = [order(0, 0), order(0, 1), order(1, 0)]
    assert drawn == [order(0, 0), order(0, 1), order(1, 0)]
    assert all(a != b for a, b in zip(drawn, drawn[1:] + drawn[:1], strict=True))
    assert flat(order(0, 0, shuffle=False)) == list(range(N))


@pytest.mark.parametrize(("buffers", "ahead"), [(1, 0), (2, 0), (2, 1), (5, 3)])
def test_batch_is_valid_until_its_memory_is_reused(path: Path, buffers: int, ahead: int) -> None:
    loader, held, places = RecordLoader(path, 10, buffers=buffers), list[Any](), set[int]()
    for batch in ThreadPrefetcher(loader, ahead) if ahead else loader:
        places.add(batch["number"].data_ptr())
        held = [*held, (batch, batch["number"].clone())][-(buffers - ahead) :]
        for kept, expected in held:
            assert torch.equal(kept["number"], expected)
    assert len(places) == buffers


def test_batches_may_own_their_memory(path: Path) -> None:
    kept = list(RecordLoader(path, 64, buffers=None))
    assert sorted(flat(numbers(kept))) == list(range(N))
    loader = RecordLoader(path, 50)
    assert all(torch.equal(a["number"], b["number"]) for a, b in zip(loader, loader, strict=True))


@pytest.mark.slow
def test_workers_give_the_same_batches_in_the_same_order(path: Path, start_method: str) -> None:
    records = RecordLoader(path, 64)
    alone = numbers(records)
    records.set_epoch(0)
    assert len(pickle.dumps(records)) < 3000  # contains the path, but no data
    loader = DataLoader(
        records,
        batch_size=None,
        num_workers=2,
        multiprocessing_context=start_method,
        persistent_workers=True,
        timeout=120,
    )
    kept = list(loader)

    assert len(loader) == len(kept)
    assert [batch["number"].tolist() for batch in kept] == alone
    records.set_epoch(1)
    assert numbers(loader) != alone


@pytest.fixture
def broken(path: Path, tmp_path: Path) -> Path:
    """Return a copy of the file for damaging."""
    return Path(shutil.copy(path, tmp_path / "broken.npy"))


def everything(path: Path) -> dict[str, torch.Tensor]:
    (batch,) = RecordLoader(path, N, shuffle=False)
    return batch


def test_changed_byte_is_detected_or_harmless(broken: Path) -> None:
    """Padding in the header does not matter. For a record, the error states its index."""
    good, whole = broken.read_bytes(), everything(broken)
    header, said = len(good) - N * SIZE, dict[int, str]()
    for place in [*range(header), *range(header, len(good), 4999)]:
        broken.write_bytes(good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :])
        try:
            batch = everything(broken)
        except OSError as error:
            said[place] = str(error)
        else:
            assert place < header
            assert all(torch.equal(batch[name], whole[name]) for name in whole)

    for place, sentence in said.items():
        record = f"Record {(place - header) // SIZE} of " if place >= header else ""
        assert re.match(f"{record}.*broken.npy", sentence)


def test_damaged_file_is_detected(broken: Path) -> None:
    good = broken.read_bytes()
    for content, said in (
        (
            good[:-SIZE] + good[-2 * SIZE : -SIZE],
            r"Record 999 of .* is corrupted\. Copy",
        ),
        (good[:4096] + bytes(4096) + good[8192:], "is corrupted"),
        (good[:-4096], r"is truncated or damaged .*\. Copy the file again"),
        (good + bytes(8), r"is truncated or damaged .*\. Copy the file again"),
        (b"", r"broken\.npy is truncated or damaged"),
        (b"PK\x03\x04 no array", r"broken\.npy is truncated or damaged"),
    ):
        broken.write_bytes(content)
        with pytest.raises(OSError, match=said):
            list(RecordLoader(broken, 64))


def test_foreign_array_and_missing_file_are_rejected(tmp_path: Path) -> None:
    for array in (np.zeros((3, 4)).T, np.array([{}, 1], object)):
        np.save(tmp_path / "other.npy", array, allow_pickle=True)
        with pytest.raises(OSError, match=r"other\.npy (is truncated|contains no records)"):
            RecordLoader(tmp_path / "other.npy", 64)
    with pytest.raises(FileNotFoundError, match=r"none\.npy does not exist"):
        RecordLoader(tmp_path / "none.npy", 64)


def test_invalid_fields_are_rejected(tmp_path: Path) -> None:
    bad: list[tuple[Any, str]] = [
        ({}, "Give at least one field"),
        ({"checksum": np.zeros(3)}, "do not name any field 'checksum'"),
        ({"a": np.zeros(3), "b": np.zeros(4)}, "Give all of them the same number"),
        ({"a": np.zeros((0, 4))}, "Give all of them the same number"),
        ({"a": np.zeros(3, "M8[s]")}, "array of numbers"),
        ({"a": np.zeros(3, np.longdouble)}, "array of numbers"),
        ({"a": 3.0}, "array of numbers"),
    ]
    for fields_, said in bad:
        with pytest.raises(ValueError, match=said):
            write_records(tmp_path / "a.npy", fields_)
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_reported_before_writing(tmp_path: Path) -> None:
    endless = np.broadcast_to(np.float32(0), (2**40, 128, 4))
    with pytest.raises(KeepfedError, match=r"[MG]B free, but .* [MG]B are needed.*elsewhere"):
        write_records(tmp_path / "a.npy", {"a": endless})
    assert list(tmp_path.iterdir()) == []


def test_failing_writer_keeps_the_previous_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unreadable(np.ndarray[Any, Any]):
        def __getitem__(self, key: Any) -> Any:
            if isinstance(key, slice) and key.start:
                raise OSError("the disk is gone")
            return super().__getitem__(key)

    file = tmp_path / "a.npy"
    write_records(file, fields(10))
    monkeypatch.setattr("keepfed.loaders.records._AT_ONCE", 50)
    with pytest.raises(OSError, match="the disk is gone"):
        write_records(file, {"number": np.arange(100).view(Unreadable)})

    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npy"]
    assert len(RecordLoader(file, 1)) == 10


def test_invalid_arguments_are_rejected(path: Path) -> None:
    for name in ("batch_size", "buffers"):
        with pytest.raises(ValueError, match=rf"`{name}` must be at least 1, but is 0\."):
            RecordLoader(path, **{"batch_size": 8, name: 0})


@pytest.mark.parametrize("buffers", [None, 2])
def test_contiguous_fields_equal_the_views(tmp_path: Path, buffers: int | None) -> None:
    rng = np.random.default_rng(0)
    fields = {
        "pulses": rng.random((50, 3, 5)).astype("f4"),
        "kind": rng.integers(0, 9, 50).astype("u1"),
        "half": rng.random((50, 3)).astype("f2"),
        "energy": rng.random(50),
    }
    write_records(tmp_path / "r.npy", fields)
    views, own = (
        RecordLoader(tmp_path / "r.npy", 8, buffers=buffers, contiguous=contiguous)
        for contiguous in (False, True)
    )
    for _ in range(2):
        for view, batch in zip(views, own, strict=True):
            assert {*view} == {*batch} == {*fields}
            for name in fields:
                assert batch[name].is_contiguous()
                assert batch[name].dtype == view[name].dtype
                assert torch.equal(batch[name], view[name])


def test_contiguous_batches_report_a_corrupted_record(tmp_path: Path) -> None:
    write_records(tmp_path / "r.npy", {"x": np.arange(40.0)})
    content = bytearray((tmp_path / "r.npy").read_bytes())
    content[-9] ^= 1
    (tmp_path / "r.npy").write_bytes(content)
    with pytest.raises(OSError, match="Record 39"):
        list(RecordLoader(tmp_path / "r.npy", 8, contiguous=True))
