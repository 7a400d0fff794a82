"""What this machine is: facts, limits, pressure, its disk, and how it starts workers."""

from course_utils.hardware.machine.disk import can_forget, drop_cache
from course_utils.hardware.machine.facts import (
    SHM,
    all_cores,
    known,
    memory,
    memory_free,
    pressure,
    probe,
    shm_size,
    usable_cores,
)
from course_utils.hardware.machine.starting import start_method, use_start_method

__all__ = [
    "SHM",
    "all_cores",
    "can_forget",
    "drop_cache",
    "known",
    "memory",
    "memory_free",
    "pressure",
    "probe",
    "shm_size",
    "start_method",
    "usable_cores",
    "use_start_method",
]
