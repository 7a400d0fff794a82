"""The advice for loops with a known fault, by its id in the catalog."""

from collections import Counter
from typing import get_args

from keepfed.field_guide import entries
from keepfed.measure.advice import CATALOG, Cause, recommend
from keepfed.measure.advice.rules import judge
from keepfed.measure.stacks import HotLine
from tests.measure.handmade import hungry

IPC: Cause = "collate or IPC"
WAITS = {"computing_s": 0.01}
SENT = {"sending_s": 0.2, "narrower": "uint8", "narrower_share": 0.25}
FILLS = {"start_up_s": 10.0, "filling_s": 8.0, "epoch": 20}
STREAM = {"kind": "stream", "workers": 4}


def test_ids_are_unique_and_each_cause_has_advice_for_any_loop() -> None:
    assert max(Counter(row.id for row in CATALOG).values()) == 1
    assert {row.entry for row in CATALOG} <= {"", *entries()}
    for cause in get_args(Cause):
        *_, last = (row for row in CATALOG if cause in row.causes and (row.gain or not row.changes))
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
        # ten times the batch, but few bytes
        ("CPU", {"asked_bytes": 5e4, "batch_bytes": 10}, "precompute"),
        # many readers need dozens of reads for a file, so only a wait proves that opening is slow
        ("storage", {**WAITS, "read_calls": 3200.0, "batch_size": 32}, "open-once"),
        ("storage", {**WAITS, "read_calls": 3200.0, "asked_bytes": 5e7}, "read-less"),
        ("CPU", {"read_calls": 3200.0, "batch_size": 32}, "precompute"),
        ("CPU", {"pool_threads": 4, "pool_s": 0.3}, "one-thread"),
        ("CPU", {"pool_threads": 4, "pool_s": 0.02}, "precompute"),
        ("CPU", {"pool_threads": 4, "pool_s": 0.3, "one_thread_gain": 1.1}, "precompute"),
        ("CPU", {"read_calls": 32.0, "batch_size": 32}, "precompute"),
        (IPC, {"sending_s": 0.2, "objects": 2000, "batch_size": 32}, "one-array-per-field"),
        (IPC, {**SENT, "batch_bytes": 10**6}, "narrow-dtype"),
        (IPC, {**SENT, "batch_bytes": 4200}, "send-less"),  # bytes are not what costs
        (IPC, {"sending_s": 0.2, "batch_bytes": 10**7}, "send-less"),
        (IPC, {"collate_s": 0.09}, "collate-arrays"),
        ("main process", {"sampling_s": 0.02, "host_s": 0.001}, "plan-batches"),
        ("main process", {"host_s": 0.02}, "rare-loss"),
        ("start-up", {"start_up_s": 10.0, "epoch": 20}, "persistent-workers"),
        ("start-up", {"start_up_s": 10.0, "epoch": 20, "loaders_made": 3}, "make-once"),
        ("start-up", {"start_up_s": 0.1, "epoch": 1}, "one-loop"),
        ("start-up", {**FILLS, "kind": "stream"}, "fill-once"),
        ("start-up", FILLS, "persistent-workers"),
    ):
        found = recommend(hungry(**figures), cause, [])
        assert (found.id, (found.gain or 1) >= 1) == (advice, True), cause


def test_the_called_function_selects_the_advice() -> None:
    for call, library, share, figures, advice in (
        ("os.listdir", "", 0.8, {}, "list-once"),
        ("self.folder.glob", "pathlib", 0.5, {}, "list-once"),
        ("os.listdir", "", 0.2, {}, "precompute"),
        ('self.names["listdir"]', "", 0.8, {}, "precompute"),  # text of a line is no call
        ('self.table["run"] == run', "pandas", 0.8, {}, "filter-once"),
        ("pandas.read_csv", "pandas", 0.8, {"kind": "stream"}, "precompute"),  # once per shard
        ("np.load", "zipfile", 0.9, {}, "decompress-less"),
        ("h5py.File", "h5py", 0.5, {}, "open-once"),
        ("h5py.File", "h5py", 0.4, {"asked_bytes": 6e6}, "open-once"),  # of the file's headers
        ("Image.open(path).convert", "PIL", 0.9, {"asked_bytes": 9e6}, "smaller-images"),
        ("cv2.imread", "", 0.9, {}, "precompute"),  # images of about the size of a batch
        ("tokenizer.encode", "tokenizers", 0.9, {}, "precompute"),
        ("time.sleep", "", 0.9, WAITS, "wait-less"),
        ("time.sleep", "", 0.9, {**WAITS, "asked_bytes": 1e6}, "local-copy"),  # a slow storage
        ("time.sleep", "", 0.9, {"workers": 8, "computing_s": 0.04, "cores": 1}, "precompute"),
    ):
        line = HotLine("fetch", "data.py", 1, "Events.__getitem__", call, share, library)
        m = hungry(lines={"fetch": (line,)}, **figures)
        finding = recommend(m, judge(m), [])
        assert finding.id == advice, call
        assert "sleep" not in finding.change
        assert finding.lines == (line,)
        if advice not in ("precompute", "local-copy", "open-once"):
            assert "(data.py:1)" in finding.change, call
