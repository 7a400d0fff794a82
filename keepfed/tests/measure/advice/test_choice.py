import re
from functools import partial

import pytest

from keepfed.measure.advice import Cause, Trial, candidates, recommend, with_arguments
from keepfed.measure.advice.gains import gain, iteration_ms, pipeline
from tests.measure.handmade import changed, hungry

IPC: Cause = "collate or IPC"
BIG = 10**8


def test_each_cause_has_one_sentence_and_one_change() -> None:
    for cause, changes, says in (
        ("storage", {"computing_s": 0.01}, "a worker waits 90 ms and computes 10 ms.*local disk"),
        ("storage", {"computing_s": 0.01, "delay_s": 0.04}, "60 ms .* to itself, .* 50 ms and"),
        ("CPU", {"workers": 4, "stages": {"read": 0.01, "decode": 0.09}}, "decode, .* 90 % of a f"),
        # the longest part of this fetch has no name
        ("CPU", {"stages": {"decode": 0.03}}, "CPU in the dataset: a fetch"),
        ("CPU", {"workers": 0, "batch_size": 1024}, "__getitems__.indices. that reads all"),
        (  # 6 us per sample, and putting samples into a list would leave more than half of it
            "CPU",
            {"workers": 0, "batch_size": 16_000, "kind": "batches of samples"},
            "batch_size=None., with a __getitem__ that takes the indices of a batch",
        ),
        ("CPU", {"workers": 0, "batch_size": 1024, "has_getitems": True}, "precompute before"),
        ("CPU", {"workers": 0, "batch_size": 1024, "kind": "stream"}, "precompute before"),
        ("CPU", {"worker_cores": 1}, "2 workers may use only 1 of 4 cores.*use all 4 cores"),
        ("CPU", {"one_thread_gain": 3.0}, "2 workers x 1 thread compete.*=keepfed.loaders.workers"),
        ("CPU", {"one_thread_gain": 3.0, "workers": 0}, "1 process x.*OMP_NUM_THREADS=1"),
        (IPC, {"collate_s": 0.09, "batch_bytes": BIG, "narrower": "uint8"}, "ch of 100 MB.*uint8"),
        ("transfer", {"transfer_s": 0.02}, "computes nothing for 20 ms, .*pin_memory=True"),
        ("main process", {"host_s": 0.02}, "nothing to do for 20 ms.*every 50 steps"),
        ("start-up", {"start_up_s": 10.0, "epoch": 20, "workers": 0}, "once, before training"),
        ("memory", {"grown_bytes": 2e8}, "grew by 200 MB, from 0 B.*PackedStrings"),
        ("memory", {"batch_bytes": BIG}, "2 x 2 . 1 batches of 100 MB.*prefetch_factor=1"),
        ("uneven", {"slow_time": 0.7}, "take 70 % of the time.*why the slow samples are slow"),
        ("GPU-bound", {"together_s": 0.021}, "Bound by the step, leave.* 1.1 times.*leave the lo"),
        ("GPU-bound", {"wait_s": 0.001, "others_cores": 1.0}, "step, probably: .*other programs"),
    ):
        found = recommend(hungry(**changes), cause, [])
        assert re.search(says, f"{found.measured} {found.change}"), cause
        assert found.measured.endswith("."), cause
        assert ". " not in found.measured, cause
        assert (found.gain or 1) >= 1, cause


def test_simplest_good_trial_is_recommended() -> None:
    few, many = with_arguments(num_workers=2), with_arguments(num_workers=8)
    waits = hungry(computing_s=0.01, step_s=0.02, together_s=0.06)
    tried = partial(Trial, "more-workers")
    found = recommend(waits, "storage", [tried(few, 0.031), tried(many, 0.03)])
    assert (found.change, found.how, found.at_most) == ("num_workers=2", few, False)
    assert found.gain == pytest.approx(0.06 / 0.031)
    assert recommend(waits, "storage", [tried(few, 0.04), tried(many, 0.03)]).how is many
    assert recommend(waits, "storage", [tried(few, 0.04, applicable=False)]).how is None
    stream = changed(waits, kind="stream")
    shared = recommend(stream, "storage", [tried(many, 0.03)]).change
    assert "if __iter__ gives each worker its own share" in shared
    for iteration_s in (0.1, 0.058):  # slower, or gaining too little
        found = recommend(waits, "storage", [tried(few, iteration_s)])
        assert (found.how, found.at_most) == (None, True)
    assert 1 <= found.gain <= waits.headroom
    stalls = hungry(step_s=0.01, together_s=0.2, slow_time=0.9)  # a code change would gain far more
    assert recommend(stalls, "uneven", [tried(few, 0.17)]).at_most


def test_trial_of_the_advised_change_counts_despite_a_small_gain() -> None:
    pinned = hungry(worker_cores=1, together_s=0.2)
    ((_, all_cores),) = candidates(pinned, "CPU")
    for iteration_s, gains in ((0.1, 2.0), (0.19, 0.2 / 0.19), (0.3, 1.0)):
        found = recommend(pinned, "CPU", [Trial("all-cores", all_cores, iteration_s)])
        assert (found.gain, found.how) == (pytest.approx(gains), all_cores)


