"""Exercise 01.1: what becomes of a list of events of different lengths."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from course_exercises.judging import loader
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_in_a_file, right

Sample = dict[str, Any]

MIXTURES = ((5, 3, 9, 1), (4,), (7, 7), (1, 5_000, 2))  # lengths of the events of a batch
KEYS = ("pulses", "mask", "energy")


@exercise("01.1", title="Make one batch of ragged events", seconds=120)
def pad_events(collate: Callable[[list[Sample]], Mapping[str, torch.Tensor]]) -> Verdict:
    """Judge a collate function: alone on hidden mixtures, then in workers."""
    for seed, lengths in enumerate(MIXTURES):
        given, samples = _samples(lengths, seed), _samples(lengths, seed)
        batch = collate(given)
        expect(
            _numbers(given) == _numbers(samples),
            "The function changes the samples that it was given. If the dataset keeps them in "
            "memory, they are changed again in each epoch.",
            "Work on copies: x = x / 1000 makes a new tensor, x /= 1000 changes the old one.",
        )
        _judge_batch(batch, samples)
    expect_in_a_file(collate)
    samples = _samples(range(1, 17), 7)
    early = collate(samples[:4])["pulses"]
    kept, _ = early.clone(), collate(samples[4:8])
    expect(
        torch.equal(early, kept),
        "The next batch overwrites this one, and a loader keeps several batches ready.",
        "Make a new tensor in each call.",
    )
    batches = [*loader(samples, batch_size=4, collate_fn=collate)]
    widths = [batch["pulses"].shape[1] for batch in batches]
    expect(
        widths == [4, 8, 12, 16],
        f"In workers the batches are {widths} pulses wide; events of 1 to 16 pulses in fours "
        "make 4, 8, 12 and 16. Something is kept from one call to the next.",
        "Work out everything from the samples of this call.",
    )
    for number, batch in enumerate(batches):
        _judge_batch(batch, samples[4 * number : 4 * number + 4])
    return right("Any mixture of lengths becomes one batch, and two workers did it as well.")


def _samples(lengths: Sequence[int], seed: int) -> list[Sample]:
    generator = torch.Generator().manual_seed(seed)
    pulses = [torch.randn(n, 4, generator=generator) for n in lengths]
    pulses[0][1::3] = 0  # a real pulse may be all zeros, and may be the last one
    pulses[-1][:, 0] = 0  # or begin at the time zero
    return [{"pulses": event, "energy": len(event) % 5 + 7 / 3} for event in pulses]


def _numbers(samples: list[Sample]) -> list[dict[str, Any]]:
    return [{key: torch.as_tensor(one[key]).tolist() for key in one} for one in samples]


def _judge_batch(batch: Any, samples: list[Sample]) -> None:
    _judge_form(batch, samples)
    _judge_pulses(batch["pulses"], samples)
    _judge_mask(batch["mask"], samples)
    energy, wanted = batch["energy"], torch.tensor([sample["energy"] for sample in samples])
    expect(
        energy.dtype == torch.float32,
        f"The energies are {energy.dtype}: a loss between them and a float32 output fails.",
        "torch.tensor of a list of Python floats gives float32.",
    )
    expect(
        torch.equal(energy, wanted),
        f"The energies are not those of the events in their order, in the shape "
        f"{tuple(wanted.shape)}.",
        "Take sample['energy'] of each sample, in the order of the samples.",
    )


def _judge_form(batch: Any, samples: list[Sample]) -> None:
    expect(
        isinstance(batch, Mapping),
        f"The function returned {type(batch).__name__}. A batch of three things needs names.",
        f"Return a dict with {', '.join(KEYS)}.",
    )
    odd = [
        f"{key} is {type(batch[key]).__name__ if key in batch else 'missing'}"
        for key in KEYS
        if not isinstance(batch.get(key), torch.Tensor)
    ]
    expect(
        not odd,
        f"In the batch {', '.join(odd)}. The GPU wants one tensor, one block of memory, for each; "
        "a list of tensors is not one yet.",
        f"Make one tensor of all events for each of {', '.join(KEYS)}.",
    )
    shape = tuple(batch["pulses"].shape)
    expect(
        not batch["pulses"].is_nested and len(shape) == 3 and shape[::2] == (len(samples), 4),
        f"For {len(samples)} events the pulses have the shape {shape}; wanted is "
        "(events, longest, 4), also for a batch of one event.",
        "Let pad_sequence put the batch first, and remove no axis.",
    )


def _judge_pulses(pulses: torch.Tensor, samples: list[Sample]) -> None:
    events = [sample["pulses"] for sample in samples]
    wanted, in_front = (pad_sequence(events, True, padding_side=side) for side in ("right", "left"))
    longest = wanted.shape[1]
    expect(
        pulses.shape[1] >= longest,
        f"The longest event has {longest} pulses, your batch has room for {pulses.shape[1]}. "
        "Cutting makes events equal too, but it throws pulses away.",
        "Pad the short events up to the longest, instead of cutting.",
    )
    expect(
        pulses.shape[1] == longest,
        f"The longest event of this batch has {longest} pulses, your batch has room for "
        f"{pulses.shape[1]}. What is beyond is padding in every event; and a fixed width, or the "
        "longest event so far, fails for a longer one.",
        "Take the width from the samples of this batch.",
    )
    expect(
        pulses.dtype == torch.float32,
        f"The pulses are {pulses.dtype}: twice or half the bytes, and the model wants float32.",
        "Keep the dtype of the samples; torch.zeros makes float32.",
    )
    expect(
        torch.equal(pulses, wanted) or not torch.equal(pulses, in_front),
        "The zeros are in front of the pulses. Then pulse 0 of an event is at another place in "
        "each batch, and the mask has to follow.",
        "Put the pulses first and the zeros behind.",
    )
    expect(
        torch.equal(pulses, wanted),
        "An event does not come out as it went in: its pulses are changed or in another order, or "
        "what follows is not zero.",
        "Compare batch['pulses'][0] with samples[0]['pulses'].",
    )


def _judge_mask(mask: torch.Tensor, samples: list[Sample]) -> None:
    lengths = torch.tensor([len(sample["pulses"]) for sample in samples])
    wanted = torch.arange(max(lengths)) < lengths[:, None]
    expect(
        mask.shape == wanted.shape,
        f"The mask has the shape {tuple(mask.shape)}; wanted is one entry for each pulse, "
        f"{tuple(wanted.shape)}.",
        "Compare torch.arange(longest) with lengths[:, None].",
    )
    expect(
        mask.dtype == torch.bool,
        f"The mask is {mask.dtype}. With numbers, pulses[mask] picks rows instead of choosing.",
        "A comparison gives bool by itself; otherwise add .bool().",
    )
    expect(
        not torch.equal(mask, ~wanted),
        "The mask is upside down: true where there is padding. That is the convention of PyTorch's "
        "key_padding_mask; here true means a pulse.",
        "Turn it round with ~mask, or with < for >=.",
    )
    expect(
        torch.equal(mask, wanted) or (mask & ~wanted).any(),
        "The mask calls real pulses padding: it ends too early, or it looks at their values, and a "
        "real pulse may be zero.",
        "Take the mask from the lengths of the events.",
    )
    expect(
        torch.equal(mask, wanted),
        "The mask is true behind the end of an event: the model would learn from padding.",
        "Event i has len(samples[i]['pulses']) pulses; true exactly there.",
    )
