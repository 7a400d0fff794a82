"""Exercise 13.1: rescue a training run."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, combinations, islice
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np

from course_utils.exercises.judging import stay_together
from course_utils.exercises.judging.compare import difference
from course_utils.exercises.judging.probes import rank_correlation
from course_utils.exercises.nb13.fixed import BATCH, tokenise
from course_utils.exercises.nb13.same_steps import Reference
from course_utils.loading.events import MemmapEvents, read_sensors
from course_utils.stories.capstone import (
    TARGET_AU,
    CountedJob,
    PulseTransformer,
    Result,
    Step,
    add_result,
    decoy_of,
    handed_out,
    load,
    now,
    one_thread,
    seed_of,
)
from course_utils.stories.leaderboard.result import POINTS_AU, POINTS_EACH, points_for
from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo, wrong
from course_utils.teaching.notebook import data_path
from keepfed.formatting import percent, plural

START_UP_S = 3.0  # until the first step, without the start-up of workers
HELD = 0.6  # largest share of the events of an epoch that is held in memory
LONGEST_S = 60.0  # maximum duration of a run, in real time
CUT_OFF = f"The run was stopped after {LONGEST_S:.0f} s."
ALIKE = 0.5  # largest share of neighbours, or of pairs in a batch, that is the same in two epochs
SPREAD = 0.3  # smallest scatter of a batch on disk, relative to that of all events
SORTED = 0.6  # largest rank correlation of an epoch with the disk, on average over the epochs
DELIVERED = 0.3  # smallest share of the bytes of the pulses, because formats may compress
PULSE_BYTES = 16
SAMPLED = 7  # one event in so many is compared token by token

Objection = tuple[str, str]  # problem, next step
Clause = Callable[[CountedJob], Objection | None]


@exercise("13.1", title="Rescue a training run", seconds=3 * LONGEST_S)
def rescue(script: Any) -> Verdict:
    """Judge the script by the samples, the steps, the time and the memory of a run."""
    is_file = isinstance(script, str | Path) and Path(script).is_file()
    if is_file and Path(script).read_text("utf-8") == handed_out(seed_of(script)):
        return todo(f"{script} is still as your colleague wrote it. Fix something, then check it.")
    train = getattr(load(script), "train", None) if is_file else None
    expect(
        callable(train),
        f"There is no script {script!s:.60} with a function `train`.",
        "Pass the path of your script, script = hand_out(), and keep `def train(job)` in it.",
    )
    result, objection = grade(script, train)
    if result.refused == CUT_OFF and result.au >= TARGET_AU:
        return todo(f"The machine is too busy. {CUT_OFF} Close other programs, and check it again.")
    add_result(result)
    if result.rescued:
        decoy = decoy_of(result.seed)
        kept = decoy.is_in(Path(script).read_text("utf-8"))
        more = "" if kept else f" You also removed {decoy.name}. {decoy.why}"
        return right(f"{result} The model learns from each event once in each epoch.{more}")
    au = "" if objection[0].startswith("AU") else f"AU {percent(result.au)}, "
    return wrong(f"{objection[0]} ({au}{plural(result.points, 'point')})", objection[1])


def grade(script: str | Path, train: Any) -> tuple[Result, Objection]:
    """Run a training. Return its result, and what to fix first."""
    job = CountedJob(data_path("events", "S"), seconds=LONGEST_S)
    job.run(train)
    au, start_up = job.trace.summary().au, start_up_of(job)
    with one_thread():
        objections = (clause(job) for clause in SAMPLES)
        spoilt = None if job.late else next(filter(None, objections), None)
    broken = [one for clause in LIMITS if (one := clause(job))]
    found = [*([spoilt] if spoilt else []), *broken]
    fed = points_for(au)
    points = fed + POINTS_EACH * (2 - len(broken))
    result = Result(
        seed=seed_of(script),
        points=0 if spoilt else points,
        refused=found[0][0] if found else CUT_OFF if job.late else "",
        au=round(au, 4),
        start_up_s=round(start_up, 2),
        held=job.held,
        events=len(job.training),
        samples=sum(map(len, job.epochs)),
        distinct=sum(len(set(epoch)) for epoch in job.epochs),
        lost=sum(len({*job.training_ids} - {*epoch}) for epoch in job.epochs),
        when=now(),
    )
    if not spoilt and (POINTS_AU - fed > POINTS_EACH or not found):  # the AU costs most
        return result, starving(job)
    return result, found[0]


def start_up_of(job: CountedJob) -> float:
    """Return the seconds until the first step, without the start-up of workers."""
    return max(0.0, min(job.start_up_s, LONGEST_S) - (job.boot_s or 0))


def late_start(job: CountedJob) -> Objection | None:
    """Limit the time until the first step."""
    if (seconds := start_up_of(job)) <= START_UP_S:
        return None
    return (
        f"The first step comes after {seconds:.1f} s, without the start-up of the workers. "
        f"The limit is {START_UP_S:.0f} s.",
        "Check what runs before the loop, and how often it sends a request to the storage.",
    )


def too_much_held(job: CountedJob) -> Objection | None:
    """Limit the events in memory."""
    if job.held <= (most := round(HELD * len(job.training))):
        return None
    return (
        f"Up to {job.held:,} events are in memory at a time, but the limit is {most:,}. This "
        "counts events that wait for their step, and events that are kept after it.",
        "Look for code that reads far ahead, and for code that keeps batches or events.",
    )


def another_training(job: CountedJob) -> Objection | None:
    """Compare what each epoch did with what an epoch must do."""
    batches = batches_of(job)
    for epoch, task in enumerate(job.plan):
        mine = batches[epoch] if epoch < len(batches) else []
        for name, got, wanted in _ledger(job, epoch, task, [*map(len, mine)]):
            if got != wanted:
                return (
                    f"In epoch {epoch} of the plan {job.plan}, the {name} is {got!r}, but must be "
                    f"{wanted!r}. This is a different training.",
                    "Take one step with each batch of job.follow, evaluate on job.held_out, and "
                    "pass the task and all losses to job.note.",
                )
    return None


def _ledger(
    job: CountedJob, epoch: int, task: str, sizes: list[int]
) -> Iterator[tuple[str, object, object]]:
    """Yield what is counted in an epoch: its name, the count, and the count that is wanted."""
    steps, looks = job.steps[epoch], job.looks[epoch]
    noted = job.noted[epoch] if epoch < len(job.noted) else ("", [], [])
    yield "number of epochs", max(len(job.epochs), len(job.noted)), len(job.plan)
    yield "number of batches from job.follow", len(sizes), max(len(sizes), 1)
    yield "size of most batches", int(np.median(sizes)), BATCH
    yield "size of the largest batch", max(sizes), BATCH
    yield "number of steps", len(steps), len(sizes)
    taken = [step for step in steps if step.seed]
    yield (
        "number of optimiser steps in a sample of the steps",
        sum(len(s.settings) for s in taken),
        len(taken),
    )
    yield "number of events in the evaluation", _distinct(looks), len(job.held_out)
    yield "task in job.note", noted[0], task
    yield "number of losses of its steps in job.note", _noted(noted[1], steps), len(steps)
    yield "number of losses of its evaluation in job.note", _noted(noted[2], looks), len(looks)


def _distinct(steps: list[Step]) -> int:
    return len({event for step in steps for event in step.events})


def _noted(losses: list[float], steps: list[Step]) -> int:
    """Return how many losses are those of the steps, or their number if it is another one."""
    if len(losses) != len(steps):
        return len(losses)
    return sum(
        isinstance(step.value, float) and isclose(loss, step.value, rel_tol=1e-3)
        for loss, step in zip(losses, steps, strict=True)
    )


def wrong_events(job: CountedJob) -> Objection | None:
    """Count the events of the steps of each epoch."""
    wanted = job.training_ids
    learned = [Counter(event for step in steps for event in step.events) for steps in job.steps]
    counts = learned[: len(job.plan)]
    strange = len(set(chain(*counts, *job.epochs)) - wanted)
    lost = max(len(wanted - {*epoch}) for epoch in counts)
    twice = max(sum(count > 1 for count in epoch.values()) for epoch in counts)
    if not (strange or lost or twice):
        return None
    return (
        f"In an epoch, {lost} of {len(wanted)} events never reach a step, {twice} reach several, "
        f"and {strange} of the others are not events to learn from.",
        "Each worker has a copy of the dataset and must take its own share, with stream.split. "
        "Look for code that draws with replacement or drops a batch.",
    )


def past_the_storage(job: CountedJob) -> Objection | None:
    """Compare the events that were read with the events that were served."""
    served = sum(map(len, job.epochs))
    from_cache = (len(job.plan) - 1) * round(HELD * len(job.training))
    pulses = np.diff(MemmapEvents(job.folder).offsets)[job.training]
    delivered = job.delivered_bytes / (DELIVERED * PULSE_BYTES * float(np.mean(pulses)))
    if (read := min(job.read, int(delivered))) >= served - from_cache:
        return None
    return (
        f"The steps learn from {served:,} events, but only {read:,} were read from the storage by "
        f"job.events. A cache may hold at most {percent(HELD)} of the events of an epoch.",
        "Read events by job.events(...) in every epoch: the real data do not fit into memory.",
    )


def not_mixed(job: CountedJob) -> Objection | None:
    """Compare the order of each epoch with the disk and with the epochs before."""
    if not (why := _order(job)):
        return None
    return (
        f"The events are not mixed: {why}.",
        "Shuffle the chunks, and the events of several chunks together, with a seed that depends "
        "on the epoch.",
    )


def _order(job: CountedJob) -> str:
    ids = MemmapEvents(job.folder).labels.event_id.tolist()
    on_disk = {event: index for index, event in enumerate(ids)}
    epochs = [[on_disk[event] for event in epoch] for epoch in job.epochs]
    batches = [[[on_disk[event] for event in batch] for batch in some] for some in batches_of(job)]
    in_order = np.mean([abs(rank_correlation(epoch, sorted(epoch))) for epoch in epochs])
    if in_order > SORTED:
        return "an epoch goes through the file from one end to the other"
    if np.mean([np.std(batch) for batch in chain(*batches)]) < SPREAD * np.std(epochs[0]):
        return "most events of a batch are neighbours on disk, and the file is sorted by energy"
    for one, other in combinations(range(len(epochs)), 2):
        alike = stay_together(epochs[one], epochs[other])
        if max(alike, share_a_batch(batches[one], batches[other])) > ALIKE:
            return f"epochs {one} and {other} have the same order or the same batches"
    return ""


def batches_of(job: CountedJob) -> list[list[list[int]]]:
    """Return the events of each batch of each epoch."""
    sizes = iter(job.sizes)
    epochs = []
    for epoch in job.epochs:
        left = iter(epoch)
        count, batches = 0, list[list[int]]()
        while count < len(epoch):
            batches.append([*islice(left, next(sizes))])
            count += len(batches[-1])
        epochs.append(batches)
    return epochs


def share_a_batch(one: list[list[int]], other: list[list[int]]) -> float:
    """Return the share of the pairs in a batch of one epoch that share one in the other too."""
    number = {event: n for n, batch in enumerate(other) for event in batch}
    pairs = [number[a] == number[b] for batch in one for a, b in combinations(batch, 2)]
    return float(np.mean(pairs))


def changed_tokens(job: CountedJob) -> Objection | None:
    """Compare what the model sees of some events with the colleague's tokens."""
    events, sensors = MemmapEvents(job.folder), read_sensors(job.folder)
    for index in job.training[::SAMPLED]:
        tokens = tokenise(sample := events[index], sensors)
        mask = tokens["mask"]
        wanted = {
            "features": np.round(tokens["features"][mask], 2),
            "sensors": tokens["sensor"][mask],
            "direction": np.asarray(tokens["direction"]),
        }
        for seen in job.seen_events[sample["event_id"]]:
            got = {**seen._asdict(), "features": np.round(seen.features, 2)}
            if differs := difference(got, wanted, f"the event {sample['event_id']}"):
                return (
                    f"The model sees something else than before: {differs}.",
                    "Make the transform faster, but keep what it returns. Shuffle complete "
                    "samples, and do not change the batch in the loop.",
                )
    return None


