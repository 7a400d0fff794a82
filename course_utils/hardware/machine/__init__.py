"""Facts about this machine: cores, memory, pressure, disk and the start method of workers."""

from course_utils.hardware.machine.disk import drop_cache
from course_utils.hardware.machine.facts import pressure, probe, stamp
from course_utils.hardware.machine.starting import modules_of_server, start_method, use_start_method
from keepfed.limits import SHM, all_cores, known, memory, memory_free, shm_size, usable_cores
