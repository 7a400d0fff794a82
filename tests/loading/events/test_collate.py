import pickle
from pathlib import Path

import pytest
import torch

from course_utils.loading.events import MemmapEvents, Sample, pad_collate


@pytest.fixture
def samples(events_folder: Path) -> list[Sample]:
    return MemmapEvents(events_folder).__getitems__([0, 599, 17])


def test_the_batch_is_as_wide_as_its_longest_event(samples: list[Sample]) -> None:
    batch = pad_collate(samples)
    counts = [sample["n_pulses"] for sample in samples]

    assert batch["pulses"].shape == (3, max(counts), 4)
    assert batch["pulses"].dtype == torch.float32
    assert batch["n_pulses"].tolist() == counts


def test_the_mask_is_true_where_there_are_pulses_and_zeros_are_behind(
    samples: list[Sample],
) -> None:
    batch = pad_collate(samples)

    assert batch["mask"].dtype == torch.bool
    assert batch["mask"].sum(dim=1).tolist() == batch["n_pulses"].tolist()
    for row, mask, sample in zip(batch["pulses"], batch["mask"], samples, strict=True):
        assert torch.equal(row[mask], sample["pulses"])
        assert not row[~mask].any()


def test_labels_keep_their_order_and_types(samples: list[Sample]) -> None:
    batch = pad_collate(samples)

    for name in ("event_id", "run_id", "kind"):
        assert batch[name].dtype == torch.int64
        assert batch[name].tolist() == [sample[name] for sample in samples]
    assert batch["energy"].dtype == torch.float32
    assert torch.equal(batch["direction"], torch.stack([s["direction"] for s in samples]))


def test_one_event_makes_a_batch(samples: list[Sample]) -> None:
    batch = pad_collate(samples[:1])

    assert batch["mask"].all()
    assert len(batch["pulses"]) == 1


def test_it_can_be_sent_to_a_worker() -> None:
    assert pickle.loads(pickle.dumps(pad_collate)) is pad_collate
