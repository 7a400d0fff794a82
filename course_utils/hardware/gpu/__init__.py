"""One interface to a GPU, real or emulated. Emulated ones are labeled."""

from course_utils.hardware.clock import HostClock, VirtualClock
from course_utils.hardware.gpu.accelerator import (
    Accelerator,
    get_accelerator,
    rank_accelerator,
    timed_accelerator,
)
from course_utils.hardware.gpu.emulated import PRESETS, EmulatedAccelerator
from course_utils.hardware.gpu.loss import checksum
from course_utils.hardware.gpu.memory import mark_pinned
from course_utils.hardware.gpu.torch_cuda import emulated_cuda
