"""Make one batch of events that have different numbers of pulses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import torch
from torch.nn.utils.rnn import pad_sequence

from course_utils.loading.events.contract import Sample


class Batch(TypedDict):
    """B events, as wide as the T pulses of the longest."""

    pulses: torch.Tensor  # float32 (B, T, 4), zeros behind the last pulse of an event
    mask: torch.Tensor  # bool (B, T), true where there is a pulse
    n_pulses: torch.Tensor  # int64 (B,)
    event_id: torch.Tensor  # int64 (B,)
    run_id: torch.Tensor  # int64 (B,)
    energy: torch.Tensor  # float32 (B,), log10 of GeV
    direction: torch.Tensor  # float32 (B, 3)
    kind: torch.Tensor  # int64 (B,)


def pad_collate(samples: Sequence[Sample]) -> Batch:
    """Pad all events of a batch to the longest and say in `mask` which pulses are real."""
    pulses = pad_sequence([sample["pulses"] for sample in samples], batch_first=True)
    n_pulses = torch.tensor([sample["n_pulses"] for sample in samples])
    return {
        "pulses": pulses,
        "mask": torch.arange(pulses.shape[1]) < n_pulses[:, None],
        "n_pulses": n_pulses,
        "event_id": torch.tensor([sample["event_id"] for sample in samples]),
        "run_id": torch.tensor([sample["run_id"] for sample in samples]),
        "energy": torch.tensor([sample["energy"] for sample in samples]),
        "direction": torch.stack([sample["direction"] for sample in samples]),
        "kind": torch.tensor([sample["kind"] for sample in samples]),
    }
