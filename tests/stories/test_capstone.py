from math import exp

import numpy as np
import torch

from course_utils.stories.capstone import PulseTransformer
from course_utils.stories.capstone.learning import recorded

SENSORS = np.random.default_rng(0).uniform(-500, 500, (40, 3)).astype(np.float32)
Batch = dict[str, torch.Tensor]


def batch(events: int = 3, pulses: int = 10) -> Batch:
    """Return events with at least 4 pulses, padded with values that must not matter."""
    rng = torch.Generator().manual_seed(1)
    features = torch.randn(events, pulses, 4, generator=rng)
    features[..., 2] = 0  # neighbors were hit too
    return {
        "features": features,
        "sensor": torch.randint(len(SENSORS), (events, pulses), generator=rng),
        "mask": torch.arange(pulses) < torch.arange(4, 4 + events)[:, None],
        "direction": torch.eye(3)[:events],
    }


def model() -> PulseTransformer:
    torch.manual_seed(3)
    return PulseTransformer(SENSORS, width=16, layers=1, heads=2).eval()


def test_direction_is_unit_vector_and_ignores_padding() -> None:
    given, reader = batch(), model()
    found = reader.direction(given)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(3))
    given["features"][~given["mask"]] = 1e3
    given["sensor"][~given["mask"]] = 0
    torch.testing.assert_close(reader.direction(given), found)


def test_guess_does_not_depend_on_hidden_sensors() -> None:
    given, reader = batch(), model()
    hide = given["mask"]
    guess = reader._encode(given, hide)[hide]
    given["sensor"] = (given["sensor"] + 1) % len(SENSORS)
    torch.testing.assert_close(reader._encode(given, hide)[hide], guess)
    assert not torch.allclose(reader._encode(given, None)[hide], guess)


def test_recorded_training_beats_guesses_without_a_model() -> None:
    full = recorded()
    masked, direction = (full.ends(task)[1][-1] for task in ("masked", "direction"))
    assert exp(masked) < exp(full.without["masked"]) / 20
    assert direction < 0.8 * full.without["direction"]
