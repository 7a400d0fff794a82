"""Defects of the notes' prefetcher that its thread brings: starting, ending, which GPU it takes."""

from __future__ import annotations

from collections import Counter

from course_utils.loading.prefetch import CudaPrefetcher
from notebooks.stories.prefetchers.bench import BATCH_BYTES, Source, make_gpus, make_pairs, sums
from notebooks.stories.prefetchers.notes_prefetcher import NotesPrefetcher
from notebooks.stories.prefetchers.trials import (
    LIMIT_S,
    Defect,
    Prefetcher,
    on_device,
    stop,
    try_loop,
    until,
    wrong,
)


def an_error_vanishes() -> Defect:
    """Let the disk go before the fourth batch."""
    source, (gpus, _) = Source(make_pairs(), fails_at=3), make_gpus()
    notes = try_loop(lambda: NotesPrefetcher(gpus, source))
    ours = try_loop(lambda: CudaPrefetcher(source, gpus[0]))
    return Defect(
        4,
        "An error of the loader ends the thread, and nobody hears of it",
        "The thread puts an end mark into the queue; only after the last batch.",
        str(notes),
        str(ours),
        notes.stuck and not ours.stuck and ours.batches == 3 and "DiskError" in ours.error,
    )


def one_epoch_only() -> Defect:
    """Loop twice."""
    source, (gpus, _) = Source(make_pairs()), make_gpus()
    notes = try_loop(lambda: NotesPrefetcher(gpus, source), epochs=2)
    ours = try_loop(lambda: CudaPrefetcher(source, gpus[0]), epochs=2)
    return Defect(
        5,
        "The second epoch hangs",
        "The thread is started when the prefetcher is made, once.",
        f"2 epochs of 8: {notes}",
        f"2 epochs of 8: {ours}",
        notes.stuck and ours.batches == 16 and not ours.stuck,
    )


def break_leaves_all_behind() -> Defect:
    """Leave the loop at its first batch."""
    source, (gpus, _) = Source(make_pairs()), make_gpus()
    prefetcher = NotesPrefetcher(gpus, source, queue_size=4)
    for batch in prefetcher:
        del batch
        break
    until(lambda: on_device(gpus[0]) == 5)
    alive, kept, left_open = prefetcher.thread.is_alive(), on_device(gpus[0]), source.is_open
    stop(prefetcher)

    ours, (gpus, _) = Source(make_pairs()), make_gpus()
    for batch in CudaPrefetcher(ours, gpus[0]):
        del batch
        break
    after = on_device(gpus[0])
    return Defect(
        6,
        "Leaving the loop leaves thread, batches and loader behind",
        "The thread is a daemon and needs no care.",
        f"after break: thread {'alive' if alive else 'ended'}, {kept} batches kept, "
        f"loader {'open' if left_open else 'closed'}",
        f"after break: no thread, {after} batches kept, "
        f"loader {'open' if ours.is_open else 'closed'}",
        alive and kept == 5 and left_open and after == 0 and not ours.is_open,
    )


def always_gpu_0() -> Defect:
    """Do what rank 1 of two does: choose GPU 1, then prefetch."""

    def place(prefetcher: Prefetcher) -> str:
        names = Counter(inputs.device for inputs, _ in prefetcher)
        return ", ".join(f"{count} batches on the {name}" for name, count in names.items())

    source, (gpus, _) = Source(make_pairs()), make_gpus(2)
    gpus.set_device(1)
    notes = place(NotesPrefetcher(gpus, source))
    ours = place(CudaPrefetcher(source, gpus.current()))
    return Defect(
        7,
        "Every rank copies to GPU 0",
        'One prefetcher per rank, each with torch.device("cuda").',
        f"rank 1: {notes}",
        f"rank 1: {ours}",
        notes == f"8 batches on the {gpus[0].name}" and ours == f"8 batches on the {gpus[1].name}",
    )


def the_queue_is_device_memory() -> Defect:
    """Count the batches on the device while the loop works on its first."""
    source, (gpus, _) = Source(make_pairs()), make_gpus()
    prefetcher = NotesPrefetcher(gpus, source, queue_size=4)
    for batch in prefetcher:
        until(lambda: on_device(gpus[0]) == 6)
        del batch
        break
    notes = gpus[0].max_memory_allocated() // BATCH_BYTES
    stop(prefetcher)

    gpu = make_gpus()[0][0]
    sums(gpu, CudaPrefetcher(source, gpu))
    ours = gpu.max_memory_allocated() // BATCH_BYTES
    return Defect(
        8,
        "The queue fills the memory of the GPU",
        "A queue of 4 on the GPU, called pinned: pinned memory is the host's.",
        f"{notes} batches on the GPU at a time: 4 queued, 1 waiting for a place, 1 in use",
        f"{ours} batches on the GPU at a time",
        notes == 6 and ours == 2,
    )


def it_starts_too_early() -> Defect:
    """Choose the epoch after the prefetcher was made, as a training loop does."""

    def begun(prefetcher: Prefetcher, *, early: int) -> tuple[int, str]:
        source.served.wait_until(early, LIMIT_S)
        read = source.served.value
        source.set_epoch(1)
        found = sums(gpus[0], prefetcher)
        epochs = [epoch for epoch in (0, 1) if not wrong(found, source, epoch)]
        return read, f"{read} batches read before the loop; the order served was that of " + (
            f"epoch {epochs[0]}" if epochs else "no epoch"
        )

    source, (gpus, _) = Source(make_pairs()), make_gpus()
    early, notes = begun(NotesPrefetcher(gpus, source), early=4)
    source, (gpus, _) = Source(make_pairs()), make_gpus()
    none, ours = begun(CudaPrefetcher(source, gpus[0]), early=0)
    return Defect(
        10,
        "It reads before the loop begins",
        "Prefetching starts as soon as there is a prefetcher.",
        f"set_epoch(1), then the loop: {notes}",
        f"set_epoch(1), then the loop: {ours}",
        early == 4 and none == 0 and notes.endswith("epoch 0") and ours.endswith("epoch 1"),
    )
