"""Exercise 13.1: rescue a training run."""

from collections import Counter
from itertools import chain, combinations, islice
from math import log2
from pathlib import Path
from typing import Any

import numpy as np

from course_exercises.judging import stay_together
from course_exercises.nb13.fixed import BATCH, tokenise
from course_exercises.nb13.same_steps import learns_as_before
from course_stories.capstone import (
    TARGET_AU,
    CountedJob,
    Result,
    add_result,
    handed_out,
    load,
    now,
    seed_of,
)
from course_utils.loading.events import MemmapEvents, read_sensors
from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo, wrong
from course_utils.teaching.notebook import data_path
from keepfed.formatting import percent, plural

POINTS_AU, POINTS_EACH = 60, 20  # for the GPU, and for each limit that is kept
A_DOUBLING = 15  # points less for half the AU
START_UP_S = 3.0  # until the first step, without what any workers take to start
HELD = 0.6  # of the events of an epoch
LONGEST_S = 60.0  # of real time
ALIKE = 0.5  # of those beside each other, or in one batch, at most are so in the next epoch too
SPREAD = 0.3  # of what the places on disk scatter, those in a batch do at least
SORTED = 0.6  # correlation of when an event comes with where it lies, on average over the epochs

Objection = tuple[str, str]  # what is wrong, what to do now


@exercise("13.1", title="Rescue a training run", seconds=2 * LONGEST_S)
def rescue(script: Any) -> Verdict:
    """Judge the script by what a run of it serves, takes and holds."""
    expect(
        isinstance(script, str | Path) and Path(script).is_file(),
        f"There is no script {script!s:.60}.",
        "Hand over the path of your script: script = hand_out().",
    )
    if Path(script).read_text("utf-8") == handed_out(seed_of(script)):
        return todo(f"{script} is as your colleague left it. Mend something, then run this again.")
    train = getattr(load(script), "train", None)
    expect(
        callable(train),
        "The script has no function `train` any more, which starts the training.",
        "Keep `def train(job)`; everything else may change.",
    )
    result, objection, is_cut_off = grade(script, train)
    if is_cut_off and result.rescued:
        return todo(
            f"The machine was too busy: two epochs took longer than {LONGEST_S:.0f} s. Close what "
            "else runs, and run this again."
        )
    add_result(result)
    if result.rescued:
        return right(f"{result} Each event comes once in each epoch, and unchanged.")
    au = "" if objection[0].startswith("AU") else f"AU {percent(result.au)}, "
    return wrong(f"{objection[0]} ({au}{plural(result.points, 'point')})", objection[1])


def grade(script: str | Path, train: Any) -> tuple[Result, Objection, bool]:
    """Run the training of a script.

    Return what it is worth, what is to be mended first, and whether the run was cut off.
    """
    job = CountedJob(data_path("events", "S"), seconds=LONGEST_S)
    job.run(train)
    au, start_up = job.trace.summary().au, start_up_of(job)
    spoilt = None if job.late else spoilt_samples(job)
    broken = [*filter(None, (late_start(start_up), too_much_held(job)))]
    objections = [*([spoilt] if spoilt else []), *broken]
    fed = min(max(POINTS_AU + A_DOUBLING * log2(max(au, 1e-3) / TARGET_AU), 0), POINTS_AU)
    points = round(fed) + POINTS_EACH * (2 - len(broken))
    missing = sum(len(job.training) - len(set(epoch)) for epoch in job.epochs)
    result = Result(
        seed=seed_of(script),
        points=0 if spoilt else points,
        refused=objections[0][0] if objections else "",
        au=round(au, 4),
        start_up_s=round(start_up, 2),
        held=job.held,
        events=len(job.training),
        samples=sum(map(len, job.epochs)),
        distinct=sum(len(set(epoch)) for epoch in job.epochs),
        lost=max(0, missing),
        when=now(),
    )
    if not spoilt and (POINTS_AU - fed > POINTS_EACH or not objections):  # what costs most
        return result, starving(job), job.late
    return result, objections[0], job.late


def start_up_of(job: CountedJob) -> float:
    """Return the seconds until the first step, without what its workers took to start."""
    return max(0.0, min(job.start_up_s, LONGEST_S) - (job.boot_s or 0))


