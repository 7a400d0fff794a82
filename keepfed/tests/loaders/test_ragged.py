"""Ragged batches and length buckets: the same rows as padded batches, without the padding."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from keepfed.loaders.contract import WorkerSlot
from keepfed.loaders.ragged import LengthBuckets, Ragged, RaggedCollate, RaggedLoader
from keepfed.loaders.resume import ResumableBatches
from tests.loaders.ranks import start_server

LENGTHS = [2, 0, 3, 1]
OFFSETS = [0, 2, 2, 5, 6]


class Rows(Dataset[dict[str, Any]]):
    """Dataset whose sample n has LENGTHS[n] rows of the number n, with two columns."""

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"rows": np.full((LENGTHS[index], 2), index, np.float32), "index": index}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.npy"
    np.save(path, np.repeat(np.arange(4, dtype=np.float32), LENGTHS)[:, None].repeat(2, 1))
    return path


def test_rows_of_a_sample_are_between_its_offsets() -> None:
    ragged = Ragged.join([torch.full((n, 2), i) for i, n in enumerate(LENGTHS)])
    assert ragged.offsets.tolist() == OFFSETS
    assert (ragged.shortest, ragged.longest) == (0, 3)
    assert ragged.sample.tolist() == ragged.values[:, 0].tolist() == [0, 0, 2, 2, 2, 3]


def test_nested_tensor_has_the_samples_and_shares_their_memory() -> None:
    ragged = Ragged.join([np.ones((2, 4)), np.zeros((3, 4))])
    nested = ragged.nested()
    assert nested._get_min_seqlen() == 2  # at 0, torch chooses none of its fused kernels
    assert [part.shape for part in nested.unbind()] == [(2, 4), (3, 4)]
    assert nested.values().data_ptr() == ragged.values.data_ptr()
    doubled = ragged.nested(2 * ragged.values)
    assert doubled.unbind()[0].sum() == 16


@pytest.mark.slow
def test_workers_send_ragged_batches(start_method: str) -> None:
    start_server(start_method)
    how: Any = {"num_workers": 1, "multiprocessing_context": start_method}
    first, second = DataLoader(Rows(), 2, collate_fn=RaggedCollate("rows"), **how)
    assert isinstance(first["rows"], Ragged)
    assert first["rows"].offsets.tolist() == [0, 2, 2]
    assert second["rows"].values.tolist() == [[2, 2]] * 3 + [[3, 3]]
    assert second["index"].tolist() == [2, 3]


def test_fields_of_equal_length_are_stacked() -> None:
    batch = RaggedCollate("rows")([Rows()[index] for index in (2, 0)])
    assert batch["rows"].values[:, 0].tolist() == [2, 2, 2, 0, 0]
    assert batch["rows"].offsets.tolist() == [0, 3, 5]
    assert batch["index"].tolist() == [2, 0]


def test_loader_reads_the_rows_and_fields_of_each_sample(file: Path) -> None:
    loader = RaggedLoader(file, OFFSETS, 3, fields={"length": LENGTHS}, seed=2)
    seen = []
    for batch in loader:
        ragged = batch["values"]
        assert torch.equal(ragged.offsets.diff(), batch["length"])
        assert (ragged.shortest, ragged.longest) == tuple(batch["length"].aminmax())
        seen += ragged.values[:, 0].tolist()
    assert sorted(seen) == [0, 0, 2, 2, 2, 3]
    assert pickle.loads(pickle.dumps(loader)).fields["length"].tolist() == LENGTHS
    loader.close()


def test_buckets_need_less_padding_and_are_not_sorted() -> None:
    lengths = np.random.default_rng(0).geometric(0.02, 1000)
    random, similar = ResumableBatches(1000, 20), LengthBuckets(lengths, 20)
    widths = [[max(lengths[batch]) for batch in batches] for batches in (random, similar)]
    assert 20 * sum(widths[1]) < 1.2 * lengths.sum() < 0.6 * 20 * sum(widths[0])
    assert abs(np.corrcoef(widths[1], np.arange(50))[0, 1]) < 0.4
    assert "bucket" in similar.made_by


def test_ranks_get_similar_lengths_in_each_step() -> None:
    lengths = np.random.default_rng(0).permutation(415)
    jobs = [LengthBuckets(lengths, 10, bucket=20, slot=WorkerSlot(rank, 2)) for rank in range(2)]
    spread = [np.ptp(lengths[np.concatenate(both)]) for both in zip(*jobs, strict=True)]
    assert spread == [19] * 20 + [14]


def test_bucket_must_be_positive() -> None:
    with pytest.raises(ValueError, match="`bucket` must be at least 1, but is 0"):
        LengthBuckets(LENGTHS, 2, bucket=0)
