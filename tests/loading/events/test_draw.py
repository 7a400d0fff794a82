import io
from pathlib import Path

import numpy as np

from course_utils.loading.events import MemmapEvents, draw_event, read_sensors


def test_every_pulse_is_drawn_once_in_space_and_once_in_time(events_folder: Path) -> None:
    event, sensors = MemmapEvents(events_folder)[599], read_sensors(events_folder)
    figure = draw_event(event, sensors)
    figure.savefig(io.BytesIO(), format="png", dpi=50)

    space, depth, _ = figure.axes
    for panel in (space, depth):
        drawn = [len(collection.get_offsets()) for collection in panel.collections]
        assert sum(drawn[-2:]) == event["n_pulses"]
    arrow, *_, light = space.collections
    assert arrow.zorder > light.zorder  # otherwise the light of a bright event hides it
    assert not space.computed_zorder
    assert f"event {event['event_id']}" in figure.get_suptitle()
    assert "GeV" in figure.get_suptitle()
    assert figure.get_facecolor()[3] == 0  # transparent on any page

    pulses = event["pulses"][:1].clone()
    pulses[0, 3] = 0
    event |= {"energy": float("nan"), "kind": 255, "pulses": pulses}  # as in the public data
    figure = draw_event(event, sensors)
    assert "unknown kind" in figure.get_suptitle()
    assert "GeV" not in figure.get_suptitle()
    assert np.isfinite(figure.axes[1].get_xlim()).all()