def test_trial_of_whole_batches_replaces_the_prediction() -> None:
    for batch_size in (1024, BIG):
        rows = hungry(workers=0, kind="batches of samples", batch_size=batch_size)
        (_, whole), *_, (_, workers) = candidates(rows, "CPU")
        now_s = rows.iteration_s
        for iteration_s in (now_s, 2 * now_s):
            trials = (
                Trial("whole-batches", whole, iteration_s),
                Trial("more-workers", workers, iteration_s),
            )
            found = recommend(rows, "CPU", trials)
            assert found.gain is None, batch_size
            assert found.change.startswith("leave the loader as it is"), batch_size
        much = changed(rows, step_s=now_s / 50)  # the model predicts 50
        found = recommend(much, "CPU", [Trial("whole-batches", whole, now_s / 2)])
        assert found.gain == pytest.approx(2), batch_size
        others = [Trial("more-workers", workers, 2 * now_s)]  # not the advised change
        assert recommend(rows, "CPU", others).at_most, batch_size


def test_prediction_matches_the_formula() -> None:
    waits = hungry(workers=1, fetch_s=0.08, computing_s=0.0, collate_s=0.0, sending_s=0.0)
    assert iteration_ms(pipeline(waits)) == pytest.approx(80, rel=0.01)
    assert gain(waits, num_workers=2) == pytest.approx(2, rel=0.02)
    assert gain(waits, num_workers=8) == pytest.approx(4, rel=0.02)  # then the step is the limit
    computes = hungry(fetch_s=0.1, computing_s=0.1, collate_s=0.0, cores=2, worker_cores=2)
    assert gain(computes, num_workers=8) == pytest.approx(1, rel=0.1)  # both cores are busy already
    # each batch pays as much for the start-up as for loading, with every change
    restarts = changed(waits, start_up_s=0.8, epoch=10)
    assert gain(restarts, num_workers=2) == pytest.approx(1 / 0.75, rel=0.02)


STREAM = {"kind": "stream", "workers": 4}
NONE = {"workers": 0, "step_s": 0.05}
RUN = {**NONE, "epoch": 40, "start_method": "fork"}
PERSISTENT = "num_workers=4, persistent_workers=True"


def quick(seconds: float) -> dict[str, float]:
    return {"fetch_s": seconds, "computing_s": seconds, "collate_s": 1e-4, "step_s": seconds}


def test_the_model_predicts_more_workers() -> None:
    for cause, figures, change in (
        ("CPU", NONE, "num_workers=4"),
        ("CPU", {**NONE, **quick(3e-4)}, "precompute"),  # moving takes longer than loading
        ("CPU", {**NONE, **quick(4e-3)}, "precompute"),
        ("CPU", {"workers": 4}, "precompute"),
        ("storage", {"workers": 1, "computing_s": 0.01, "step_s": 0.03, "compute_s": 0.03,
            "together_s": 0.1}, "num_workers=4"),  # with 8, the step would be the limit too
        # workers are persistent if their start takes long, and starting costs once per run
        ("storage", {"workers": 2, "computing_s": 0.01, "start_up_s": 0.01, "epoch": 20},
            "num_workers=8"),
        ("storage", {"workers": 2, "computing_s": 0.01, "start_up_s": 2.0, "epoch": 20},
            "num_workers=8, persistent_workers=True"),
        ("CPU", {**RUN, "epochs": 1}, "num_workers=4"),
        ("CPU", {**RUN, "epochs": 10}, PERSISTENT),
        ("CPU", {**RUN, "epochs": 100, "start_method": "spawn"}, PERSISTENT),
        ("CPU", {**RUN, "epochs": 1, "start_method": "spawn"}, "precompute"),
        # a multi-threaded step needs its cores, but waiting for storage needs none
        ("CPU", {**NONE, "step_cpu_s": 0.05}, "num_workers=4"),
        ("CPU", {**NONE, "step_cpu_s": 0.095}, "num_workers=2"),
        ("CPU", {**NONE, "step_cpu_s": 0.095, "cores": 2, "worker_cores": 2}, "precompute"),
        ("CPU", {**NONE, "step_cpu_s": 0.19}, "precompute"),
        ("storage", {**NONE, "step_cpu_s": 0.19, "computing_s": 0.01}, "num_workers=4"),
        # workers that wait for each other or for shards need no more of their kind
        ("storage", {"computing_s": 0.01, "locked_share": 0.8}, "let each worker open"),
        ("storage", {"computing_s": 0.01, **STREAM, "active_workers": 1}, "split the data"),
        ("storage", {"kind": "no DataLoader", "workers": 0, "computing_s": 0.01},
            "if it is storage, copy the data to a local disk"),
    ):  # fmt: skip
        finding = recommend(hungry(**figures), cause)  # type: ignore[arg-type]
        words = finding.change.split(" ")[0] if change == "precompute" else finding.change
        assert words.startswith(change), (figures, finding.change)
        assert finding.at_most
        assert ("persistent" in finding.change) == ("persistent" in change), figures
