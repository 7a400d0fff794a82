import threading

import pytest

from course_utils.loading.prefetch import CudaPrefetcher
from course_utils.measure.spans import hidden_share
from course_utils.measure.trace import record
from notebooks.stories.prefetchers import (
    NotesPrefetcher,
    Source,
    default_stream,
    make_gpus,
    prove_all,
    side_stream,
    side_stream_with_wait,
    sums,
)
from notebooks.stories.prefetchers.bench import make_pairs
from notebooks.stories.prefetchers.defects import DEFECTS
from notebooks.stories.prefetchers.trials import hidden_after_first, try_loop, wrong

RUNS = 20


@pytest.fixture(scope="module")
def source():
    return Source(make_pairs(6))


def wrong_runs(source, design, *, late=False):
    found = 0
    for _ in range(RUNS):
        gpu = make_gpus()[0][0]
        found += wrong(sums(gpu, design(gpu, source), late=late), source) > 0
    return found


def ours(gpu, source):
    return CudaPrefetcher(source, gpu)


@pytest.mark.parametrize("prove", DEFECTS)
def test_the_notes_have_the_defect_and_ours_has_not(prove):
    defect = prove()
    assert defect.proven, defect
    assert defect.notes != defect.ours


def test_the_ten_are_numbered_and_leave_no_thread_behind():
    before = set(threading.enumerate())
    assert [defect.number for defect in prove_all()] == list(range(1, 11))
    assert set(threading.enumerate()) <= before


def test_a_proof_says_what_was_seen_in_counts():
    assert "after break: thread alive, 5 batches kept, loader open" in str(DEFECTS[5]())


def test_the_notes_do_well_where_nothing_is_asked_of_them(source):
    gpus, _ = make_gpus()
    assert wrong(sums(gpus[0], NotesPrefetcher(gpus, source)), source) == 0


@pytest.mark.parametrize("count", [2, 3, 6, 7])
def test_an_epoch_of_the_notes_ends_whatever_the_queue_holds(count):
    source, (gpus, _) = Source(make_pairs(count)), make_gpus()
    assert str(try_loop(lambda: NotesPrefetcher(gpus, source))) == f"{count} batches"


def test_on_the_default_stream_nothing_is_hidden_and_all_is_right(source):
    gpus, clock = make_gpus()
    assert hidden_after_first(gpus[0], clock, default_stream(gpus[0], source)) == 0
    assert wrong_runs(source, default_stream) == 0


def test_without_a_wait_every_run_is_wrong(source):
    assert wrong_runs(source, side_stream) == RUNS


def test_without_record_stream_a_run_is_right_only_as_long_as_each_loss_is_read(source):
    assert wrong_runs(source, side_stream_with_wait) == 0
    assert wrong_runs(source, side_stream_with_wait, late=True) == RUNS


@pytest.mark.parametrize("late", [False, True], ids=["each loss read", "losses read late"])
def test_ours_is_right_in_every_run(source, late):
    assert wrong_runs(source, ours, late=late) == 0


def test_ours_hides_all_copies_but_the_first(source):
    gpus, clock = make_gpus()
    assert hidden_after_first(gpus[0], clock, ours(gpus[0], source)) > 0.95
    with record(clock=clock) as trace:
        sums(gpus[0], ours(gpus[0], source))
    assert hidden_share(trace.spans) == pytest.approx(5 / 6)


@pytest.mark.parametrize("design", [default_stream, side_stream, side_stream_with_wait])
@pytest.mark.parametrize("count", [0, 1])
def test_a_design_serves_a_short_epoch(design, count):
    gpu = make_gpus()[0][0]
    assert len(list(design(gpu, Source(make_pairs(count))))) == count
