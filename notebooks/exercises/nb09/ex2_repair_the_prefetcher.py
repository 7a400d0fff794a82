"""Check of notebook 09: a prefetcher to the GPU, judged on emulated GPUs with a clock of their own.

Each trial is one defect of the prefetcher in the notes. None depends on how fast this machine is:
real time only limits how long something that hangs is waited for.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

from course_utils.teaching.exercise import Verdict, exercise, expect, quiet_threads, right
from notebooks.exercises.nb09.bench import Bench, Make, Pair, nested_batches, within
from notebooks.exercises.nb09.on_device import (
    RUNS,
    judge_device,
    judge_late,
    judge_memory,
    judge_overlap,
)
from notebooks.stories.prefetchers import BATCH_BYTES, DiskError, Source, make_tensors, sums

SETTLE_S = 0.3  # how long a thread may show that it has begun
LEAVE_S = 2.0  # how long a thread may take to end, once nobody listens any more

Trial = Callable[[Make], None]


@exercise("09.2", title="Repair the prefetcher", seconds=180)
def repair_the_prefetcher(prefetcher_class: Make) -> Verdict:
    """Judge a prefetcher by the trials, the simple ones first."""
    with quiet_threads():
        for trial in TRIALS.values():
            trial(prefetcher_class)
    return right(
        f"Right in {RUNS} of {RUNS} epochs, and the copies run beside the steps. An error reaches "
        "the loop, a second epoch begins, a break leaves nothing behind; any batch, on the right "
        "GPU, and no more than two of them there if each loss is read."
    )


def _judge_right(make: Make) -> None:
    bench, source = Bench(), Source(make_tensors())
    found = within(
        lambda _: sums(bench.gpu, make(source, bench.gpus)),
        "The loop waits for ever. Here a batch is one tensor: if a thread of yours expects a pair, "
        "it dies of that without a word.",
        "gpu.upload(batch) takes any batch; and no thread, no waiting for it.",
    )
    expect(
        not any(map(math.isnan, found)),
        f"{sum(map(math.isnan, found))} of {len(found)} steps computed with garbage: they do not "
        "wait for their copies.",
        "Record an event behind each copy; at hand-over, "
        "gpu.current_stream().wait_event(that event).",
    )
    expect(
        len(found) == len(source),
        f"The loader has {len(source)} batches, the loop gets {len(found)}.",
        "What was copied ahead is handed over when the loader is through: the last batches too.",
    )
    expect(
        found == source.checksums(),
        "The batches come out changed or in another order than the loader has them.",
        "Hand over in the order in which you copy: a deque, append() and popleft().",
    )


def _judge_nested(make: Make) -> None:
    bench, source = Bench(), Source(nested_batches())

    def loop(_: list[Any]) -> list[tuple[Any, float]]:
        return [(batch, bench.gpu.step(batch).item()) for batch in make(source, bench.gpus)]

    found = within(
        loop,
        "A batch is a dict, and the loop waits for ever: something expects a pair of tensors.",
        "gpu.upload(batch) copies any batch, however nested, and leaves the rest as it is.",
    )
    shaped = all(
        isinstance(got, dict)
        and list(got) == ["pulses", "ids", "label"]
        and got["ids"] == batch["ids"]
        and isinstance(got["label"], Pair)
        and got["label"].kind == batch["label"].kind
        for (got, _), batch in zip(found, source.batches, strict=False)
    )
    expect(
        shaped and [sum_ for _, sum_ in found] == source.checksums(),
        "A batch that is a dict, with a named tuple and a list of ids in it, does not come out as "
        "it went in.",
        "gpu.upload(batch) keeps the shape of a batch; record_stream is for its tensors only.",
    )


def _judge_order(make: Make) -> None:
    bench, source = Bench(), Source(make_tensors())

    def loop(_: list[Any]) -> list[float]:
        prefetcher = make(source, bench.gpus)
        source.begun.wait_until(1, SETTLE_S)  # a thread that starts here has begun by then
        source.set_epoch(1)
        return sums(bench.gpu, prefetcher)

    found = within(loop, "The loop never ends.", "Begin with the loader when the loop begins.")
    expect(
        found == source.checksums(),
        "set_epoch(1) before the loop, and the loop gets the order of epoch 0, at least at first: "
        "you have asked the loader for batches before anybody asked you.",
        "Leave the loader alone in __init__; call iter(loader) in __iter__.",
    )


def _judge_epochs(make: Make) -> None:
    bench, source = Bench(), Source(make_tensors())

    def loop(_: list[Any]) -> list[int]:
        prefetcher = make(source, bench.gpus)
        return [len(sums(bench.gpu, prefetcher)) for _ in range(3)]

    counts = within(
        loop,
        "The second epoch waits for ever: what fills it was started once and is through.",
        "Begin anew in every __iter__: make it a generator, with yield.",
    )
    expect(
        counts == [len(source)] * 3,
        f"Three epochs serve {counts} batches; the loader has {len(source)} in each.",
        "Begin anew in every __iter__: make it a generator, with yield.",
    )
    expect(
        bench.streams_made <= 1,
        f"Three epochs make {bench.streams_made} streams. Each has device memory of its own, which "
        "no other stream gets: memory grows from epoch to epoch.",
        "Make the stream once, in __init__, and keep it.",
    )


def _judge_exception(make: Make) -> None:
    bench, source = Bench(), Source(make_tensors(), fails_at=3)

    def loop(_: list[Any]) -> tuple[int, BaseException | None]:
        count = 0
        try:
            for batch in make(source, bench.gpus):
                bench.gpu.step(batch).item()
                count += 1
        except BaseException as error:
            return count, error
        return count, None

    count, error = within(
        loop,
        "The loader raises, and the loop waits for ever. An error ends the thread it is raised in, "
        "and nobody tells the loop.",
        "Without a thread it comes by itself; with one, send it through the queue and raise it.",
    )
    expect(
        error is not None,
        f"The loader raises after 3 batches, and the loop ends after {count} as if all were well.",
        "Catch the error where you ask the loader, and raise it after the batches before it.",
    )
    expect(
        isinstance(error, DiskError),
        f"The loader raises a DiskError, the loop gets {type(error).__name__}: {error}.",
        "Raise the very error of the loader.",
    )
    expect(
        count == 3,
        f"The loader gives 3 batches and raises then; the loop gets {count} of them. The error "
        "overtakes what was copied ahead.",
        "Catch it, hand over what is staged, then raise it.",
    )


def _judge_break(make: Make) -> None:
    bench, source = Bench(), Source(make_tensors())
    before = set(threading.enumerate())

    def loop(_: list[Any]) -> None:
        for number, batch in enumerate(make(source, bench.gpus)):
            bench.gpu.step(batch).item()
            if number == 1:
                source.served.wait_until(len(source), SETTLE_S)  # let a thread get stuck
                break

    within(
        loop,
        "The loop does not get out of its break: it waits for a thread that waits for room.",
        "Tell the thread to stop, and let it look while it waits; or do without a thread.",
    )
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(LEAVE_S)
    expect(
        not any(thread.is_alive() and thread.name != "check" for thread in left),
        "Long after a break a thread is still there, waiting for room in a queue that nobody "
        "empties, and with it the loader and its workers.",
        "Without a thread, leaving the loop closes your generator, and that is all.",
    )
    expect(
        source.closed.wait_until(1, LEAVE_S),
        "After a break the loader is still open: somebody holds its iterator.",
        "Keep the loader's iterator in __iter__ alone, not in self.",
    )
    bench.gpu.synchronize()
    kept = bench.gpu.memory_allocated() / BATCH_BYTES
    expect(
        not kept,
        f"After a break {kept:.0f} of your batches are still on the GPU.",
        "Keep what is staged in a local variable of __iter__: it goes when the generator ends.",
    )


TRIALS: dict[str, Trial] = {
    "right": _judge_right,
    "nested batch": _judge_nested,
    "order": _judge_order,
    "second epoch": _judge_epochs,
    "exception": _judge_exception,
    "break": _judge_break,
    "device index": judge_device,
    "losses read late": judge_late,
    "memory in flight": judge_memory,
    "overlap": judge_overlap,
}
