"""Exercise 09.2: a prefetcher in torch's own words, checked on emulated GPUs."""

from unittest.mock import patch

from course_utils.exercises.judging.compare import Slip, compare, differs
from course_utils.exercises.judging.probes import expect_as_fast
from course_utils.hardware.gpu.streams import EmulatedEvent
from course_utils.stories.prefetchers import CONTRACT, OURS, RUNS, Clause, Make, run_epoch
from course_utils.stories.prefetchers.bench import BATCHES
from course_utils.stories.prefetchers.trial import hidden_thread_tracebacks, in_torch
from course_utils.teaching.exercise import Verdict, exercise, expect, right

SLIPS = (
    Slip(
        differs("batches", "then it gets"),
        "For {case}, the loop gets {got[batches]} batches, then {got[then it gets]}.",
        "Store the error in a local variable and stop reading. Raise the same error after the "
        "staged batches.",
    ),
    Slip(
        differs("threads left", "the loader is open", "batches left on the GPU"),
        "After {case}, {got[threads left]} threads and {got[batches left on the GPU]} batches are "
        "left, and the loader is open: {got[the loader is open]}.",
        "Do not start a thread. Keep the loader's iterator and staged batches in local variables "
        "of __iter__, not in self.",
    ),
    Slip(
        differs("steps that read garbage"),
        "For {case}, {got[steps that read garbage]} steps read garbage, because their stream does "
        "not wait for the copies.",
        "In hand_over, call torch.cuda.current_stream().wait_event(arrived).",
    ),
    Slip(
        lambda case, got, _: case.trial.late and got["epochs with wrong checksums"],
        "{got[epochs with wrong checksums]} of 20 epochs are wrong, all with losses that are read "
        "late. When Python drops a batch, the next copy reuses its memory while a step still reads "
        "it.",
        "In hand_over, call leaf.record_stream(torch.cuda.current_stream()) for every tensor in "
        "leaves(batch). Do not pass the copy stream.",
    ),
)


@exercise("09.2", title="Repair the prefetcher", seconds=30)
def repair_the_prefetcher(prefetcher_class: Make) -> Verdict:
    """Check one clause of the contract after another, the simple ones first."""
    make, (first, *rest) = in_torch(prefetcher_class), CONTRACT.values()
    with hidden_thread_tracebacks():
        _compare(make, [first])
        expect_as_fast(lambda: run_epoch(make), lambda: run_epoch(OURS), times=5)
        _compare(make, rest)
        _expect_no_polling(make)
    return right(
        f"Right in {RUNS} of {RUNS} epochs, and the copies overlap with the steps. An error "
        "reaches the loop, a second epoch starts, and a break leaves nothing behind. It works for "
        "any batch on the right GPU, with at most depth + 1 batches on it if each loss is read."
    )


def _compare(make: Make, clauses: list[Clause]) -> None:
    compare(
        lambda clause: clause.observe(make),
        lambda clause: clause.wanted,
        clauses,
        *SLIPS,
        show=str,
    )


def _expect_no_polling(make: Make) -> None:
    """Refuse a loop that asks again and again whether a copy has arrived."""
    with patch.object(
        EmulatedEvent, "query", autospec=True, side_effect=EmulatedEvent.query
    ) as query:
        run_epoch(make)
    expect(
        query.call_count <= BATCHES,  # each may be asked once
        f"Your loop asks {query.call_count:,} times whether a copy has arrived. Until then the "
        "program launches nothing, and uses a core.",
        "Let the stream wait: torch.cuda.current_stream().wait_event(arrived).",
    )
