"""Exercise 01.1: build one batch from events of different lengths."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from course_utils.exercises.judging import loader
from course_utils.exercises.judging.compare import Slip, compare, equal
from course_utils.exercises.judging.probes import (
    expect_as_fast,
    expect_new_results,
    process_unchanged,
)
from course_utils.teaching.exercise import Verdict, exercise, expect_in_a_file, right

Sample = dict[str, Any]

KEYS = ("pulses", "mask", "energy")
# lengths of the events of a batch. Two batches have the same lengths, but different pulses.
MIXTURES = ((4,), (7, 7), (7, 7), (5, 3, 9, 1), (1, 5_000, 2))


def _differ(key: str, wrong: Callable[[torch.Tensor, torch.Tensor], object]) -> Any:
    """Return a test whether one tensor of the batch is wrong in a certain way."""
    return lambda _, got, wanted: not equal(got[key], wanted[key]) and wrong(got[key], wanted[key])


SLIPS = (
    Slip(
        lambda _, got, __: (
            not isinstance(got, Mapping)
            or any(not isinstance(got.get(key), torch.Tensor) for key in KEYS)
            or any(got[key].layout != torch.strided for key in KEYS)
        ),
        "The batch must be a dict with three dense tensors: pulses, mask and energy. The GPU needs "
        "one block of memory for each.",
        "Return {{'pulses': ..., 'mask': ..., 'energy': ...}}, and create one tensor for each.",
    ),
    Slip(
        lambda _, got, __: any(got[key].requires_grad for key in KEYS),
        "A tensor of the batch requires gradients, but a batch contains data, not parameters.",
        "Remove requires_grad_().",
    ),
    Slip(
        _differ(
            "pulses",
            lambda got, wanted: (
                got.shape[::2] == wanted.shape[::2] and got.shape[1] != wanted.shape[1]
            ),
        ),
        "The longest event of this batch has {wanted[pulses].shape[1]} pulses, but your batch has "
        "space for {got[pulses].shape[1]}. A smaller space loses pulses, a larger one is wasted.",
        "Take the width from the longest event of this batch only.",
    ),
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
    Slip(
        _differ("mask", lambda got, wanted: got.dtype != torch.bool),
        "The mask is {got[mask].dtype}. With such numbers, pulses[mask] selects rows by index.",
        "A comparison returns bool. For other values, call .bool().",
    ),
)


@exercise("01.1", title="Make one batch of ragged events", seconds=30)
def pad_events(collate: Callable[[list[Sample]], Mapping[str, torch.Tensor]]) -> Verdict:
    """Check a collate function: alone with hidden mixtures, then in workers."""
    cases = [_samples(lengths, seed) for seed, lengths in enumerate(MIXTURES)]
    for samples in cases:
        with process_unchanged(samples):
            batch = collate(samples)
        _compare(partial(_known, batch), [samples])
        with process_unchanged(samples):
            batch["pulses"].mul_(2)  # a training may normalise its batch in place
    many = _samples(range(200, 0, -1), seed=7)
    long = _samples(range(1, 2_000, 40), seed=8)
    expect_as_fast(partial(collate, long), partial(_plain, long))
    expect_new_results(partial(collate, many))
    _compare(collate, [many[first : first + 4] for first in range(0, 200, 4)])
    expect_in_a_file(collate)
    served = iter(loader(many, batch_size=4, collate_fn=collate))
    _compare(lambda _: next(served), [many[first : first + 4] for first in range(0, 200, 4)])
    return right("Any mixture of lengths becomes one batch, even in two workers.")


def _compare(answer: Callable[[list[Sample]], Any], cases: Sequence[list[Sample]]) -> None:
    compare(answer, _plain, cases, *SLIPS, show=_lengths)


def _known(batch: Any, _: list[Sample]) -> Any:
    return batch


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
    return [
        {"pulses": event, "energy": len(event) % 5 + seed + 7 / 3, "run": "IC86"}
        for event in pulses
    ]


def _lengths(samples: list[Sample]) -> str:
    return f"events of {', '.join(str(len(sample['pulses'])) for sample in samples)} pulses"
