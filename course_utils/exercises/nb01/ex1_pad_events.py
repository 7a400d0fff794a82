"""Exercise 01.1: build one batch from events of different lengths."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from course_utils.exercises.judging import loader
from course_utils.exercises.judging.chance import expect_no_seed
from course_utils.exercises.judging.compare import Slip, compare, equal
from course_utils.exercises.judging.probes import expect_as_fast, process_unchanged
from course_utils.teaching.exercise import Verdict, exercise, expect_in_a_file, right

Sample = dict[str, Any]

# lengths of the events of a batch. Two batches have the same lengths, but different pulses.
MIXTURES: Sequence[Sequence[int]] = (
    (4,),
    (7, 7),
    (7, 7),
    (5, 3, 9, 1),
    (0, 3),  # an event without pulses is an event
    (1, 5_000, 2),
    (33_000, 1),  # more than int16 can count
)
ODD = torch.tensor([float("nan"), float("inf"), 1e6])  # a batch must not repair data


def _differ(key: str, wrong: Callable[[torch.Tensor, torch.Tensor], object]) -> Any:
    """Return a test whether one tensor of the batch is wrong in a certain way."""

    def test(_: object, got: Any, wanted: Mapping[str, torch.Tensor]) -> object:
        is_tensor = isinstance(got, Mapping) and isinstance(got.get(key), torch.Tensor)
        return is_tensor and not equal(got[key], wanted[key]) and wrong(got[key], wanted[key])

    return test


SLIPS = (
    Slip(
        _differ("pulses", lambda got, wanted: equal(got.sort(0).values, wanted.sort(0).values)),
        "The events of your batch are in another order than the samples. Pulses, mask and energy "
        "must belong to the same event.",
        "Keep the order of the samples in all three tensors.",
    ),
    Slip(
        _differ("mask", lambda got, wanted: equal(got, ~wanted)),
        "The mask is true for padding, like PyTorch's key_padding_mask. Here, true means a pulse.",
        "Invert it with ~mask, or write < instead of >=.",
    ),
    Slip(
        _differ("mask", lambda got, wanted: got.shape == wanted.shape and not got[wanted].all()),
        "The mask marks real pulses as padding. A real pulse may be zero, so do not use values.",
        "Compute the mask from the lengths of the events.",
    ),
)


@exercise("01.1", title="Make one batch of ragged events", seconds=30)
def pad_events(collate: Callable[[list[Sample]], Mapping[str, torch.Tensor]]) -> Verdict:
    """Check a collate function: alone with hidden mixtures, then in workers."""
    for seed, lengths in enumerate(MIXTURES):
        samples = _samples(lengths, seed)
        with process_unchanged(samples, may_draw=True):
            batch = collate(samples)
        _compare(partial(lambda known, _: known, batch), [samples])
        with process_unchanged(samples):  # a training may change its batch in place
            for part in batch.values():
                part.copy_(part.clone().zero_())  # torch refuses it if events share memory
    expect_no_seed(partial(collate, _samples(MIXTURES[3], 0)))
    long = _samples(range(1, 2_000, 40), seed=8)
    expect_as_fast(partial(collate, long), partial(_plain, long))
    many = _samples(range(200, 0, -1), seed=7)
    _compare(collate, [*map(_samples, MIXTURES[1:3], (1, 2)), many, *_fours(many)])
    expect_in_a_file(collate)
    served = iter(loader(many, batch_size=4, collate_fn=collate))
    _compare(lambda _: next(served), _fours(many))
    return right("Any mixture of lengths becomes one batch, even in two workers.")


def _compare(answer: Callable[[list[Sample]], Any], cases: Sequence[list[Sample]]) -> None:
    compare(answer, _plain, cases, *SLIPS, call=_call)


def _plain(samples: list[Sample]) -> dict[str, torch.Tensor]:
    lengths = torch.tensor([len(sample["pulses"]) for sample in samples])
    return {
        "pulses": pad_sequence([sample["pulses"] for sample in samples], batch_first=True),
        "mask": torch.arange(max(lengths)) < lengths[:, None],
        "energy": torch.tensor([sample["energy"] for sample in samples]),
    }


def _samples(lengths: Sequence[int], seed: int) -> list[Sample]:
    generator = torch.Generator().manual_seed(seed)
    pulses = [torch.randn(n, 4, generator=generator) for n in lengths]
    pulses[0][1::3] = 0  # a real pulse may be zero, even the last one
    pulses[-1][:, 0] = 0  # and an event may begin at time zero
    pulses[-1][:1, 1:] = ODD
    return [
        {"pulses": event, "energy": len(event) % 5 + seed + 7 / 3, "run": "IC86"}
        for event in pulses
    ]


def _fours(samples: list[Sample]) -> Sequence[list[Sample]]:
    return [samples[first : first + 4] for first in range(0, len(samples), 4)]


def _call(samples: list[Sample]) -> str:
    lengths = [len(sample["pulses"]) for sample in samples]
    shown = lengths if len(lengths) <= 8 else f"range({lengths[0]}, 0, -1)"
    return f'pad_events([{{"pulses": torch.randn(n, 4).sqrt(), "energy": 1.0}} for n in {shown}])'
