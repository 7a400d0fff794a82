"""The advice for loops with a known fault, by its id in the catalog."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import get_args

from keepfed.measure.advice import CATALOGUE, Cause, recommend
from keepfed.measure.advice.rules import judge
from keepfed.measure.stacks import HotLine
from tests.measure.handmade import hungry

IPC: Cause = "collate or IPC"
WAITS = {"computing_s": 0.01}
STREAM = {"kind": "stream", "workers": 4}


def test_ids_are_unique_and_each_cause_has_advice_for_any_loop() -> None:
    assert max(Counter(row.id for row in CATALOGUE).values()) == 1
    for cause in get_args(Cause):
        *_, last = (row for row in CATALOGUE if cause in row.causes and row.removes)
        assert last.applies(hungry())


def test_measurements_select_the_advice() -> None:
    for cause, figures, advice in (
        ("storage", WAITS, "local-copy"),
        ("storage", {**WAITS, "locked_share": 0.8}, "one-at-a-time"),
        ("storage", {**WAITS, "locked_share": 0.8, "workers": 1}, "local-copy"),
        ("storage", {**WAITS, **STREAM, "active_workers": 1}, "more-shards"),
        ("storage", {**WAITS, **STREAM, "active_workers": 4}, "local-copy"),
        ("storage", {**WAITS, "asked_bytes": 5e7, "batch_bytes": 10**6}, "read-less"),
        ("CPU", {"asked_bytes": 5e7, "batch_bytes": 10**6}, "read-less"),
        (
            "CPU",
            {"asked_bytes": 5e4, "batch_bytes": 10},
            "precompute",
        ),  # ten times the batch, but few bytes
        ("CPU", {"read_calls": 3200.0, "batch_size": 32}, "open-once"),
        ("CPU", {"read_calls": 32.0, "batch_size": 32}, "precompute"),
        (IPC, {"sending_s": 0.2, "objects": 2000, "batch_size": 32}, "one-array-per-field"),
        (IPC, {"sending_s": 0.2, "pickle_s": 0.1}, "one-array-per-field"),
        (IPC, {"sending_s": 0.2, "narrower": "uint8", "narrower_share": 0.25}, "narrow-dtype"),
        (IPC, {"sending_s": 0.2, "batch_bytes": 10**7}, "send-less"),
        (IPC, {"collate_s": 0.09}, "collate-arrays"),
        ("main process", {"sampling_s": 0.02, "host_s": 0.001}, "plan-batches"),
        ("main process", {"host_s": 0.02}, "rare-loss"),
        ("start-up", {"start_up_s": 10.0, "epoch": 20}, "persistent-workers"),
        ("start-up", {"start_up_s": 10.0, "epoch": 20, "loaders_made": 3}, "make-once"),
        ("start-up", {"start_up_s": 0.1, "epoch": 1}, "one-loop"),
        (
            "start-up",
            {"start_up_s": 10.0, "filling_s": 8.0, "epoch": 20, "kind": "stream"},
            "fill-once",
        ),
        ("start-up", {"start_up_s": 10.0, "filling_s": 8.0, "epoch": 20}, "persistent-workers"),
    ):
        found = recommend(hungry(**figures), cause, [])
        assert (found.id, (found.gain or 1) >= 1) == (advice, True), cause


def test_the_hottest_line_selects_the_advice(tmp_path: Path) -> None:
    for source, library, share, advice in (
        ("names = os.listdir(self.folder)", "", 0.8, "list-once"),
        ("paths = [*self.folder.glob('*.npy')]", "pathlib", 0.5, "list-once"),
        ("names = os.listdir(self.folder)", "", 0.2, "precompute"),
        ("rows = self.table[self.table['run'] == run]", "pandas", 0.8, "filter-once"),
        ("scan = dict(np.load(path))", "zipfile", 0.9, "decompress-less"),
        ("ids = tokenizer.encode(text)", "tokenizers", 0.9, "precompute"),
    ):
        folder = tmp_path / f"{advice} {share}"
        folder.mkdir()
        (folder / "data.py").write_text(f"{source}\n", "utf-8")
        file = str(folder / "data.py")
        line = HotLine("fetch", file, 1, "Events.__getitem__", "call", share, library)
        found = recommend(hungry(lines={"fetch": (line,)}), "CPU", [])
        assert found.id == advice, source
        if advice != "precompute":
            assert "(data.py:1)" in found.change, source


def test_more_workers_are_not_advised_if_the_current_ones_wait() -> None:
    for figures, advice in (
        ({**WAITS, "locked_share": 0.8}, "one-at-a-time"),
        ({**WAITS, **STREAM, "active_workers": 1}, "more-shards"),
    ):
        m = hungry(**figures)
        assert recommend(m, judge(m)).id == advice, figures


def test_smallest_number_of_workers_near_the_best_is_advised() -> None:
    found = recommend(
        hungry(workers=1, computing_s=0.01, compute_s=0.03, step_s=0.03, together_s=0.1), "storage"
    )
    assert found.change == "num_workers=4"  # with 8, the step would be the limit too


def test_less_computing_also_saves_waiting_for_a_core() -> None:
    quiet = recommend(hungry(step_s=0.001, together_s=0.1, workers=0), "CPU", [])
    busy = hungry(
        step_s=0.001,
        together_s=0.3,
        workers=0,
        fetch_s=0.3,
        computing_s=0.095,
        delay_s=0.2,
        others_cores=1.0,
    )
    assert recommend(busy, "CPU", []).gain > 1.5 * quiet.gain
