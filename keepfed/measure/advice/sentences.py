"""Say in one sentence what a loop suffers from."""

from __future__ import annotations

from keepfed.measure.advice.catalogue import is_serialised
from keepfed.measure.advice.estimates import Measurements, Setting, ms
from keepfed.measure.advice.rules import (
    Cause,
    has_idle_workers,
    losses,
    moves_bytes,
    oversubscribed,
    shares_too_few_cores,
    slowest_stage,
    waits_for_cores,
)
from keepfed.measure.advice.thresholds import BUSY_CORES
from keepfed.words import duration, factor, percent, plural, size


def sentence(m: Measurements, cause: Cause) -> str:
    """Return what a loop suffers from."""
    if has_idle_workers(m) and cause in ("storage", "CPU", "collate or IPC", "uneven"):
        return _idle_workers(m)
    return {
        "GPU-bound": _bound_by_the_step,
        "storage": _storage,
        "CPU": _cpu,
        "collate or IPC": _moving,
        "transfer": _transfer,
        "main process": _main_process,
        "start-up": _start_up,
        "memory": _memory,
        "uneven": _uneven,
    }[cause](m)


def busy_machine(setting: Setting) -> list[str]:
    """Return a sentence about other programs, if they kept cores busy."""
    if setting.others_cores < BUSY_CORES:
        return []
    return [
        f"Other programs kept {setting.others_cores:.1f} of {plural(setting.cores, 'core')} busy, "
        "so these figures are uncertain: measure again when the machine is idle."
    ]


def _bound_by_the_step(m: Measurements) -> str:
    who = "GPU-bound" if m.step.has_device else "Bound by the step"
    step_s, lost = m.paces.step_s, losses(m)
    if waits_for_cores(m):
        return (
            f"{who}, as far as can be told: the step takes {ms(step_s)} by itself, and "
            f"{ms(m.iteration_s)} together with a loader that is quick enough, since other programs or "
            "its own workers had the cores."
        )
    most = 1 + (lost["loader"] + lost["start-up"]) / step_s if step_s else 1.0
    return (
        f"{who}, leave the loader alone: the step takes {ms(step_s)} by itself, and an infinitely "
        f"fast loader would make training {factor(most)} times as fast."
    )


def _idle_workers(m: Measurements) -> str:
    idle = m.setting.workers - m.setting.working
    return (
        f"Idle workers: {idle} of {plural(m.setting.workers, 'worker')} never sent a batch, so a "
        f"fetch of {ms(m.making_s)} is waited for by all."
    )


def _storage(m: Measurements) -> str:
    waits = f"waits {ms(m.waiting_s)} and computes {ms(m.fetching.computing_s)}"
    if m.setting.kind == "no DataLoader":
        return (
            f"Storage, or threads or processes of the loader's own: of the {ms(m.making_s)} that "
            f"next() takes, the main process waits {ms(m.waiting_s)} for them and computes "
            f"{ms(m.fetching.computing_s)}."
        )
    has_a_core = " with a core to itself" if m.fetching.delay_s > m.fetching.fetch_s / 10 else ""
    if is_serialised(m):
        share = percent(m.fetching.locked_share)
        return (
            f"Storage behind a lock: of the {ms(m.making_s)} that a fetch takes, a worker {waits}, "
            f"and in {share} of the looks at it, it waited for a lock that another one held."
        )
    who = "a worker" if m.setting.workers else "the main process"
    return f"Storage: of the {ms(m.making_s)} that a fetch takes{has_a_core}, {who} {waits}."


def _cpu(m: Measurements) -> str:
    fetching, setting = m.fetching, m.setting
    computes = f"a fetch computes for {ms(fetching.computing_s)} of {ms(fetching.fetch_s)}"
    if shares_too_few_cores(m):
        share = plural(setting.worker_cores, "core")
        return (
            f"CPU: {computes}, and the {setting.workers} workers share {share} of {setting.cores}."
        )
    if oversubscribed(m):
        who = plural(max(setting.workers, 1), "worker" if setting.workers else "process")
        return (
            f"CPU: {computes}, and {who} with {fetching.pool_threads} threads each hinder each "
            f"other: with one thread a batch is loaded {fetching.one_thread_gain:.1f} times as "
            "fast."
        )
    if stage := slowest_stage(m):
        whole_s = max(fetching.fetch_s, sum(fetching.stages.values()))
        part = percent(fetching.stages[stage] / whole_s)
        return f"CPU in the stage {stage}, which is {part} of a fetch: {computes}."
    return f"CPU in the dataset: {computes}."


def _moving(m: Measurements) -> str:
    fetching, moving = m.fetching, m.moving
    if fetching.collate_s > fetching.fetch_s / 2 and fetching.collate_s > moving.sending_s:
        if not moves_bytes(m):
            return (
                f"Collate: of the {ms(fetching.fetch_s)} of a fetch, {ms(fetching.collate_s)} go "
                "into collating."
            )
        return (
            f"IPC: {ms(fetching.collate_s)} of the {ms(fetching.fetch_s)} of a fetch go into "
            f"copying the {size(moving.batch_bytes)} of a batch into shared memory."
        )
    return (
        f"IPC: to move a batch of {size(moving.batch_bytes)} from a worker to the main process "
        f"costs {ms(moving.sending_s)} of processor time, to make it {ms(m.making_s)}."
    )


def _transfer(m: Measurements) -> str:
    return (
        f"Transfer: in a step of {ms(m.paces.step_s)}, {ms(m.step.transfer_s)} are copies to the "
        "device during which it computes nothing."
    )


def _main_process(m: Measurements) -> str:
    sampling_s = m.paces.sampling_s
    if sampling_s > m.step.host_s:
        return (
            f"Main process: the sampler computes for {ms(sampling_s)} a batch in the process that "
            "trains, and next() waits for it."
        )
    return (
        f"Main process: of a step of {ms(m.paces.step_s)}, the device has nothing to do for "
        f"{ms(m.step.host_s)}, while Python runs or waits."
    )


def _start_up(m: Measurements) -> str:
    return (
        f"Start-up: in each epoch of {m.paces.epoch} batches nothing is loaded for "
        f"{duration(m.paces.start_up_s * 1e9)}; apart from that a batch takes "
        f"{ms(m.paces.together_s)}."
    )


def _memory(m: Measurements) -> str:
    memory, setting = m.memory, m.setting
    if memory.grown_bytes > m.in_flight_bytes:
        return (
            f"Memory: what the workers have of their own grew from {size(memory.own_bytes)} by "
            f"{size(memory.grown_bytes)} in {memory.watched} batches."
        )
    return (
        f"Memory: the queue can hold {setting.workers} x {setting.prefetch_factor} + 1 batches of "
        f"{size(m.moving.batch_bytes)}, together {size(m.in_flight_bytes)} of the "
        f"{size(setting.free_bytes)} that are free."
    )


def _uneven(m: Measurements) -> str:
    fetching = m.fetching
    return (
        f"Uneven: {percent(fetching.slow_share)} of the fetches take "
        f"{percent(fetching.slow_time)} of the time (up to {ms(fetching.slowest_s)}, on average "
        f"{ms(fetching.fetch_s)}), and all others wait for them."
    )
