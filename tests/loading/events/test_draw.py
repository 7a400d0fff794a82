import io
from pathlib import Path

import numpy as np
import pytest

from course_utils.loading.events import MemmapEvents, Sample, draw_event, read_sensors


@pytest.fixture
def event(events_folder: Path) -> Sample:
    return MemmapEvents(events_folder)[599]


def test_every_pulse_is_drawn_once_in_space_and_once_in_time(
    event: Sample, events_folder: Path
) -> None:
    space, depth, _ = draw_event(event, read_sensors(events_folder)).axes

    for panel in (space, depth):
        drawn = [len(collection.get_offsets()) for collection in panel.collections]
        assert sum(drawn[-2:]) == event["n_pulses"]


def test_it_can_be_saved_and_says_what_it_shows(event: Sample, events_folder: Path) -> None:
    figure = draw_event(event, read_sensors(events_folder))
    figure.savefig(io.BytesIO(), format="png", dpi=50)

    assert f"event {event['event_id']}" in figure.get_suptitle()
    assert "GeV" in figure.get_suptitle()
    assert figure.get_facecolor()[3] == 0  # whatever the page behind it


def test_what_public_data_do_not_tell_is_not_made_up(event: Sample, events_folder: Path) -> None:
    event |= {"energy": float("nan"), "kind": 255}
    title = draw_event(event, read_sensors(events_folder)).get_suptitle()

    assert "unknown kind" in title
    assert "GeV" not in title


def test_an_event_with_a_single_pulse_is_drawn(event: Sample, events_folder: Path) -> None:
    pulses = event["pulses"][:1].clone()
    pulses[0, 3] = 0
    figure = draw_event({**event, "pulses": pulses}, read_sensors(events_folder))

    assert np.isfinite(figure.axes[1].get_xlim()).all()
