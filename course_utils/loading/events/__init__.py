"""Events of the telescope: what a sample is, its labels, its batch, its picture, its formats."""

from course_utils.loading.events.collate import (
    Batch,
    pad_collate,
)
from course_utils.loading.events.contract import (
    Events,
    Sample,
)
from course_utils.loading.events.datasets import (
    MemmapEvents,
    NpzEvents,
)
from course_utils.loading.events.draw import (
    COLOURS,
    draw_event,
)
from course_utils.loading.events.formats import (
    READERS,
    open_events,
)
from course_utils.loading.events.labels import (
    CASCADE,
    TRACK,
    exists,
    open_file,
    read_labels,
    read_sensors,
    unit_vectors,
)
from course_utils.loading.events.sqlite_file import (
    connect,
)

__all__ = [
    "CASCADE",
    "COLOURS",
    "READERS",
    "TRACK",
    "Batch",
    "Events",
    "MemmapEvents",
    "NpzEvents",
    "Sample",
    "connect",
    "draw_event",
    "exists",
    "open_events",
    "open_file",
    "pad_collate",
    "read_labels",
    "read_sensors",
    "unit_vectors",
]
