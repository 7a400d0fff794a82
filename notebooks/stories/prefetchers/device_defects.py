"""Defects of the notes' prefetcher that are about the device: streams, events, kinds of batches."""

from __future__ import annotations

from course_utils.loading.prefetch import CudaPrefetcher
from course_utils.words import percent, plural
from notebooks.stories.prefetchers.bench import Source, make_gpus, make_pairs, sums
from notebooks.stories.prefetchers.notes_prefetcher import (
    NotesPrefetcher,
    side_stream,
    side_stream_with_wait,
)
from notebooks.stories.prefetchers.trials import (
    Defect,
    Prefetcher,
    hidden_after_first,
    try_loop,
    warned,
    wrong,
)

RUNS = 20


def nothing_is_hidden() -> Defect:
    """Measure which share of the copies runs beside a step."""
    gpus, clock = make_gpus()
    notes = hidden_after_first(gpus[0], clock, NotesPrefetcher(gpus, Source(make_pairs())))
    gpus, clock = make_gpus()
    ours = hidden_after_first(gpus[0], clock, CudaPrefetcher(Source(make_pairs()), gpus[0]))
    return Defect(
        1,
        "Copies and steps are on one stream",
        "The copy overlaps the forward pass.",
        f"hidden share of the copies {percent(notes)}",
        f"hidden share of the copies {percent(ours)}",
        notes < 0.01 and ours > 0.95,
    )


def not_there_yet() -> Defect:
    """Step on a stream that does not wait by itself for what the default stream was given."""

    def seen(prefetcher: Prefetcher) -> int:
        gpu = gpus[0]
        with gpu.stream(gpu.Stream()):
            return wrong(sums(gpu, prefetcher), source)

    source, (gpus, _) = Source(make_pairs()), make_gpus()
    notes, ours = seen(NotesPrefetcher(gpus, source)), seen(CudaPrefetcher(source, gpus[0]))
    count = len(source)
    return Defect(
        2,
        "The copy is only enqueued, and no event tells of its end",
        "A batch is on the GPU before the first line of the loop.",
        f"{notes} of {count} checksums wrong in a loop on a stream of its own",
        f"{ours} of {count} checksums wrong in the same loop",
        notes == count and ours == 0,
    )


def the_obvious_repair_is_a_race() -> Defect:
    """Put the copies on a stream of their own, as everybody does first."""
    source = Source(make_pairs(6))
    unwaited = late = ours = 0
    for _ in range(RUNS):
        gpu = make_gpus()[0][0]
        unwaited += wrong(sums(gpu, side_stream(gpu, source)), source) > 0
        late += wrong(sums(gpu, side_stream_with_wait(gpu, source), late=True), source) > 0
        ours += wrong(sums(gpu, CudaPrefetcher(source, gpu), late=True), source) > 0
    return Defect(
        3,
        "The obvious repair computes with garbage",
        "non_blocking=True is all it takes; a second stream would be a small change.",
        f"wrong with a second stream in {unwaited} of {RUNS} runs; with a wait too, but without "
        f"record_stream and with losses read late, in {late}",
        f"wrong in {ours} of {RUNS} runs, losses read late",
        unwaited == late == RUNS and ours == 0,
    )


def two_tensors_only() -> Defect:
    """Give it batches of three tensors, a dict of two, and two in pageable memory."""
    source, (gpus, _) = Source(make_pairs()), make_gpus()
    source.batches = [(*batch, batch[0]) for batch in source.batches]
    three = try_loop(lambda: NotesPrefetcher(gpus, source))
    ours_three = try_loop(lambda: CudaPrefetcher(source, gpus[0]))
    source.batches = [{"inputs": a, "targets": b} for a, b, _ in source.batches]
    (first, *_), (ours_first, *_) = NotesPrefetcher(gpus, source), CudaPrefetcher(source, gpus[0])
    pageable = Source(make_pairs(), pinned=False)
    silent, ours_said = (
        warned(prefetcher)
        for prefetcher in (NotesPrefetcher(gpus, pageable), CudaPrefetcher(pageable, gpus[0]))
    )
    return Defect(
        9,
        "Batches are pairs in pinned memory, and nobody checks",
        "inputs, targets = batch; pin_memory=True is a prerequisite.",
        f"three tensors: {three}; a dict: the loop gets {first}; pageable batches: "
        f"{plural(silent, 'warning')}",
        f"three tensors: {ours_three}; a dict: the loop gets a dict of {', '.join(ours_first)}; "
        f"pageable batches: {plural(ours_said, 'warning')}",
        three.stuck
        and ours_three.batches == 8
        and first == ("inputs", "targets")
        and isinstance(ours_first, dict)
        and (silent, ours_said) == (0, 1),
    )
