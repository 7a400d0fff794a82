import pickle
from pathlib import Path

import pytest
import torch

from course_utils.loading.events import MemmapEvents, pad_collate


@pytest.mark.parametrize("indices", [[0, 599, 17], [17]])
def test_a_batch_is_as_wide_as_its_longest_event_and_says_which_pulses_are_real(
    indices: list[int], events_folder: Path
) -> None:
    samples = MemmapEvents(events_folder).__getitems__(indices)
    counts = [sample["n_pulses"] for sample in samples]
    batch = pickle.loads(pickle.dumps(pad_collate))(samples)  # as a worker gets it

    assert batch["pulses"].shape == (len(samples), max(counts), 4)
    assert (batch["pulses"].dtype, batch["mask"].dtype) == (torch.float32, torch.bool)
    assert batch["n_pulses"].tolist() == batch["mask"].sum(dim=1).tolist() == counts
    for row, mask, sample in zip(batch["pulses"], batch["mask"], samples, strict=True):
        assert torch.equal(row[mask], sample["pulses"])
        assert not row[~mask].any()
    for name in ("event_id", "run_id", "kind"):
        assert batch[name].dtype == torch.int64
        assert batch[name].tolist() == [sample[name] for sample in samples]
    assert batch["energy"].dtype == torch.float32
    assert batch["energy"].tolist() == pytest.approx([sample["energy"] for sample in samples])
    assert torch.equal(batch["direction"], torch.stack([s["direction"] for s in samples]))
