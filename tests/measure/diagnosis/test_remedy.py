from __future__ import annotations

from typing import Any, get_args

import pytest

from course_utils.measure.diagnosis import Cause
from course_utils.measure.diagnosis.remedy import gain, pipeline, remedy, turn_ms
from tests.measure.handmade import HUNGRY, hungry


@pytest.mark.parametrize(
    ("changes", "cause", "change"),
    [
        ({"computing_s": 0.01}, "storage", "num_workers=8"),
        ({"computing_s": 0.01, "workers": 16}, "storage", "local disk"),
        ({"workers": 0, "step_s": 0.05}, "CPU", "num_workers=4"),
        ({"workers": 4}, "CPU", "do what the dataset computes once"),
        ({"workers": 4, "stages": {"decode": 0.1}}, "CPU", "'decode'"),
        ({"worker_cores": 1}, "CPU", "all 4 cores"),
        ({"one_thread_gain": 3.0}, "CPU", "worker_init_fn=course_utils.loading.workers"),
        ({"one_thread_gain": 3.0, "workers": 0}, "CPU", "OMP_NUM_THREADS=1"),
        ({"workers": 0, "collate_s": 0.09}, "collate or IPC", "num_workers="),
        ({"workers": 4, "collate_s": 0.09}, "collate or IPC", "torch.stack"),
        ({"sending_s": 0.2, "pickle_s": 0.1}, "collate or IPC", "return tensors"),
        ({"sending_s": 0.2, "batch_bytes": 10**8}, "collate or IPC", "uint8"),
        ({"collate_s": 0.09, "batch_bytes": 10**8}, "collate or IPC", "uint8"),
        ({"transfer_s": 0.02}, "transfer", "pin_memory=True"),
        ({"host_s": 0.02}, "main process", "every 50 steps"),
        ({"start_up_s": 10.0, "epoch": 20}, "start-up", "persistent_workers=True"),
        ({"start_up_s": 10.0, "epoch": 20, "workers": 0}, "start-up", "do once"),
        ({"grown_bytes": 2e8}, "memory", "PackedStrings"),
        ({"batch_bytes": 10**9}, "memory", "prefetch_factor=1"),
        ({"slow_time": 0.7}, "uneven", "in_order=False"),
        ({}, "GPU-bound", "leave the loader alone"),
    ],
)
def test_each_cause_has_one_concrete_change(
    changes: dict[str, Any], cause: Cause, change: str
) -> None:
    assert change in remedy(hungry(**changes), cause).change


@pytest.mark.parametrize("cause", get_args(Cause))
def test_no_change_is_predicted_to_make_training_slower(cause: Cause) -> None:
    assert remedy(HUNGRY, cause).gain >= 1


def test_the_prediction_is_that_of_the_formula() -> None:
    waits = hungry(workers=1, fetch_s=0.08, computing_s=0.0, collate_s=0.0, sending_s=0.0)
    assert turn_ms(pipeline(waits)) == pytest.approx(80, rel=0.01)
    assert gain(waits, num_workers=2) == pytest.approx(2, rel=0.02)
    assert gain(waits, num_workers=8) == pytest.approx(4, rel=0.02)  # then the step is the limit


def test_more_workers_than_cores_do_not_compute_more() -> None:
    computes = hungry(fetch_s=0.1, computing_s=0.1, collate_s=0.0, cores=2, worker_cores=2)
    assert gain(computes, num_workers=8) == pytest.approx(1, rel=0.1)
