from pathlib import Path

import pytest
import torch

from course_utils.loading.events import MemmapEvents, read_sensors
from course_utils.stories.capstone import PulseTransformer
from course_utils.stories.capstone.jagged import RaggedTransformer, as_tokens, pad, padding_costs
from keepfed.loaders.ragged import RaggedCollate


def test_losses_and_gradients_do_not_depend_on_the_padding(events_folder: Path) -> None:
    samples = [as_tokens(one) for one in MemmapEvents(events_folder).__getitems__([5, 300, 599])]
    torch.manual_seed(1)
    padded = PulseTransformer(read_sensors(events_folder))
    ragged = RaggedTransformer(read_sensors(events_folder))
    ragged.load_state_dict(padded.state_dict())
    batches = pad(samples), RaggedCollate("features", "sensor")(samples)
    for model, batch in zip((padded, ragged), batches, strict=True):
        model.direction_loss(batch).backward()  # type: ignore[no-untyped-call]
    assert torch.allclose(padded.direction(batches[0]), ragged.direction(batches[1]), atol=1e-5)
    for one, other in zip(padded.parameters(), ragged.parameters(), strict=True):
        assert one.grad is None or torch.allclose(one.grad, other.grad, atol=1e-5)


@pytest.mark.slow
def test_costs_name_the_padding_of_each_kind(events_folder: Path) -> None:
    costs = padding_costs(events_folder)
    assert list(costs.seconds) == ["padded", "length buckets", "without padding"]
    assert costs.padding["length buckets"] < costs.padding["padded"] / 2
    assert costs.difference < 1e-5
