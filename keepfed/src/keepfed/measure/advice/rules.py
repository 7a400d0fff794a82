"""The rules that find the cause of a slow loop from its measurements.

An iteration consists of computing and four losses: the start-up of the epoch, waiting for the
loader, copying while nothing computes, and the host program while the device is idle. The rules
are applied in this order:

1. Memory, if the batches in flight, or the growth of the workers until the end of the epoch, will
   take more than half of the free memory.
2. GPU-bound, if all losses together are less than a fifth of an iteration. The time in which other
   programs used the core does not count. The cause is memory instead if the workers' private
   memory has doubled during the measurement or is still growing.
   Some workers would load a quarter faster than the step if no other program used their cores. If
   they are not uneven, their only loss is the time in which the main process receives their
   batches. Other programs cause the rest of the wait.
3. Otherwise, the largest loss decides: start-up, transfer, main process, or the loader. The time
   that the sampler computes in next() is a loss of the main process. The only start of a run of
   one epoch does not decide, because no change of the loader saves it.

If the largest loss is the loader, the cause is:

4. Uneven, if at most half of the fetches lose more than half of the time of fetching and sending.
   Rule 6 comes first here, because competing threads also make some fetches slow.
5. CPU, if a fetch computes longer than it waits and the workers are restricted to fewer cores than
   they could use. If there are more workers than cores, the computing time is scaled by the ratio.
6. CPU, if thread pools with one thread make the loader twice as fast and halve its CPU time.
7. Collate or IPC, if moving a batch costs more CPU time than fetching it takes.
8. Collate or IPC, if collating is more than half of the fetch.
9. Storage, if a fetch waits longer than it computes, scaled as in rule 5.
10. CPU in all other cases, with the longest stage if the dataset names its stages.

CPU times and waiting times are those of the threads themselves, so other programs on the machine
do not change the verdict.
"""

from __future__ import annotations

from typing import Literal

