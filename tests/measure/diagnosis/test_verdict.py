from __future__ import annotations

from typing import Any

import pytest

from course_utils.measure.diagnosis import Cause
from course_utils.measure.diagnosis.verdict import judge, losses, slowest_stage
from tests.measure.handmade import hungry


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, "CPU"),
        ({"computing_s": 0.02}, "storage"),
        ({"computing_s": 0.04, "delay_s": 0.06}, "CPU"),
        ({"computing_s": 0.02, "delay_s": 0.05}, "storage"),
        ({"computing_s": 0.02, "workers": 8, "cores": 1}, "CPU"),  # eight of them on one core
        ({"computing_s": 0.02, "delay_s": 0.08}, "GPU-bound"),  # other programs take the cores
        ({"worker_cores": 1, "computing_s": 0.05, "delay_s": 0.045}, "CPU"),
        ({"worker_cores": 1, "computing_s": 0.01}, "storage"),  # one core is enough to wait on
        ({"one_thread_gain": 3.0, "computing_s": 0.04}, "CPU"),
        ({"sending_s": 0.2}, "collate or IPC"),
        ({"collate_s": 0.06}, "collate or IPC"),
        ({"slow_share": 0.1, "slow_time": 0.7}, "uneven"),
        ({"slow_share": 0.4, "slow_time": 0.7}, "CPU"),  # so many are no exception
        ({"wait_s": 0.001}, "GPU-bound"),
        ({"together_s": 0.022}, "GPU-bound"),
        ({"start_up_s": 100.0}, "start-up"),
        ({"start_up_s": 100.0, "epoch": None}, "CPU"),  # an epoch without an end starts once
        ({"step_s": 0.2, "together_s": 0.2, "transfer_s": 0.1, "compute_s": 0.1}, "transfer"),
        ({"step_s": 0.2, "together_s": 0.2, "host_s": 0.1, "compute_s": 0.1}, "main process"),
        (  # a busy machine makes the step longer, and the loss no smaller
            {
                "step_s": 0.2,
                "step_delay_s": 0.13,
                "together_s": 0.2,
                "host_s": 0.03,
                "compute_s": 0.04,
            },
            "main process",
        ),
        ({"batch_bytes": 10**9, "free_bytes": 8e9}, "memory"),
        ({"together_s": 0.022, "grown_bytes": 2e8, "own_bytes": 2e7}, "memory"),
        ({"together_s": 0.022, "grown_bytes": 2e8, "own_bytes": 2e9}, "GPU-bound"),
        ({"grown_bytes": 2e8, "own_bytes": 2e7}, "CPU"),  # there is a worse loss, and room
        ({"grown_bytes": 1e8, "grown_late_bytes": 5e7, "watched": 10, "free_bytes": 8e9}, "memory"),
    ],
)
def test_the_cause_follows_from_the_figures(changes: dict[str, Any], cause: Cause) -> None:
    assert judge(hungry(**changes)) == cause


IDLE: dict[str, Any] = {"computing_s": 0.02, "delay_s": 0.08}  # but for other programs


@pytest.mark.parametrize(
    ("changes", "loses"),
    [
        ({"together_s": 0.02, "wait_s": 0.015}, False),  # a wait that the device did not notice
        ({"together_s": 0.05, "wait_s": 0.0}, False),  # a slower loop that never waited
        (IDLE, False),  # workers with time to spare
        ({**IDLE, "slow_share": 0.01, "slow_time": 0.7}, True),
        ({**IDLE, "workers": 0}, True),
        ({**IDLE, "worker_cores": 1}, True),
    ],
)
def test_the_loop_loses_what_it_waits_for_the_loader(changes: dict[str, Any], loses: bool) -> None:
    assert (losses(hungry(**changes))["loader"] > 0) is loses


def test_headspace_counts_the_start_of_the_epoch() -> None:
    assert hungry(start_up_s=9.0, epoch=1000).headspace == pytest.approx(3.0)
    assert hungry(together_s=0.019).headspace == 1.0


def test_a_fetch_that_neither_computes_nor_lacks_a_core_waits() -> None:
    waiting = hungry(fetch_s=0.1, computing_s=0.03, delay_s=0.02).waiting_s
    assert waiting == pytest.approx(0.05)
    assert hungry(fetch_s=0.1, computing_s=0.2).waiting_s == 0


def test_the_slowest_stage_is_one_that_computes() -> None:
    stages = {"read": 9.0, "decode": 2.0, "transform": 1.0}
    assert slowest_stage(hungry(stages=stages)) == "decode"
    assert slowest_stage(hungry()) == ""
