"""The table of advice: when each row applies, its words, its change, and its gain.

The rows of a cause are listed in order of preference. A row with `changes` needs no change of
the user's code, so `diagnose` can try it. Tests and benchmarks refer to a row by its id.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keepfed.measure.advice.rules as rules
from keepfed.formatting import plural, size
from keepfed.measure.advice.change import Change, with_arguments
from keepfed.measure.advice.estimates import Measurements
from keepfed.measure.advice.gains import even_gain, gain, gain_of_less_work, pipeline
from keepfed.measure.advice.rules import Cause
from keepfed.measure.advice.thresholds import (
    FILLING_SHARE,
    LISTED_SAMPLE_S,
    MANY_OBJECTS,
    MAX_WORKERS,
    MOVING_MS,
    MOVING_SHARE,
    READ_AMPLIFICATION,
    READ_BYTES,
    READS_PER_SAMPLE,
    RECEIVING_MS_PER_MB,
    SENDING_MS_PER_MB,
    SMALL_SAMPLE_S,
    WRITING_MS_PER_MB,
)
from keepfed.measure.advice.where import hot_line

WHOLE = (
    "read each batch in one call: "
    "DataLoader(dataset, sampler=loader.batch_sampler, batch_size=None)"
)
LOADER: tuple[Cause, ...] = ("storage", "CPU", "collate or IPC", "uneven")
FETCH: tuple[Cause, ...] = ("storage", "CPU")
# Functions that list, open, wait or decode, and packages of tables, archives and images
LISTS = ("listdir", "scandir", "iterdir", "glob", "rglob", "walk", "fnmatch")
OPENS = ("open", "File", "ZipFile", "memmap", "open_dataset", "open_group")
WAITS, TABLES, ARCHIVES = ("sleep",), ("pandas", "polars"), ("zipfile", "gzip", "lzma")
DECODERS = ("PIL", "imageio", "imread", "imdecode", "decode_image", "decode_jpeg", "read_image")

Gain = Callable[[Measurements], float | None]
Condition = Callable[[Measurements], bool]


@dataclass(frozen=True)
class Advice:
    """One row of the table. A gain of None means that the change is not for speed."""

    id: str
    causes: tuple[Cause, ...]
    applies: Condition
    words: str | Callable[[Measurements], str]  # "": those of the first change
    gain: Gain | None = None  # speed-up predicted by the model; None: only a trial can tell
    entry: str = ""  # entry of the field guide
    changes: Callable[[Measurements, Cause], Sequence[Change]] | None = None

    def tries(self, m: Measurements, cause: Cause) -> Sequence[Change]:
        """Return the changes to try, or none if only the user can change the code."""
        return self.changes(m, cause) if self.changes else ()


def applicable(m: Measurements, cause: Cause) -> Iterator[Advice]:
    """Yield the rows that apply to a loop, in order of preference."""
    return (row for row in CATALOG if cause in row.causes and row.applies(m))


# --- Conditions -----------------------------------------------------------------------------------


def only_waits(m: Measurements) -> bool:
    """Return whether a fetch sleeps, and reads less from files than its batch contains."""
    asked_bytes = m.fetching.asked_bytes or 0.0
    return hot_line(m, WAITS) is not None and asked_bytes < max(READ_BYTES, m.moving.batch_bytes)


def _always(m: Measurements) -> bool:
    return True


def _per_sample(m: Measurements, called: Sequence[str]) -> bool:
    """Return whether samples, not the shards of a stream, take their time in one of `called`."""
    return m.setting.kind != "stream" and hot_line(m, called) is not None


def _is_data_loader(m: Measurements) -> bool:
    return m.setting.kind != "no DataLoader"


def _has_free_cores(m: Measurements) -> bool:
    return not rules.shares_too_few_cores(m) and not rules.competes_for_cores(m)


def _workers_can_help(m: Measurements) -> bool:
    moves = m.setting.workers and m.moving.sending_s > m.making_s
    blocked = rules.is_serialized(m) or rules.has_idle_workers(m)
    return _is_data_loader(m) and _has_free_cores(m) and not moves and not blocked


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
    asked_bytes = m.fetching.asked_bytes or 0.0
    return asked_bytes > max(1e6, READ_AMPLIFICATION * m.moving.batch_bytes)


def _opens_each_sample(m: Measurements) -> bool:
    """Return whether opening a file for each sample costs the time.

    Many readers take a dozen reads for a file, so the number of reads alone is no proof.
    """
    waits = m.waiting_s > m.occupied_s and not _reads_much_more(m)
    many = (m.fetching.read_calls or 0.0) > READS_PER_SAMPLE * max(1, m.setting.batch_size)
    return (waits and many) or _per_sample(m, OPENS)


def _collating_is_most(m: Measurements) -> bool:
    fetching = m.fetching
    return fetching.collate_s > max(fetching.fetch_s / 2, m.moving.sending_s)


def _moving_costs_much(m: Measurements) -> bool:
    """Return whether workers spend much of their time on copying and sending batches."""
    moving_s = m.collating_s + m.moving.sending_s
    return m.setting.workers > 0 and moving_s > MOVING_SHARE * m.making_s


def _many_objects(m: Measurements) -> bool:
    return (m.moving.objects or 0) > MANY_OBJECTS * max(1, m.setting.batch_size)


def _refills_each_epoch(m: Measurements) -> bool:
    """Return whether the first fetch of an epoch takes most of the start-up."""
    # In other datasets, the first fetch opens files. A process does this only once.
    stream = m.setting.kind == "stream"
    return stream and m.paces.filling_s > FILLING_SHARE * (m.paces.start_up_s or 0.0) > 0


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
    where = "OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1"
    if m.setting.workers:
        where = "worker_init_fn=keepfed.loaders.workers.worker_init"
    return Change(f"limit thread pools to one thread: {where}", "one thread")


def _all_cores(m: Measurements) -> Change:
    affinity = "remove the CPU affinity (taskset, sched_setaffinity) that limits them"
    return Change(f"let the workers use all {m.setting.cores} cores: {affinity}", "all cores")


THREAD_AHEAD = Change(
    "prefetch in a thread: for batch in ThreadPrefetcher(loader), from keepfed.loaders.prefetch",
    "thread ahead",
)


# --- Gains ----------------------------------------------------------------------------------------


def _less_work(**times: Any) -> Gain:
    return lambda m: gain_of_less_work(m, **times)


def _gain_of_one_thread(m: Measurements) -> float | None:
    speedup = m.fetching.one_thread_gain
    return None if speedup is None else gain(m, fetch_speedup=speedup)


def _gain_of_less_computing(m: Measurements, left_s: float = 0.0) -> float:
    """Return the gain if a fetch only computes for `left_s` and writes its batch."""
    left_ms = 1e3 * left_s + WRITING_MS_PER_MB * m.moving.batch_bytes / 1e6
    return gain_of_less_work(m, transform_ms=min(left_ms, pipeline(m).transform_ms))


def _gain_without_reading(m: Measurements) -> float:
    computes = m.waiting_s < m.occupied_s
    return _gain_of_less_computing(m) if computes else gain_of_less_work(m, read_ms=0.0)


def _bytes_cost(m: Measurements) -> bool:
    """Return whether the bytes of a batch cost more than all else in moving it."""
    return m.moving.batch_bytes / 1e6 * (SENDING_MS_PER_MB + RECEIVING_MS_PER_MB) > MOVING_MS


def _gain_of_fewer_bytes(m: Measurements, left: float) -> float:
    return _gain_of_smaller_batches(m, left) if _bytes_cost(m) else 1.0


def _gain_of_smaller_batches(m: Measurements, left: float) -> float:
    """Return the gain if a batch has only the share `left` of its bytes or objects."""
    fetching, moving = m.fetching, m.moving
    collating_s = min(fetching.collate_s, fetching.computing_s) * (
        left if rules.moves_bytes(m) else 1.0
    )
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


# --- Words ----------------------------------------------------------------------------------------


def _leave_it(m: Measurements) -> str:
    if rules.waits_for_start(m):
        return "look at the start of the first epoch, and leave the rest of the loader alone"
    if rules.waits_for_cores(m):
        return "measure again while no other program computes"
    return "leave the loader alone and work on the step"


def _at(m: Measurements, called: Sequence[str]) -> str:
    """Return the place of the line that calls one of `called`, as the end of a sentence."""
    line = hot_line(m, called)
    return f" ({line.place})" if line else ""


def _precompute(m: Measurements) -> str:
    what = f"the part of the stage {stage!r} that" if (stage := rules.slowest_stage(m)) else "what"
    return (
        f"precompute before training {what} is the same in every epoch, and do the rest on the GPU "
        "or on more cores"
    )


# One paragraph for each row, not one line for each field.
# fmt: off
CATALOG: tuple[Advice, ...] = (
    Advice("leave-it", ("GPU-bound",), _always, _leave_it, entry="slow_step"),

    # The loader, in the order of the rules
    Advice("thread-ahead", LOADER, lambda m: not _is_data_loader(m), "",
        changes=lambda m, cause: [THREAD_AHEAD]),
    Advice("all-cores", ("CPU",),
        lambda m: _is_data_loader(m) and rules.shares_too_few_cores(m), "",
        lambda m: gain(m, cores=min(m.setting.workers, m.setting.cores)),
        changes=lambda m, cause: [_all_cores(m)]),
    Advice("one-thread", ("CPU",),
        lambda m: _is_data_loader(m) and rules.competes_for_cores(m), "",
        _gain_of_one_thread, "threads", lambda m, cause: [_one_thread(m)]),
    Advice("whole-batches", ("storage", "CPU", "collate or IPC"),
        lambda m: m.setting.kind == "batches of samples" and _has_free_cores(m), "",
        entry="small_samples", changes=lambda m, cause: [Change(WHOLE, "whole batches")]),
    Advice("no-workers", ("collate or IPC", "CPU"), _moving_costs_much, "",
        entry="small_samples", changes=lambda m, cause: [with_arguments(num_workers=0)]),
    Advice("out-of-order", ("uneven",),
        lambda m: m.setting.has_in_order and m.setting.workers > 1, "",
        entry="straggler", changes=lambda m, cause: [with_arguments(in_order=False)]),
    Advice("more-workers", LOADER, _workers_can_help, "", changes=more_workers),
    Advice("more-shards", LOADER, rules.has_idle_workers,
        lambda m: f"split the data into at least {plural(m.setting.workers, 'shard')}, so that "
        "each worker gets one", _gain_of_busy_workers, "one_shard"),
    Advice("one-at-a-time", ("storage",), rules.is_serialized,
        "let each worker open its own file or connection instead of sharing one behind a lock",
        lambda m: min(m.headroom, m.setting.workers), "shared_lock"),
    Advice("wait-less", ("storage",), only_waits,
        lambda m: "do not wait in the dataset" + _at(m, WAITS), _less_work(read_ms=0.0)),
    Advice("list-once", FETCH, lambda m: _per_sample(m, LISTS),
        lambda m: "list the folder once, in __init__, instead of for each sample" + _at(m, LISTS),
        _gain_without_reading, "folder_listed"),
    Advice("filter-once", FETCH, lambda m: _per_sample(m, TABLES),
        lambda m: "take what you need out of the table once, in __init__ (arrays, or a dict from "
        "key to rows), instead of a table operation for each sample" + _at(m, TABLES),
        _gain_of_less_computing, "folder_listed"),
    Advice("decompress-less", FETCH, lambda m: hot_line(m, ARCHIVES) is not None,
        lambda m: "read only the arrays that you use, or store them uncompressed"
        + _at(m, ARCHIVES), _gain_of_less_computing, "whole_file_for_a_crop"),
    Advice("open-once", FETCH, _opens_each_sample,
        "open each file once per worker instead of once per sample (if each sample has its own "
        "file, pack many samples into one)", _gain_without_reading, "opened_per_sample"),
    Advice("smaller-images", ("CPU",),
        lambda m: _reads_much_more(m) and hot_line(m, DECODERS) is not None,
        lambda m: "store the images at the size that the model uses, or decode them at a reduced "
        "size (Image.draft)" + _at(m, DECODERS), _gain_of_less_computing, "work_per_epoch"),
    Advice("read-less", FETCH, _reads_much_more,
        lambda m: "read only what a sample needs (memory map, smaller chunks, only the arrays you "
        f"use): a batch of {size(m.moving.batch_bytes)} now reads "
        f"{size(m.fetching.asked_bytes or 0)}", _gain_without_reading, "whole_file_for_a_crop"),
    Advice("local-copy", ("storage",), _always,
        lambda m: f"{'' if _is_data_loader(m) else 'if it is storage, '}copy the data to a local "
        "disk, or pack many samples into one file",
        _less_work(read_ms=0.0), "waiting_gpu"),
    Advice("whole-batches-by-hand", ("CPU",),
        lambda m: _reads_samples_one_by_one(m) and _listing_takes_long(m),
        f"{WHOLE}, with a __getitem__ that takes the indices of a batch",
        _gain_of_less_computing, "small_samples"),
    Advice("one-access", ("CPU",), _reads_samples_one_by_one,
        "give the dataset a __getitems__(indices) that reads all samples of a batch at once",
        lambda m: _gain_of_less_computing(m, LISTED_SAMPLE_S * m.setting.batch_size),
        "small_samples"),
    Advice("precompute", ("CPU",), _always, _precompute, _gain_of_less_computing, "work_per_epoch"),
    Advice("collate-arrays", ("collate or IPC",),
        lambda m: _collating_is_most(m) and not rules.moves_bytes(m),
        "collate each field with one operation (torch.stack, padding, or torch.cat with offsets "
        "for graphs) instead of a Python loop", _less_work(collate_ms=0.0), "slow_collate"),
    Advice("one-array-per-field", ("collate or IPC",), _many_objects,
        "return one tensor per field instead of lists and dicts of Python objects, which are "
        "pickled one by one", lambda m: _gain_of_smaller_batches(m, 0.0), "many_small_objects"),
    Advice("narrow-dtype", ("collate or IPC",),
        lambda m: m.moving.narrower != "" and _bytes_cost(m),
        lambda m: f"send a smaller batch: its values fit into {m.moving.narrower}, and the GPU can "
        "convert them back", lambda m: _gain_of_fewer_bytes(m, m.moving.narrower_share)),
    Advice("send-less", ("collate or IPC",), _always,
        "let the dataset return only what the step uses (select, crop), or return float16 if the "
        "step computes in half precision", lambda m: _gain_of_fewer_bytes(m, 0.5)),
    Advice("even-samples", ("uneven",), _always,
        "find out why the slow samples are slow, and make them smaller before training",
        even_gain, "straggler"),

    # The step, the start-up and the memory
    Advice("copy-ahead", ("transfer",), _always,
        "set pin_memory=True, and copy with non_blocking=True one batch ahead of the step",
        lambda m: gain(m, pinned=True, overlap=True)),
    Advice("plan-batches", ("main process",), rules.sampler_takes_most,
        "let the sampler plan all batches of an epoch at once, because next() waits for it",
        _gain_without_sampling, "slow_sampler"),
    Advice("rare-loss", ("main process",), _always,
        "move the Python work out of the loop, and read the loss (.item()) only every 50 steps",
        lambda m: gain(m, host_ms=0.0, sync=False), "slow_step"),
    Advice("one-loop", ("start-up",), lambda m: m.paces.epoch == 1,
        "loop over the loader once per epoch: next(iter(loader)) creates an iterator and starts "
        "the workers for every batch", _gain_without_start_up, "new_iterator"),
    Advice("make-once", ("start-up",),
        lambda m: (m.setting.loaders_made or 1) > 1 and m.setting.workers > 0,
        "create the loader once, before the loop over epochs, with persistent_workers=True",
        _gain_without_start_up, "slow_start"),
    Advice("fill-once", ("start-up",), _refills_each_epoch,
        "do the work at the start of __iter__ (a shuffle, filling a buffer) once, before training, "
        "because persistent workers repeat it in every epoch",
        _gain_without_start_up, "slow_start"),
    Advice("persistent-workers", ("start-up",), lambda m: m.setting.workers > 0, "",
        _gain_without_start_up, "slow_start",
        lambda m, cause: [with_arguments(persistent_workers=True)]),
    Advice("start-once", ("start-up",), _always,
        "do the work at the start of each epoch once, before training",
        _gain_without_start_up, "slow_start"),
    Advice("packed-strings", ("memory",),
        lambda m: m.memory is not None and m.memory.grown_bytes > m.in_flight_bytes,
        "store the dataset's lists in arrays, for example keepfed.loaders.workers.PackedStrings",
        entry="copied_strings"),
    Advice("fewer-in-flight", ("memory",), _always,
        "set prefetch_factor=1 or use fewer workers, so that fewer batches are in flight",
        entry="in_flight"),
)
# fmt: on
ROWS = {row.id: row for row in CATALOG}
