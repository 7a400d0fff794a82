"""Judge a loop by its figures. Every rule is one sentence.

The cost of an iteration is divided into computing and four losses: the start-up of the epoch,
waiting for the loader, copying while nothing computes, and the host while the device has nothing to
do. The rules, in this order:

1. Memory, if the batches in flight, or the growth of the workers until the end of the epoch, will
   take more than half of the free memory.
2. GPU-bound, if all losses together are less than a fifth of an iteration (without the time in
   which other programs had the core); memory, if the workers' own memory has doubled in that time,
   or is still growing.
   Some workers would load a quarter faster than the step if they had the cores to themselves. They
   lose no more than the main process needs to receive their batches, unless they are uneven: for
   the rest of the time, the loop waits for other programs.
3. Otherwise the largest loss is the family: start-up, transfer, main process, or the loader. What
   the sampler computes in next() is a loss of the main process.

If it is the loader, the cause is

4. uneven, if at most half of the fetches lose more than half of the time that fetching and sending
   take, and not because of 6, which comes in fits;
5. CPU, if it computes longer than it waits (where workers outnumber their cores, longer by that
   factor), and they are kept on fewer cores than they could use;
6. CPU, if with thread pools of one thread it is twice as fast, and costs half as much;
7. collate or IPC, if moving a batch costs more processor time than fetching it takes;
8. collate or IPC, if more than half of the fetch is collating;
9. storage, if the fetch waits longer than it computes, compared as in 5;
10. otherwise CPU, in the longest stage if the dataset names it.

Processor times and waiting times are those of the threads themselves, so that other programs on the
machine do not change the verdict.
"""

from __future__ import annotations

from typing import Literal

from keepfed.measure.advice.estimates import Measurements
from keepfed.measure.advice.thresholds import (
    ACCEPTABLE_LOSS,
    COPIED_PER_S,
    FEW_FETCHES,
    MIN_GROWTH,
    MOST_OF_LOADING,
    OVERSUBSCRIBED,
    SLACK,
    STILL_GROWING,
    TOO_MUCH_MEMORY,
)

Cause = Literal[
    "GPU-bound",
    "storage",
    "CPU",
    "collate or IPC",
    "transfer",
    "main process",
    "start-up",
    "memory",
    "uneven",
]


def judge(m: Measurements) -> Cause:
    """Return what the loop suffers from."""
    if max(m.in_flight_bytes, m.grown_to_the_end_bytes) > TOO_MUCH_MEMORY * m.setting.free_bytes:
        return "memory"
    lost = losses(m)
    computed = m.paces.step_s - m.paces.step_delay_s - m.step.transfer_s - m.step.host_s
    if sum(lost.values()) < ACCEPTABLE_LOSS * (computed + sum(lost.values())):
        return "memory" if memory_grows(m) else "GPU-bound"
    family = max(lost, key=lambda name: lost[name])
    if family == "loader":
        return _loader_cause(m)
    return family


Family = Literal["start-up", "loader", "transfer", "main process"]


def losses(m: Measurements) -> dict[Family, float]:
    """Return the seconds of a turn in which the device computes nothing, by family."""
    # the difference alone is noisy; a wait alone may be hidden by a device that is behind
    waited_s = max(
        0.0, min(m.paces.together_s - (m.paces.step_s - m.paces.step_delay_s), m.paces.wait_s)
    )
    sampled_s = min(m.paces.sampling_s, waited_s)
    loading_s = waited_s - sampled_s
    return {
        "start-up": m.start_up_share_s,
        "loader": min(loading_s, m.moving.receiving_s) if loader_has_slack(m) else loading_s,
        "transfer": m.step.transfer_s,
        "main process": m.step.host_s + sampled_s,
    }


def loader_has_slack(m: Measurements) -> bool:
    """Tell whether the workers have so much time to spare that only others can delay them."""
    step_s = m.paces.step_s - m.paces.step_delay_s
    return bool(m.setting.workers) and m.pace_s < SLACK * step_s and not is_uneven(m)


def waits_for_cores(m: Measurements) -> bool:
    """Tell whether a loop that is to be left alone waits all the same, for want of cores."""
    return m.headroom > 1 / (1 - ACCEPTABLE_LOSS)


def is_uneven(m: Measurements) -> bool:
    """Tell whether few fetches lose most of what fetching and sending take."""
    if oversubscribed(m):
        return False
    lost_s = m.fetching.slow_time * m.making_s
    return m.fetching.slow_share <= FEW_FETCHES and lost_s > MOST_OF_LOADING * (
        m.making_s + m.moving.sending_s
    )


def memory_grows(m: Measurements) -> bool:
    """Tell whether the workers' own memory grew much, or a bit and had not stopped to."""
    grows_on = m.memory.grown_late_bytes > STILL_GROWING * m.memory.grown_bytes
    return m.memory.grown_bytes > MIN_GROWTH and (
        m.memory.grown_bytes > m.memory.own_bytes or grows_on
    )


def shares_too_few_cores(m: Measurements) -> bool:
    """Tell whether workers that compute are kept on fewer cores than there are for them."""
    return m.occupied_s > m.waiting_s and m.setting.worker_cores < min(
        m.setting.workers, m.setting.cores
    )


def oversubscribed(m: Measurements) -> bool:
    """Tell whether the threads of numerical libraries hinder each other."""
    return m.fetching.one_thread_gain >= OVERSUBSCRIBED


def has_idle_workers(m: Measurements) -> bool:
    """Tell whether some workers never sent a batch, as those of a stream with too few shards."""
    return 0 < m.setting.working < m.setting.workers


def _loader_cause(m: Measurements) -> Cause:
    if is_uneven(m):
        return "uneven"
    if shares_too_few_cores(m) or oversubscribed(m):
        return "CPU"
    if m.moving.sending_s > m.making_s or m.fetching.collate_s > m.fetching.fetch_s / 2:
        return "collate or IPC"
    if m.waiting_s > m.occupied_s:
        return "storage"
    return "CPU"


def moves_bytes(m: Measurements) -> bool:
    """Tell whether collating is little more than copying: a loop in Python is slower."""
    return m.moving.batch_bytes > COPIED_PER_S * m.collating_s


def slowest_stage(m: Measurements) -> str:
    """Return the longest computing stage of a fetch, "" if that has no name."""
    own = {stage: s for stage, s in m.fetching.stages.items() if stage in ("decode", "transform")}
    # of which the dataset says nothing
    own[""] = m.fetching.fetch_s - m.fetching.collate_s - sum(m.fetching.stages.values())
    return max(own, key=lambda stage: own[stage])