def changed_steps(job: CountedJob) -> Objection | None:
    """Repeat the steps with the colleague's `learn`, and compare the weights after each."""
    reference = Reference(PulseTransformer(read_sensors(job.folder)), job.plan)
    for epoch in range(len(job.plan)):
        taken = [(n, step) for n, step in enumerate(job.steps[epoch]) if step.seed]
        steps = ((f"step {n}", reference.difference(epoch, step)) for n, step in taken)
        looks = (("evaluate", reference.look_difference(epoch, one)) for one in job.looks[epoch])
        for part, differs in chain(steps, looks):
            if differs:
                return (
                    f"The model learns something else than before: in epoch {epoch}, {part} "
                    f"{differs}.",
                    "Leave the model, the optimiser, `learn` and `evaluate` as they were. The GPU "
                    "has time for them.",
                )
    return None


def starving(job: CountedJob) -> Objection:
    """Return how much the GPU still waits, and whether for the workers or for the loop."""
    summary = job.trace.summary()
    host, wait = summary.stall.get("host", 0.0), summary.stall.get("wait", 0.0)
    waits = "The GPU waits for the workers." if wait > host else "The main process blocks the GPU."
    waits = waits if job.workers else "The main process loads the batches itself."
    return (
        f"AU {percent(summary.au)} over {plural(summary.steps, 'step')}; the target is "
        f"{percent(TARGET_AU)}. {waits}",
        "Run a timed_job, and look at its timeline: what happens in a worker, and what in the main "
        "process between two steps?",
    )


SAMPLES: tuple[Clause, ...] = (
    another_training,
    wrong_events,
    past_the_storage,
    not_mixed,
    changed_tokens,
    changed_steps,
)
LIMITS: tuple[Clause, ...] = late_start, too_much_held
