"""Exercise 13.1: rescue a training run."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, combinations
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np

from course_utils.exercises.judging.chance import rank_correlation, stay_together
from course_utils.exercises.judging.probes import one_thread
from course_utils.exercises.nb13 import fixed
from course_utils.exercises.nb13.learning_run import PLAN, LearningRun
from course_utils.exercises.nb13.loading_run import LoadingRun
from course_utils.loading.events import MemmapEvents
from course_utils.stories.capstone import (
    TARGET_AU,
    Result,
    add_result,
    decoy_of,
    handed_out,
    load,
    now,
    seed_of,
)
from course_utils.stories.capstone.result import ENOUGH_AU, POINTS_EACH, points_for
from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo, too_busy, wrong
from course_utils.teaching.notebook import data_path
from keepfed.formatting import percent, plural

START_UP_S = 3.0  # until the first epoch
HELD = 0.6  # largest share of the events of an epoch that is held in memory
LONGEST_S = 12.0  # maximum duration of a run
BUSY_AU = 0.3  # a machine on which even the repaired script reaches less is too busy
ALMOST = 0.75  # share of the AU of the repaired script from which another run may help
ALIKE = 0.5  # largest share of neighbors, or of pairs in a batch, that is the same in two epochs
SPREAD = 0.3  # smallest scatter of a batch on disk, relative to that of all events
SORTED = 0.6  # largest rank correlation of an epoch with the disk, on average over the epochs

Objection = tuple[str, str]  # problem, next step


@exercise("13.1", title="Rescue a training run", seconds=10 * LONGEST_S)
def rescue(script: Any) -> Verdict:
    """Judge the script by what it learns, and by the time and the memory of its loading."""
    is_file = isinstance(script, str | Path) and Path(script).is_file()
    if is_file and Path(script).read_text("utf-8") == handed_out(seed_of(script)):
        return todo(f"{script} is still as your colleague wrote it. Fix something, then check it.")
    train = getattr(load(script), "train", None) if is_file else None
    expect(
        callable(train),
        f"There is no script {script!s:.60} with a function `train`.",
        "Pass the path of your script, script = hand_out(), and keep `def train(job)` in it.",
    )
    result, (problem, next_step) = grade(seed_of(script), train)
    add_result(result)
    if result.rescued:
        decoy = decoy_of(result.seed)
        kept = decoy.is_in(Path(script).read_text("utf-8"))
        more = "" if kept else f" You also removed {decoy.name}. {decoy.why}"
        return right(f"{result} The model learns from each event once in each epoch.{more}")
    au = "" if problem.startswith("AU") else f"AU {percent(result.au)}, "
    return wrong(f"{problem} ({au}{plural(result.points, 'point')})", next_step)


def grade(seed: int, train: Any) -> tuple[Result, Objection]:
    """Run a training, and return its result and what to fix first."""
    learning = LearningRun(data_path("events", "S"))
    with one_thread():
        learning.run(train)
    job, au = measure(train)
    spoilt = next(chain(other_events(job), another_training(learning), not_mixed(job)), None)
    broken = [*over_the_limits(job)]
    fed = points_for(au)
    problems = [*([spoilt] if spoilt else []), *broken]
    served = [[*chain(*epoch)] for epoch in job.epochs]
    result = Result(
        seed=seed,
        points=0 if spoilt else fed + POINTS_EACH * (2 - len(broken)),
        refused=problems[0][0] if problems else "",
        au=round(au, 4),
        start_up_s=round(job.start_up_s, 2),
        held=job.held,
        events=len(job.training),
        samples=sum(map(len, served)),
        distinct=sum(len({*epoch}) for epoch in served),
        lost=sum(len(job.training) - len({*epoch}) for epoch in served),
        when=now(),
    )
    if not spoilt and (points_for(TARGET_AU) - fed > POINTS_EACH or not problems):
        return result, starving(job, au)  # the AU costs most
    return result, problems[0]


def measure(train: Any) -> tuple[LoadingRun, float]:
    """Run the loading of a script, and return the run and its AU.

    If the AU is too low, the repaired script shows what this machine allows now. The AU then counts
    in proportion to that, and if it is almost enough, the best of three runs counts.
    """
    job = loading_run(train)
    au = job.au
    if au >= ENOUGH_AU:
        return job, au
    possible = loading_run(fixed.train).au
    if possible < BUSY_AU:
        too_busy()
    scale = max(1.0, TARGET_AU / possible)
    for _ in range(2):
        if ALMOST * TARGET_AU < au * scale < ENOUGH_AU:
            au = max(au, loading_run(train).au)
    return job, min(1.0, au * scale)


def loading_run(train: Any) -> LoadingRun:
    """Return a finished run of the loading."""
    job = LoadingRun(data_path("events", "S"), seconds=LONGEST_S)
    job.run(train)
    return job


def over_the_limits(job: LoadingRun) -> Iterator[Objection]:
    """Limit the time until the first epoch, and the events in memory."""
    if job.start_up_s > START_UP_S:
        yield (
            f"The script takes {job.start_up_s:.1f} s until job.follow. The limit is "
            f"{START_UP_S:.0f} s.",
            "Check what runs before the loop, and how often it sends a request to the storage.",
        )
    if job.held > (most := round(HELD * len(job.training))):
        yield (
            f"Up to {job.held:,} events are in memory at a time, but the limit is {most:,}. This "
            "counts events that wait for their step, and events that are kept after it.",
            "Read events by job.events(...) in every epoch. Look for code that reads far ahead, "
            "and for code that keeps batches or events.",
        )


def another_training(job: LearningRun) -> Iterator[Objection]:
    """Compare what each epoch did with what an epoch must do."""
    for epoch, task in enumerate(PLAN):
        for name, got, wanted in _ledger(job, epoch, task):
            if got != wanted:
                yield (
                    f"In epoch {epoch} of the plan {PLAN}, the {name} is {got!r}, but must be "
                    f"{wanted!r}. This is a different training.",
                    "Take one step with each batch of job.follow, evaluate on job.held_out, and "
                    "pass the task and all losses to job.note.",
                )
    if job.difference:
        yield (
            f"The model learns something else than before: {job.difference}.",
            "Make the transform faster, but keep what it returns. Leave the model, the optimizer, "
            "`learn` and `evaluate` as they were. The GPU has time for them.",
        )
    for epoch, other in combinations(range(len(PLAN)), 2):
        if job.steps[epoch] == job.steps[other]:
            yield from [_same_order(epoch, other)]


def _ledger(job: LearningRun, epoch: int, task: str) -> Iterator[tuple[str, object, object]]:
    """Yield what is counted in an epoch: its name, the count, and the count that is wanted."""
    noted = job.noted[epoch] if epoch < len(job.noted) else ("", [], [])
    yield "number of epochs in job.note", len(job.noted), len(PLAN)
    yield "number of events in its steps", len(job.steps[epoch]), len(job.ids)
    seen = len({*job.looks[epoch]} & job.held_out_ids)
    yield "number of events in the evaluation", seen, len(job.held_out)
    yield "task in job.note", noted[0], task
    for name, got, losses in (
        ("steps", noted[1], job.losses_of_steps[epoch]),
        ("evaluation", noted[2], job.losses_of_looks[epoch]),
    ):
        right_ones = sum(isclose(*pair, rel_tol=1e-3) for pair in zip(got, losses, strict=False))
        count = right_ones if len(got) == len(losses) else len(got)
        yield f"number of losses of its {name} in job.note", count, len(losses)


def other_events(job: LoadingRun) -> Iterator[Objection]:
    """Count the events and the batches of each epoch."""
    ids = MemmapEvents(job.folder).labels.event_id
    wanted = {*ids[job.training].tolist()}
    whole = job.epochs[:-1] if job.late else job.epochs
    sizes = [len(batch) for epoch in job.epochs for batch in epoch] or [0]
    if int(np.median(sizes)) != fixed.BATCH or max(sizes) > fixed.BATCH:
        yield (
            f"Most batches of job.follow have {np.median(sizes):.0f} events, but must have "
            f"{fixed.BATCH}. This is a different training.",
            "Keep BATCH, and pass your loader to job.follow in every epoch.",
        )
    counts = [Counter(chain(*epoch)) for epoch in job.epochs]
    lost = max((len(wanted - {*chain(*epoch)}) for epoch in whole), default=0)
    twice = max(sum(count > 1 for count in epoch.values()) for epoch in counts or [Counter()])
    strange = len(set(chain(*counts)) - wanted)
    if lost or twice or strange:
        yield (
            f"In an epoch, {lost} of {len(wanted)} events are never served, {twice} come several "
            f"times, and {strange} others are not events to learn from.",
            "Each worker has a copy of the dataset and must take its own share, with stream.split. "
            "Look for code that draws with replacement or drops a batch.",
        )


def not_mixed(job: LoadingRun) -> Iterator[Objection]:
    """Compare the order of each epoch with the disk and with the epochs before."""
    ids = MemmapEvents(job.folder).labels.event_id.tolist()
    on_disk = {event: index for index, event in enumerate(ids)}
    epochs = [[[on_disk[event] for event in batch] for batch in epoch] for epoch in job.epochs]
    orders = [[*chain(*epoch)] for epoch in epochs]
    why = ""
    if np.mean([abs(rank_correlation(order, sorted(order))) for order in orders]) > SORTED:
        why = "an epoch goes through the file from one end to the other"
    elif np.mean([np.std(batch) for batch in chain(*epochs)]) < SPREAD * np.std(job.training):
        why = "most events of a batch are neighbors on disk, and the file is sorted by energy"
    if why:
        yield _mix(why)
    if len(job.epochs) == len(job.plan) and not job.late:
        alike = max(stay_together(*orders), share_a_batch(*epochs))
        if alike > ALIKE:
            yield _same_order(0, 1)


def _same_order(epoch: int, other: int) -> Objection:
    return _mix(f"epochs {epoch} and {other} have the same order or the same batches")


def _mix(why: str) -> Objection:
    return (
        f"The events are not mixed: {why}.",
        "Shuffle the chunks, and the events of several chunks together, with a seed that depends "
        "on the epoch.",
    )


def share_a_batch(one: list[list[int]], other: list[list[int]]) -> float:
    """Return the share of the pairs in a batch of one epoch that share one in the other too."""
    number = {event: n for n, batch in enumerate(other) for event in batch}
    pairs = [number[a] == number[b] for batch in one for a, b in combinations(batch, 2)]
    return float(np.mean(pairs))


def starving(job: LoadingRun, au: float) -> Objection:
    """Return how much the GPU still waits, and whether for the workers or for the loop."""
    summary = job.trace.summary()
    host, wait = summary.stall.get("host", 0.0), summary.stall.get("wait", 0.0)
    waits = "The GPU waits for the workers." if wait > host else "The main process blocks the GPU."
    waits = waits if job.has_workers else "The main process loads the batches itself."
    return (
        f"AU {percent(au)} over {plural(summary.steps, 'step')}; the target is "
        f"{percent(TARGET_AU)}. {waits}",
        "Run a timed_job, and look at its timeline: what happens in a worker, and what in the main "
        "process between two steps?",
    )
