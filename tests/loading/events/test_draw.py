import io
import subprocess
import sys
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
    figure = draw_event(event, read_sensors(events_folder))
    figure.savefig(io.BytesIO(), format="png", dpi=50)

    space, depth, _ = figure.axes
    for panel in (space, depth):
        drawn = [len(collection.get_offsets()) for collection in panel.collections]
        assert sum(drawn[-2:]) == event["n_pulses"]
    assert f"event {event['event_id']}" in figure.get_suptitle()
    assert "GeV" in figure.get_suptitle()
    assert figure.get_facecolor()[3] == 0  # whatever the page behind it


def test_what_public_data_do_not_tell_is_not_made_up_and_a_single_pulse_is_drawn(
    event: Sample, events_folder: Path
) -> None:
    pulses = event["pulses"][:1].clone()
    pulses[0, 3] = 0
    event |= {"energy": float("nan"), "kind": 255, "pulses": pulses}
    figure = draw_event(event, read_sensors(events_folder))

    assert "unknown kind" in figure.get_suptitle()
    assert "GeV" not in figure.get_suptitle()
    assert np.isfinite(figure.axes[1].get_xlim()).all()


@pytest.mark.slow
def test_a_worker_that_imports_the_events_imports_no_library_it_does_not_use() -> None:
    code = "import sys, course_utils.loading.events; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert "torch" in loaded
    assert {"matplotlib", "h5py", "pyarrow", "uproot", "webdataset"}.isdisjoint(loaded)