def late_start(seconds: float) -> Objection | None:
    """Return that the first step comes too late, if it does."""
    if seconds <= START_UP_S:
        return None
    return (
        f"The first step comes after {seconds:.1f} s, without what the workers take to start; "
        f"{START_UP_S:.0f} s are allowed.",
        "Look at what happens before the loop, and how often it asks the storage.",
    )


def too_much_held(job: CountedJob) -> Objection | None:
    """Return that the loading holds too many events, if it does."""
    most = round(HELD * len(job.training))
    if job.held <= most:
        return None
    return (
        f"Up to {job.held:,} events are held at a time, and {most:,} are allowed: they were read "
        "and not yet learnt from, or kept after that.",
        "Look for what reads far ahead, and for what keeps batches or events.",
    )


def spoilt_samples(job: CountedJob) -> Objection | None:
    """Return what is wrong with the samples that were served, or None."""
    events = MemmapEvents(job.folder)
    wanted = set(events.labels.event_id[job.training].tolist())
    came = sum(map(bool, job.epochs))
    if not came == len(job.epochs) == len(job.plan):
        return (
            f"The training has {len(job.plan)} epochs, and samples came in {came} of them.",
            "Let each epoch of the plan go through job.follow(loader), once.",
        )
    if strange := set(chain(job.seen_events, *job.epochs)) - wanted:
        return (
            f"{plural(len(strange), 'event')} among the samples are none that the job wants "
            "learnt: what is held out, to see how well the model does, must stay unknown to it.",
            "Learn from the events of job.training, and from no others.",
        )
    if job.read < sum(map(len, job.epochs)):
        return (
            f"Only {job.read:,} events were read, and {sum(map(len, job.epochs)):,} learnt from: "
            "the others came from memory, or past the job.",
            "Read them by job.events(...) in each epoch: the real data fit into no memory.",
        )
    usual = int(np.median(job.sizes))
    if {usual, max(job.sizes)} != {BATCH} or job.trace.summary().steps != len(job.sizes):
        return (
            f"{job.trace.summary().steps} steps learn from {len(job.sizes)} batches, of {usual} "
            f"events usually and of up to {max(job.sizes)}: that is another training.",
            f"Keep batches of {BATCH} events, and take one step with each.",
        )
    counts = [Counter(epoch) for epoch in job.epochs]
    twice = max(sum(count > 1 for count in epoch.values()) for epoch in counts)
    lost = max(len(wanted - set(epoch)) for epoch in counts)
    most = max(max(epoch.values()) for epoch in counts)
    if 0 < twice < len(wanted) and not lost:
        return (
            f"{twice} of {len(wanted)} events come up to {most} times in an epoch, and all others "
            "once: the model learns more from some than from others.",
            "Serve each event once; the last batch of a worker need not be full.",
        )
    if twice and not lost:
        return (
            f"{twice} of {len(wanted)} events come {most} times in an epoch: each worker serves "
            "them all. It was so from the beginning; with one worker or none nobody notices.",
            "A copy of the dataset has to know its place, and take its share: stream.split.",
        )
    if twice:
        return (
            f"{twice} events come more than once in an epoch, and {lost} never: what is drawn "
            "with replacement, or by each worker for itself, is no epoch.",
            "Shuffle with the same seed everywhere, then let each worker take its share.",
        )
    if lost:
        return (
            f"{lost} of {len(wanted)} events never come in an epoch, and nothing says so.",
            "Look at what becomes of batches that are not full, and of what does not divide.",
        )
    left_out = Counter(chain(*job.epochs)) - Counter(
        {event: len(rows) for event, rows in job.seen_events.items()}
    )
    if left_out:
        return (
            f"{left_out.total():,} times an event comes to the loop, and no step learns from it: "
            "steps get another batch than the one that has come.",
            "Hand each batch of job.follow(loader) to job.upload, and what that returns to "
            "job.compute.",
        )
    return not_mixed(job, events) or changed_tokens(job, events) or changed_steps(job)


