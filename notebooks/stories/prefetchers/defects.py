"""Ten defects of the prefetcher in the notes, each proved on an emulated device.

    for prove in DEFECTS:
        print(prove())

Each proof makes one measurement twice: with the design of the notes, and with `CudaPrefetcher`.
"""

from __future__ import annotations

from collections.abc import Callable

from notebooks.stories.prefetchers.device_defects import (
    not_there_yet,
    nothing_is_hidden,
    the_obvious_repair_is_a_race,
    two_tensors_only,
)
from notebooks.stories.prefetchers.thread_defects import (
    always_gpu_0,
    an_error_vanishes,
    break_leaves_all_behind,
    it_starts_too_early,
    one_epoch_only,
    the_queue_is_device_memory,
)
from notebooks.stories.prefetchers.trials import Defect

DEFECTS: tuple[Callable[[], Defect], ...] = (
    nothing_is_hidden,
    not_there_yet,
    the_obvious_repair_is_a_race,
    an_error_vanishes,
    one_epoch_only,
    break_leaves_all_behind,
    always_gpu_0,
    the_queue_is_device_memory,
    two_tensors_only,
    it_starts_too_early,
)


def prove_all() -> list[Defect]:
    """Prove the ten, in the order of their numbers; what hangs takes a third of a second."""
    return [prove() for prove in DEFECTS]
