"""The sentence about each cause, with the figures that prove it."""

from __future__ import annotations

import keepfed.measure.advice.rules as rules
from keepfed.formatting import factor, percent, plural, size
from keepfed.measure.advice.catalog import only_waits
from keepfed.measure.advice.estimates import Measurements, Setting, ms
from keepfed.measure.advice.rules import Cause
from keepfed.measure.advice.thresholds import BUSY_CORES, NO_GAIN


def sentence(m: Measurements, cause: Cause) -> str:
    """Return what was measured, as one sentence."""
    if rules.has_idle_workers(m) and cause in ("storage", "CPU", "collate or IPC", "uneven"):
        idle = m.setting.workers - (m.setting.active_workers or 0)
        return (
            f"Idle workers: {idle} of {plural(m.setting.workers, 'worker')} never sent a batch, so "
            f"the others load every batch, at {ms(m.making_s)} per fetch."
        )
    return {
        "GPU-bound": _step_bound,
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
    """Return a warning if other programs kept cores busy, or an empty list."""
    if setting.others_cores < BUSY_CORES:
        return []
    return [
        f"Other programs kept {setting.others_cores:.1f} of {plural(setting.cores, 'core')} busy, "
        "so these figures are uncertain. Measure again when the machine is idle."
    ]


def _step_bound(m: Measurements) -> str:
    who = "GPU-bound" if m.step.has_device else "Bound by the step"
    step_s, lost = m.paces.step_s, rules.losses(m)
    if rules.waits_for_start(m):
        return "The loader keeps up after the first batches, but most of the lost time is theirs."
    if rules.waits_for_cores(m):
        return (
            f"{who}, probably: the step takes {ms(step_s)} alone and {ms(m.iteration_s)} together "
            "with the loader, which is fast enough, but other programs or the workers used the "
            "cores that the step needs."
        )
    most = 1 + (lost["loader"] + lost["start-up"]) / step_s if step_s else 1.0
    faster = "no faster" if most < NO_GAIN else f"only {factor(most)} times as fast"
    return (
        f"{who}, leave the loader alone: the step takes {ms(step_s)}, and an infinitely fast "
        f"loader would make training {faster}."
    )


def _storage(m: Measurements) -> str:
    waits = f"waits {ms(m.waiting_s)} and computes {ms(m.fetching.computing_s)}"
    if m.setting.kind == "no DataLoader":
        return (
            f"Storage, or the loader's own threads or processes: of the {ms(m.making_s)} that "
            f"next() takes, the main process {waits}."
        )
    who = "a worker" if m.setting.workers else "the main process"
    has_a_core = " with a core to itself" if rules.fetches_lack_cores(m) else ""
    times = f"of the {ms(m.making_s)} that a fetch takes{has_a_core}, {who} {waits}"
    if rules.is_serialized(m):
        share = percent(m.fetching.locked_share or 0.0)
        return (
            f"Storage behind a lock: {times}, and in {share} of the checks it waited for a lock "
            "that another worker held."
        )
    return f"{'Waiting' if only_waits(m) else 'Storage'}: {times}."


def _cpu(m: Measurements) -> str:
    fetching, setting = m.fetching, m.setting
    computes = f"a fetch computes for {ms(fetching.computing_s)} of its {ms(fetching.fetch_s)}"
    if rules.shares_too_few_cores(m):
        return (
            f"CPU: {computes}, and the {setting.workers} workers may use only "
            f"{setting.worker_cores} of {plural(setting.cores, 'core')}."
        )
    if rules.competes_for_cores(m):
        who = plural(max(setting.workers, 1), "worker" if setting.workers else "process")
        gain = fetching.one_thread_gain
        faster = f": with one thread each, loading is {gain:.1f} times as fast" if gain else ""
        return (
            f"CPU: {computes}, and {who} x {plural(fetching.pool_threads, 'thread')} compete for "
            f"the cores{faster}."
        )
    if stage := rules.slowest_stage(m):
        whole_s = max(fetching.fetch_s, sum(fetching.stages.values()))
        part = percent(fetching.stages[stage] / whole_s)
        return f"CPU in the stage {stage}, which takes {part} of a fetch: {computes}."
    return f"CPU in the dataset: {computes}."


def _moving(m: Measurements) -> str:
    fetching, moving = m.fetching, m.moving
    if fetching.collate_s <= max(fetching.fetch_s / 2, moving.sending_s):
        return (
            f"IPC: moving a batch of {size(moving.batch_bytes)} from a worker to the main process "
            f"costs {ms(moving.sending_s)} of CPU time, compared with {ms(m.making_s)} for loading "
            "it."
        )
    what, does = "Collate", "the collate function"
    if rules.moves_bytes(m):
        what, does = "IPC", f"copying the batch of {size(moving.batch_bytes)} into shared memory"
    return (
        f"{what}: of the {ms(fetching.fetch_s)} that a fetch takes, {does} needs "
        f"{ms(fetching.collate_s)}."
    )


def _transfer(m: Measurements) -> str:
    return (
        f"Transfer: in a step of {ms(m.paces.step_s)}, the device computes nothing for "
        f"{ms(m.transfer_s)}, while data are copied to it."
    )


def _main_process(m: Measurements) -> str:
    if rules.sampler_takes_most(m):
        return (
            f"Main process: the sampler computes for {ms(m.paces.sampling_s)} per batch in the "
            "training process, and next() waits for it."
        )
    return (
        f"Main process: in a step of {ms(m.paces.step_s)}, the device has nothing to do for "
        f"{ms(m.host_s)}, while Python runs or waits."
    )


def _start_up(m: Measurements) -> str:
    return (
        f"Start-up: starting and ending the loader costs {ms(m.paces.start_up_s or 0.0)} in each "
        f"epoch of {plural(m.paces.epoch or 0, 'batch')}, on top of {ms(m.paces.together_s)} per "
        "batch."
    )


def _memory(m: Measurements) -> str:
    memory, setting = m.memory, m.setting
    if memory is not None and memory.grown_bytes > m.in_flight_bytes:
        return (
            f"Memory: the workers' private memory grew by {size(memory.grown_bytes)}, from "
            f"{size(memory.own_bytes)}, in {memory.watched} batches."
        )
    return (
        f"Memory: up to {setting.workers} x {setting.prefetch_factor} + 1 batches of "
        f"{size(m.moving.batch_bytes)} are in flight, which take {size(m.in_flight_bytes)} of the "
        f"{size(setting.free_bytes or 0)} of free memory."
    )


def _uneven(m: Measurements) -> str:
    fetching = m.fetching
    return (
        f"Uneven: {percent(fetching.slow_share)} of the fetches take "
        f"{percent(fetching.slow_time)} of the time (up to {ms(fetching.slowest_s)}, with an "
        f"average of {ms(fetching.fetch_s)}), and the other batches wait behind them."
    )
