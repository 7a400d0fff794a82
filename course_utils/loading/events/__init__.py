"""Events of the telescope: sample, labels, batch, picture and file formats."""

from course_utils.loading.events.contract import Batch, Events, Sample, pad_collate
from course_utils.loading.events.draw import colors, draw_event
from course_utils.loading.events.formats import CONVERTED, FORMATS, open_events
from course_utils.loading.events.labels import (
    CASCADE,
    EVENT,
    TRACK,
    read_labels,
    read_sensors,
    unit_vectors,
    write_sensors,
)
from course_utils.loading.events.npy import Block, EventArrays, MemmapEvents, Parts, write_events
from course_utils.loading.events.npz import NpzEvents