from keepfed.measure.advice.estimates import Measurements
from keepfed.measure.advice.thresholds import (
    ACCEPTABLE_LOSS,
    BUSY_CORES,
    COMPETING,
    COPIED_PER_S,
    FEW_FETCHES,
    LOCKED_SHARE,
    MIN_GROWTH,
    MOST_OF_LOADING,
    OVERSUBSCRIBED,
    POOL_SHARE,
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
    """Return the cause of the largest loss."""
    free_bytes = m.setting.free_bytes
    if free_bytes is not None and _used_bytes(m) > TOO_MUCH_MEMORY * free_bytes:
        return "memory"
    lost = losses(m)
    if m.paces.epochs == 1 and max(lost.values()) == lost["start-up"]:
        lost["start-up"] = 0.0  # no change of the loader saves the only start
    computed = m.quiet_step_s - m.transfer_s - m.host_s
    if sum(lost.values()) < ACCEPTABLE_LOSS * (computed + sum(lost.values())):
        return "memory" if memory_grows(m) else "GPU-bound"
    family = max(lost, key=lambda name: lost[name])
    if family == "loader":
        return _loader_cause(m)
    return family


def _used_bytes(m: Measurements) -> float:
    """Return the bytes in flight, or the growth of the workers until the end of the epoch."""
    grown_bytes, memory = 0.0, m.memory
    if memory is not None and memory.watched:
        left = max(0, (m.paces.epoch or 0) - memory.watched)
        grown_bytes = memory.grown_bytes + memory.grown_late_bytes * left / (memory.watched / 2)
    return max(m.in_flight_bytes, grown_bytes)


Family = Literal["start-up", "loader", "transfer", "main process"]


def losses(m: Measurements) -> dict[Family, float]:
    """Return the seconds per iteration in which the device is idle, for each kind of loss."""
    # The difference of two runs is noisy, and a device that lags can hide a wait. Take the smaller.
    waited_s = max(0.0, min(m.paces.together_s - m.quiet_step_s, m.paces.wait_s))
    sampled_s = min(m.paces.sampling_s, waited_s)
    loading_s = waited_s - sampled_s
    return {
        "start-up": m.start_up_share_s,
        "loader": min(loading_s, m.moving.receiving_s) if loader_has_slack(m) else loading_s,
        "transfer": m.transfer_s,
        "main process": m.host_s + sampled_s,
    }


def loader_has_slack(m: Measurements) -> bool:
    """Return whether the workers are so fast that only other programs can delay them."""
    moving, setting, computing_s = m.moving, m.setting, m.fetching.computing_s
    if not setting.workers or is_uneven(m):
        return False
    sending_s = max(0.0, moving.sending_s - moving.receiving_s)
    at_once = min(setting.workers, setting.worker_cores, setting.cores)
    computes_s = (computing_s + sending_s) / max(1, at_once)
    fetches_s = (computing_s + m.waiting_s) / setting.workers
    return max(computes_s, fetches_s, moving.receiving_s) < SLACK * m.quiet_step_s


def fetches_lack_cores(m: Measurements) -> bool:
    """Return whether fetches are ready to run but have no core for a notable time."""
    return m.fetching.delay_s > m.fetching.fetch_s / 10


def waits_for_cores(m: Measurements) -> bool:
    """Return whether a loop that needs no fix still waits, because there are too few cores."""
    too_few = m.setting.others_cores >= BUSY_CORES or fetches_lack_cores(m)
    return too_few and m.headroom > 1 / (1 - ACCEPTABLE_LOSS)


def waits_for_start(m: Measurements) -> bool:
    """Return whether most of the lost time of the run is the first start of the workers."""
    paces, lost_share = m.paces, m.paces.lost_share or 0.0
    return lost_share > ACCEPTABLE_LOSS and 2 * paces.wait_s < lost_share * paces.together_s


def is_uneven(m: Measurements) -> bool:
    """Return whether few fetches lose most of the time of fetching and sending."""
    if oversubscribed(m):
        return False
    lost_s = m.fetching.slow_time * m.making_s
    return m.fetching.slow_share <= FEW_FETCHES and lost_s > MOST_OF_LOADING * (
        m.making_s + m.moving.sending_s
    )


def memory_grows(m: Measurements) -> bool:
    """Return whether the workers' private memory has doubled or is still growing."""
    memory = m.memory
    if memory is None or memory.grown_bytes <= MIN_GROWTH:
        return False
    still_grows = memory.grown_late_bytes > STILL_GROWING * memory.grown_bytes
    return memory.grown_bytes > memory.own_bytes or still_grows


def shares_too_few_cores(m: Measurements) -> bool:
    """Return whether computing workers are restricted to fewer cores than they could use."""
    return m.occupied_s > m.waiting_s and m.setting.worker_cores < min(
        m.setting.workers, m.setting.cores
    )


def oversubscribed(m: Measurements) -> bool:
    """Return whether the threads of numerical libraries slow each other down."""
    return (m.fetching.one_thread_gain or 1.0) >= OVERSUBSCRIBED


def competes_for_cores(m: Measurements) -> bool:
    """Return whether thread pools compute with more threads than there are cores."""
    fetching, tried = m.fetching, m.fetching.one_thread_gain
    several = max(1, m.setting.workers) * fetching.pool_threads > m.setting.cores
    used = (fetching.pool_s or 0.0) > POOL_SHARE * fetching.fetch_s
    return oversubscribed(m) or (several and used and (tried is None or tried > COMPETING))


def is_serialized(m: Measurements) -> bool:
    """Return whether a lock lets only one worker load at a time."""
    return m.setting.workers > 1 and (m.fetching.locked_share or 0.0) > LOCKED_SHARE


def sampler_takes_most(m: Measurements) -> bool:
    """Return whether the sampler takes most of the time that the main process loses."""
    return m.paces.sampling_s > m.host_s


def has_idle_workers(m: Measurements) -> bool:
    """Return whether some workers never sent a batch, as in a stream with too few shards."""
    return 0 < (m.setting.active_workers or 0) < m.setting.workers


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
    """Return whether collating is mostly copying, which is faster than a Python loop."""
    return m.moving.batch_bytes > COPIED_PER_S * m.collating_s


def slowest_stage(m: Measurements) -> str:
    """Return the longest computing stage of a fetch, or "" if it has no name."""
    own = {stage: s for stage, s in m.fetching.stages.items() if stage in ("decode", "transform")}
    # the time that the dataset assigns to no stage
    own[""] = m.fetching.fetch_s - m.fetching.collate_s - sum(m.fetching.stages.values())
    return max(own, key=lambda stage: own[stage])
