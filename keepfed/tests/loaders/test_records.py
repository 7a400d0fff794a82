import pickle
import shutil
from collections.abc import Iterable
from contextlib import suppress
from itertools import product
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

N, SIZE = 1000, 96  # number of records, bytes per record


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
    others = {"b": wide.astype(">f8"), "c": np.asfortranarray(wide), "d": wide[:, 0] + 1j}
    write_records(file, {"a": torch.arange(3), **others})
    (batch,) = RecordLoader(file, 3, shuffle=False)

    assert batch["a"].tolist() == [0, 1, 2]
    assert torch.equal(batch["b"], torch.from_numpy(wide))
    assert torch.equal(batch["c"], batch["b"])
    assert batch["d"].tolist() == [1j, 4 + 1j, 8 + 1j]  # 16 bytes, in records of other sizes
    np.testing.assert_array_equal(np.load(file)["b"], wide)  # numpy can also read the file


def test_every_record_is_served_once_per_epoch_with_all_fields(path: Path) -> None:
    for batch_size, drop_last in product((7, 250, 5000), (False, True)):
        loader = RecordLoader(path, batch_size, drop_last=drop_last)
        written, found = fields(), []
        for batch in loader:
            found.append(batch["number"].tolist())
            for name, column in written.items():
                assert batch[name].dtype == torch.from_numpy(column).dtype
                np.testing.assert_array_equal(batch[name].numpy(), column[found[-1]])

        served = N // batch_size * batch_size if drop_last else N
        assert len(set(flat(found))) == len(flat(found)) == served, (batch_size, drop_last)
        assert len(found) == len(loader) == -(-served // batch_size)
        assert all(len(batch) == batch_size for batch in found[:-1])


def test_batches_own_their_memory_without_gaps(path: Path) -> None:
    kept = list(ThreadPrefetcher(RecordLoader(path, 64), 3))
    assert sorted(flat(numbers(kept))) == list(range(N))
    assert all(field.is_contiguous() for batch in kept for field in batch.values())


@pytest.mark.slow
@pytest.mark.many_workers
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
    header, sums = len(good) - N * (SIZE + 8), len(good) - N * 8
    for place in [*range(header), *range(header, len(good), 4999)]:
        broken.write_bytes(good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :])
        record = (place - header) // SIZE if place < sums else (place - sums) // 8
        if place >= header:
            with pytest.raises(OSError, match=f"^Record {record} of .*broken.npy"):
                everything(broken)
            continue
        with suppress(OSError):
            batch = everything(broken)
            assert all(torch.equal(batch[name], whole[name]) for name in whole)


def test_damaged_file_is_detected(broken: Path) -> None:
    good = broken.read_bytes()
    for content, said in (
        (
            good[: -8 * N - SIZE] + good[-8 * N - 2 * SIZE : -8 * N - SIZE] + good[-8 * N :],
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
        ({"a": np.zeros(3), "b": np.zeros(4)}, "Give all of them the same number"),
        ({"a": np.zeros((0, 4))}, "Give all of them the same number"),
        ({"a": np.zeros(3, "M8[s]")}, "array of numbers"),
        ({"a": np.zeros(3, np.longdouble)}, "array of numbers"),
        ({"a": 3.0}, "array of numbers"),
        ({"x": torch.ones(4, requires_grad=True)}, "'x' cannot be read: .*detach"),
        ({"x": torch.ones(4, dtype=torch.bfloat16)}, r"'x' cannot be read: .*`\.float\(\)`"),
        ({"x": np.array([1, np.nan])}, "'x' is NaN in row 1, .*allow_nan=True"),
        ({"x": np.array([[1], [2, 3]], object)}, "'x' has type object .*array of numbers"),
    ]
    for fields_, said in bad:
        with pytest.raises(ValueError, match=said):
            write_records(tmp_path / "a.npy", fields_)
    assert list(tmp_path.iterdir()) == []
    write_records(tmp_path / "r.npy", {"x": np.array([1, np.nan])}, allow_nan=True)
    assert np.isnan(np.load(tmp_path / "r.npy")["x"]).tolist() == [False, True]


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