def not_mixed(job: CountedJob, events: MemmapEvents) -> Objection | None:
    """Return what is wrong with the order of the events, if anything is."""
    on_disk = {event: index for index, event in enumerate(events.labels.event_id.tolist())}
    epochs = [[on_disk[event] for event in epoch] for epoch in job.epochs]
    batches = batches_of(job)
    one_way = [abs(np.corrcoef(places, range(len(places)))[0, 1]) for places in epochs]
    if np.mean(one_way) > SORTED:
        return (
            "An epoch goes through the file from one end to the other, so batches are not mixed: "
            "the file is sorted by energy.",
            "Shuffle the chunks too, as your colleague did.",
        )
    scatter = np.mean([np.std([on_disk[event] for event in batch]) for batch in chain(*batches)])
    if scatter < SPREAD * np.std(epochs[0]):
        return (
            "Most events come beside their neighbours on disk, so batches are not mixed: the file "
            "is sorted by energy.",
            "Shuffle the events of some chunks together, as your colleague did.",
        )
    if max(stay_together(*job.epochs), share_a_batch(*batches)) > ALIKE:
        return (
            "Two epochs have the same order, the same pieces of it or the same batches in another "
            "one, so the same events share a batch each time.",
            "The seed of the order has to depend on the epoch: who tells it to the dataset?",
        )
    return None


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


def changed_tokens(job: CountedJob, events: MemmapEvents) -> Objection | None:
    """Return that the model would see something else than before, if it would."""
    sensors = read_sensors(job.folder)
    for index in job.training[::7]:
        sample = events[index]
        tokens, event = tokenise(sample, sensors), sample["event_id"]
        mask = tokens["mask"]
        for row in job.seen_events[event]:
            if not np.allclose(row.direction, tokens["direction"]):
                return (
                    f"Event {event} is learnt with the direction of another one: what belongs "
                    "together came apart on the way.",
                    "Shuffle samples, and never a part of them alone.",
                )
            if not (
                np.array_equal(row.sensors, tokens["sensor"][mask])
                and np.allclose(row.features, tokens["features"][mask], atol=1e-3)
            ):
                return (
                    f"The tokens of event {event} are others than before: a model that learns "
                    "something else is not a faster one.",
                    "Make the transform faster, and let what it returns as it was; change nothing "
                    "of it in the loop.",
                )
    return None


def changed_steps(job: CountedJob) -> Objection | None:
    """Return that a step learns something else than before, if it does."""
    if 0 < job.steps_without_optimiser < len(job.sizes):
        return (
            f"{job.steps_without_optimiser} of {len(job.sizes)} steps get no optimiser, and the "
            "others get one: the model learns nothing from their events.",
            "Hand `learn` to job.compute for each batch, the first one too.",
        )
    if job.noted != [(task, True) for task in job.plan]:
        return (
            "Nobody hears any more how it went: job.note gets no losses after each epoch.",
            "Hand job.note the task, the losses of the steps and those on what is held out.",
        )
    for epoch, (task, steps) in enumerate(zip(job.plan, job.first_steps, strict=True)):
        if not all(learns_as_before(step, task) for step in steps):
            return (
                f"In epoch {epoch} of the plan {job.plan}, what you hand to job.compute learns "
                "something else than before: in two steps with one batch the optimiser gets other "
                "gradients, or it is not asked for two steps.",
                "Leave `learn` as your colleague wrote it, and give it the task of the epoch: the "
                "GPU has time for it.",
            )
    return None


def starving(job: CountedJob) -> Objection:
    """Return how much the GPU still waits, and whether for the workers or for the loop."""
    summary = job.trace.summary()
    if not summary.steps:
        return (
            f"There was no step within {LONGEST_S:.0f} s.",
            "Look at what happens before the first batch.",
        )
    host, wait = summary.stall.get("host", 0.0), summary.stall.get("wait", 0.0)
    said = f"AU {percent(summary.au)} over {plural(summary.steps, 'step')}; the target is "
    said += f"{percent(TARGET_AU)}"
    if wait > host:
        return (
            f"{said}. The GPU waits for the workers.",
            "Find out what a worker does for a batch: run a timed_job and look at its timeline.",
        )
    return (
        f"{said}. The main process is busy while the GPU waits.",
        "Look at who loads, and at what the loop does between two steps.",
    )
