"""The catalog of advice: when each row applies, what it gains, and its wording.

The rows of a cause are listed in order of preference. A row with `changes` needs no change of
the user's code, so `diagnose` can try it. Tests and benchmarks refer to a row by its id.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from keepfed.formatting import plural, size
from keepfed.measure.advice.change import Change, with_arguments
from keepfed.measure.advice.estimates import Measurements
from keepfed.measure.advice.gains import even_gain, gain, gain_of_less_work, pipeline
from keepfed.measure.advice.rules import (
    Cause,
    has_idle_workers,
    moves_bytes,
    oversubscribed,
    shares_too_few_cores,
    slowest_stage,
)
from keepfed.measure.advice.thresholds import (
    FILLING_SHARE,
    LISTED_SAMPLE_S,
    LOCKED_SHARE,
    MANY_OBJECTS,
    MAX_WORKERS,
    MOVING_SHARE,
    OBJECTS_COST,
    READ_AMPLIFICATION,
    READS_PER_SAMPLE,
    SAMPLING_SHARE,
    SMALL_SAMPLE_S,
    WRITING_MS_PER_MB,
)
from keepfed.measure.advice.where import FILTERS, LISTS, at, decompresses, find, lines_of
from keepfed.measure.stacks import is_own

WHOLE = (
    "read each batch in one call: "
    "DataLoader(dataset, sampler=loader.batch_sampler, batch_size=None)"
)
PERSISTENT = with_arguments(persistent_workers=True)
ANY_LOADER: tuple[Cause, ...] = ("storage", "CPU", "collate or IPC", "uneven")


@dataclass(frozen=True)
class Advice:
    """One row of the catalog."""

    id: str
    causes: tuple[Cause, ...]
    words: str | Callable[[Measurements], str] = ""  # "": use the words of the first change
    gain: Callable[[Measurements], float] = lambda m: 1.0  # speed-up predicted by the model
    applies: Callable[[Measurements], bool] = lambda m: True
    changes: Callable[[Measurements, Cause], Sequence[Change]] = lambda m, cause: ()
    removes: bool = True  # whether the change removes the cause completely
    at_most: bool = True  # whether the gain is an upper bound

    def text(self, m: Measurements, cause: Cause) -> str:
        """Return the wording of this advice for the loop `m`."""
        if callable(self.words):
            return self.words(m)
        return self.words or self.changes(m, cause)[0].words


def applicable(m: Measurements, cause: Cause) -> Iterator[Advice]:
    """Yield the rows that apply to a loop, in order of preference."""
    return (row for row in CATALOGUE if cause in row.causes and row.applies(m))


# --- Conditions -----------------------------------------------------------------------------------


def _is_data_loader(m: Measurements) -> bool:
    return m.setting.kind != "no DataLoader"


def _has_free_cores(m: Measurements) -> bool:
    return not shares_too_few_cores(m) and not oversubscribed(m)


def is_serialized(m: Measurements) -> bool:
    """Return whether a lock lets only one worker load at a time."""
    return m.setting.workers > 1 and (m.fetching.locked_share or 0.0) > LOCKED_SHARE


def _reads_samples_one_by_one(m: Measurements) -> bool:
    """Return whether most of a fetch is Python code that runs once per sample."""
    setting = m.setting
    by_number = setting.batch_size and setting.kind not in ("stream", "no DataLoader")
    small = m.making_s < SMALL_SAMPLE_S * setting.batch_size
    return bool(by_number and small and not setting.has_getitems)


def _listing_takes_long(m: Measurements) -> bool:
    listed_s = LISTED_SAMPLE_S * m.setting.batch_size
    return m.setting.kind == "batches of samples" and listed_s > m.making_s / 2


def _reads_much_more(m: Measurements) -> bool:
    """Return whether a fetch reads many times the bytes of its batch."""
    asked, batch = m.fetching.asked_bytes or 0.0, m.moving.batch_bytes
    return asked > READ_AMPLIFICATION * max(batch, 1) and asked > 1e6


def _opens_each_sample(m: Measurements) -> bool:
    """Return whether each sample needs so many reads that it must open a file."""
    samples = m.setting.batch_size
    return bool(samples) and (m.fetching.read_calls or 0.0) > READS_PER_SAMPLE * samples


def _collating_is_most(m: Measurements) -> bool:
    fetching = m.fetching
    return fetching.collate_s > max(fetching.fetch_s / 2, m.moving.sending_s)


def _moving_costs_much(m: Measurements) -> bool:
    """Return whether workers spend much of their time on moving batches.

    They copy each batch into shared memory and send it. Loading in the main process needs neither.
    """
    moving_s = m.collating_s + m.moving.sending_s
    return m.setting.workers > 0 and moving_s > MOVING_SHARE * m.making_s


def _many_objects(m: Measurements) -> bool:
    moving = m.moving
    costly = (moving.pickle_s or 0.0) > OBJECTS_COST * moving.sending_s
    return costly or (moving.objects or 0) > MANY_OBJECTS * max(1, m.setting.batch_size)


def _refills_each_epoch(m: Measurements) -> bool:
    """Return whether the first fetch of an epoch takes most of the start-up."""
    # In other datasets, the first fetch opens files. A process does this only once.
    stream = m.setting.kind == "stream"
    return stream and m.paces.filling_s > FILLING_SHARE * m.paces.start_up_s > 0


# --- Changes --------------------------------------------------------------------------------------


def more_workers(m: Measurements, cause: Cause) -> list[Change]:
    """Return the change to enough workers for the step, preceded by half as many.

    Workers that compute are limited to the number of cores, and workers that wait to `MAX_WORKERS`.
    """
    setting, most = m.setting, MAX_WORKERS
    if m.fetching.computing_s > m.waiting_s:
        most = setting.cores
    wanted = math.ceil(m.making_s / m.paces.step_s) + 1 if m.paces.step_s else most
    enough: int = 2 * setting.workers if cause == "uneven" else 2 ** math.ceil(math.log2(wanted))
    enough = min(max(enough, min(2, most)), most)
    counts = [n for n in (enough // 2, enough) if n > max(setting.workers, 1)]
    return [with_arguments(num_workers=n) for n in counts]


def _one_thread(m: Measurements) -> Change:
    if m.setting.workers:
        where = "worker_init_fn=keepfed.loaders.workers.worker_init"
    else:
        where = "OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1"
    return Change(f"limit thread pools to one thread: {where}", "one thread")


def _all_cores(m: Measurements) -> Change:
    affinity = "remove the CPU affinity (taskset, sched_setaffinity) that limits them"
    return Change(f"let the workers use all {m.setting.cores} cores: {affinity}", "all cores")


def _thread_ahead(m: Measurements) -> Change:
    words = "prefetch in a thread: for batch in ThreadPrefetcher(loader), from "
    return Change(f"{words}keepfed.loaders.prefetch", "thread ahead")


# --- Gains ----------------------------------------------------------------------------------------


def _less_work(**times: Any) -> Callable[[Measurements], float]:
    return lambda m: gain_of_less_work(m, **times)


def _gain_of_less_computing(m: Measurements, left_s: float = 0.0) -> float:
    """Return the gain if a fetch only computes for `left_s` and writes its batch."""
    left_ms = 1e3 * left_s + WRITING_MS_PER_MB * m.moving.batch_bytes / 1e6
    return gain_of_less_work(m, transform_ms=min(left_ms, pipeline(m).transform_ms))


def _gain_without_reading(m: Measurements) -> float:
    computes = m.waiting_s < m.occupied_s
    return _gain_of_less_computing(m) if computes else gain_of_less_work(m, read_ms=0.0)


def _gain_of_smaller_batches(m: Measurements, left: float) -> float:
    """Return the gain if a batch keeps only the share `left` of its bytes or objects."""
    fetching, moving = m.fetching, m.moving
    collating_s = min(fetching.collate_s, fetching.computing_s) * (left if moves_bytes(m) else 1.0)
    sent_s = left * max(0.0, moving.sending_s - moving.receiving_s)
    return gain_of_less_work(
        m,
        collate_ms=1e3 * (collating_s + sent_s),
        host_ms=1e3 * (m.host_s + left * moving.receiving_s),
    )


def _gain_without_start_up(m: Measurements) -> float:
    return m.iteration_s / m.paces.together_s if m.paces.together_s else 1.0


def _gain_without_sampling(m: Measurements) -> float:
    left_s = max(m.paces.step_s, m.paces.together_s - m.paces.sampling_s)
    return m.iteration_s / left_s if left_s else 1.0


def _gain_of_busy_workers(m: Measurements) -> float:
    """Return the gain if the idle workers load as fast as the busy ones."""
    working = max(1, m.setting.active_workers or m.setting.workers)
    ideal_s = max(m.paces.step_s, m.paces.together_s * working / m.setting.workers)
    return min(m.headroom, m.iteration_s / ideal_s) if ideal_s else 1.0


def _precompute_words(m: Measurements) -> str:
    stage, lines = slowest_stage(m), [one for one in lines_of(m, "CPU") if is_own(one.file)]
    what = f"the stage {stage!r}" if stage else "the samples"
    if lines and not stage:
        what = f"the samples, mostly {' and '.join(f'`{line.call}`' for line in lines[:2])},"
    return f"precompute {what} before training, do this work on the GPU, or use more cores"


def _narrow_words(m: Measurements) -> str:
    return (
        f"send a smaller batch: its values fit into {m.moving.narrower}, and the GPU can convert "
        "them back"
    )


CATALOGUE: tuple[Advice, ...] = (
    Advice(
        "leave-it", ("GPU-bound",), "leave the loader alone and work on the step", at_most=False
    ),
    # The loader, in the order of the rules
    Advice(
        "thread-ahead",
        ANY_LOADER,
        applies=lambda m: not _is_data_loader(m),
        changes=lambda m, cause: [_thread_ahead(m)],
        removes=False,
    ),
    Advice(
        "all-cores",
        ("CPU",),
        gain=lambda m: gain(m, cores=min(m.setting.workers, m.setting.cores)),
        applies=lambda m: _is_data_loader(m) and shares_too_few_cores(m),
        changes=lambda m, cause: [_all_cores(m)],
        at_most=False,
    ),
    Advice(
        "one-thread",
        ("CPU",),
        gain=lambda m: gain(m, fetch_speedup=m.fetching.one_thread_gain or 1.0),
        applies=lambda m: _is_data_loader(m) and oversubscribed(m),
        changes=lambda m, cause: [_one_thread(m)],
        at_most=False,
    ),
    Advice(
        "whole-batches",
        ("storage", "CPU", "collate or IPC"),
        applies=lambda m: m.setting.kind == "batches of samples" and _has_free_cores(m),
        changes=lambda m, cause: [Change(WHOLE, "whole batches")],
        removes=False,
    ),
    Advice(
        "no-workers",
        ("collate or IPC", "CPU"),
        applies=_moving_costs_much,
        changes=lambda m, cause: [with_arguments(num_workers=0)],
        removes=False,
    ),
    Advice(
        "out-of-order",
        ("uneven",),
        applies=lambda m: m.setting.has_in_order and m.setting.workers > 1,
        changes=lambda m, cause: [with_arguments(in_order=False)],
        removes=False,
    ),
    Advice(
        "more-workers",
        ANY_LOADER,
        applies=lambda m: (
            _is_data_loader(m)
            and _has_free_cores(m)
            and not (m.setting.workers and m.moving.sending_s > m.making_s)
            and not is_serialized(m)
            and not has_idle_workers(m)
        ),
        changes=more_workers,
        removes=False,
    ),
    Advice(
        "more-shards",
        ANY_LOADER,
        lambda m: (
            f"split the data into at least {plural(m.setting.workers, 'shard')}, so that each "
            "worker gets one"
        ),
        _gain_of_busy_workers,
        has_idle_workers,
    ),
    Advice(
        "one-at-a-time",
        ("storage",),
        "let each worker open its own file or connection instead of sharing one behind a lock",
        lambda m: min(m.headroom, m.setting.workers),
        is_serialized,
    ),
    Advice(
        "list-once",
        ("storage", "CPU"),
        lambda m: (
            "list the folder once, in __init__, instead of for each sample" + at(find(m, LISTS))
        ),
        _gain_without_reading,
        lambda m: find(m, LISTS) is not None,
    ),
    Advice(
        "filter-once",
        ("storage", "CPU"),
        lambda m: (
            "build an index of the table once, in __init__ (a dict from key to rows), instead of "
            "searching the whole table for each sample" + at(find(m, FILTERS))
        ),
        _gain_of_less_computing,
        lambda m: find(m, FILTERS) is not None,
    ),
    Advice(
        "decompress-less",
        ("storage", "CPU"),
        lambda m: (
            "read only the arrays that you use, or store them uncompressed, because most of a "
            "fetch is decompressing" + at(decompresses(m))
        ),
        _gain_of_less_computing,
        lambda m: decompresses(m) is not None,
    ),
    Advice(
        "open-once",
        ("storage", "CPU"),
        lambda m: (
            "open each file once per worker instead of once per sample, and read only the part you "
            "use (if each sample has its own file, pack many samples into one): a batch now takes "
            f"{plural(round(m.fetching.read_calls or 0), 'read')}"
        ),
        _gain_without_reading,
        _opens_each_sample,
    ),
    Advice(
        "read-less",
        ("storage", "CPU"),
        lambda m: (
            "read only what a sample needs (memory map, smaller chunks, only the arrays you use): "
            f"a batch of {size(m.moving.batch_bytes)} now reads {size(m.fetching.asked_bytes or 0)}"
        ),
        _gain_without_reading,
        _reads_much_more,
    ),
    Advice(
        "local-copy",
        ("storage",),
        "copy the data to a local disk, or pack many samples into one file",
        _less_work(read_ms=0.0),
    ),
    Advice(
        "whole-batches-by-hand",
        ("CPU",),
        f"{WHOLE}, with a __getitem__ that takes the indices of a batch",
        _gain_of_less_computing,
        lambda m: _reads_samples_one_by_one(m) and _listing_takes_long(m),
    ),
    Advice(
        "one-access",
        ("CPU",),
        "give the dataset a __getitems__(indices) that reads all samples of a batch at once",
        lambda m: _gain_of_less_computing(m, LISTED_SAMPLE_S * m.setting.batch_size),
        _reads_samples_one_by_one,
    ),
    Advice("precompute", ("CPU",), _precompute_words, _gain_of_less_computing),
    Advice(
        "collate-arrays",
        ("collate or IPC",),
        "collate each field with one operation (torch.stack, padding, or torch.cat with offsets "
        "for graphs) instead of a Python loop",
        _less_work(collate_ms=0.0),
        lambda m: _collating_is_most(m) and not moves_bytes(m),
    ),
    Advice(
        "one-array-per-field",
        ("collate or IPC",),
        "return one tensor per field instead of lists and dicts of Python objects, which are "
        "pickled one by one",
        lambda m: _gain_of_smaller_batches(m, 0.0),
        _many_objects,
    ),
    Advice(
        "narrow-dtype",
        ("collate or IPC",),
        _narrow_words,
        lambda m: _gain_of_smaller_batches(m, m.moving.narrower_share),
        lambda m: m.moving.narrower != "",
    ),
    Advice(
        "send-less",
        ("collate or IPC",),
        "let the dataset return only what the step uses (select, crop), or return float16 if the "
        "step computes in half precision",
        lambda m: _gain_of_smaller_batches(m, 0.5),
    ),
    Advice(
        "even-samples",
        ("uneven",),
        "find out why the slow samples are slow, and make them smaller before training",
        even_gain,
    ),
    # The step, the start-up and the memory
    Advice(
        "copy-ahead",
        ("transfer",),
        "set pin_memory=True, and copy with non_blocking=True one batch ahead of the step",
        lambda m: gain(m, pinned=True, overlap=True),
        at_most=False,
    ),
    Advice(
        "plan-batches",
        ("main process",),
        "let the sampler plan all batches of an epoch at once, because next() waits for it",
        _gain_without_sampling,
        lambda m: m.paces.sampling_s > SAMPLING_SHARE * (m.paces.sampling_s + m.host_s),
    ),
    Advice(
        "rare-loss",
        ("main process",),
        "move the Python work out of the loop, and read the loss (.item()) only every 50 steps",
        lambda m: gain(m, host_ms=0.0, sync=False),
    ),
    Advice(
        "one-loop",
        ("start-up",),
        "loop over the loader once per epoch: next(iter(loader)) creates an iterator and starts "
        "the workers for every batch",
        _gain_without_start_up,
        lambda m: m.paces.epoch == 1,
    ),
    Advice(
        "make-once",
        ("start-up",),
        "create the loader once, before the loop over epochs, with persistent_workers=True",
        _gain_without_start_up,
        lambda m: m.setting.loaders_made > 1 and m.setting.workers > 0,
    ),
    Advice(
        "fill-once",
        ("start-up",),
        "do the work at the start of __iter__ (a shuffle, filling a buffer) once, before training, "
        "because persistent workers repeat it in every epoch",
        _gain_without_start_up,
        _refills_each_epoch,
    ),
    Advice(
        "persistent-workers",
        ("start-up",),
        gain=_gain_without_start_up,
        applies=lambda m: m.setting.workers > 0,
        changes=lambda m, cause: [PERSISTENT],
        at_most=False,
    ),
    Advice(
        "start-once",
        ("start-up",),
        "do the work at the start of each epoch once, before training",
        _gain_without_start_up,
        at_most=False,
    ),
    Advice(
        "packed-strings",
        ("memory",),
        "store the dataset's lists in arrays, for example keepfed.loaders.workers.PackedStrings",
        applies=lambda m: m.memory is not None and m.memory.grown_bytes > m.in_flight_bytes,
        at_most=False,
    ),
    Advice(
        "fewer-in-flight",
        ("memory",),
        "set prefetch_factor=1 or use fewer workers, so that fewer batches are in flight",
        at_most=False,
    ),
)
