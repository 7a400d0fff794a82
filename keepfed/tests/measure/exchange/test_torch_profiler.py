import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, TensorDataset

from keepfed.errors import KeepfedError
from keepfed.measure import kineto
from keepfed.measure.exchange import load_profile
from keepfed.measure.spans import stage
from keepfed.measure.trace import record

NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def host(name: str, start: float, end: float, *, cat: str = "user_annotation", **args: Any) -> Any:
    """Return an event of the main thread. Times are microseconds."""
    place = {"ph": "X", "cat": cat, "name": name, "pid": 77, "tid": 77}
    return {**place, "ts": 5e9 + start, "dur": end - start, "args": args}


def device(name: str, start: float, end: float, launch: int, *, cat: str = "kernel") -> Any:
    """Return an event of GPU 0, with the stream as its thread."""
    return {**host(name, start, end, cat=cat, correlation=launch), "pid": 0, "tid": 7}


def call(name: str, start: float, launch: int) -> Any:
    return host(name, start, start + 5, cat="cuda_runtime", correlation=launch)


# Handmade events with the categories, names and arguments of Kineto, which writes such files. See
# libkineto/src/output_json.cpp and docs/traces/after_fix_trace.json in pytorch/kineto.
TWO_STEPS = (
    {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 5e9, "args": {"labels": "GPU"}},
    host("ProfilerStep#3", 0, 1000),
    host(NEXT, 10, 400),
    call("cudaMemcpyAsync", 410, 1),
    device("Memcpy HtoD (Pinned -> Device)", 420, 500, 1, cat="gpu_memcpy"),
    host("aten::linear", 510, 540, cat="cpu_op"),
    call("cudaLaunchKernel", 520, 2),
    device("ampere_sgemm_128x64_tn", 530, 700, 2),
    call("cudaLaunchKernel", 550, 3),
    device("Memset (Device)", 705, 706, 3, cat="gpu_memset"),
    call("cudaMemcpyAsync", 560, 4),
    device("Memcpy DtoD (Device -> Device)", 800, 900, 4, cat="gpu_memcpy"),
    {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 4, "pid": 77, "tid": 77, "ts": 5e9 + 560},
    call("cudaLaunchKernel", 990, 5),
    host("ProfilerStep#4", 1000, 2000),
    host(NEXT, 1010, 1100),
    device("vectorized_elementwise_kernel", 1150, 1200, 5),
    call("cudaLaunchKernel", 1300, 6),
    device("vectorized_elementwise_kernel", 1310, 1400, 6),
    device("ProfilerStep#4", 1310, 1400, 0, cat="gpu_user_annotation"),
)
ON_A_GPU = [
    ("main", "wait", 0, 0),
    ("copy", "transfer", 410, 0),
    ("gpu", "compute", 520, 0),  # a gap of 5 µs is not idle time
    ("gpu", "compute", 790, 0),
    ("main", "wait", 1000, 1),
    ("gpu", "compute", 1140, 0),  # launched by the first step, but executed in the second
    ("gpu", "compute", 1300, 1),
]
ON_A_CPU = (
    host(NEXT.replace("Multi", "Single"), 0, 100),
    host("aten::stack", 10, 30, cat="cpu_op"),
    host("aten::mm", 400, 500, cat="cpu_op"),
)


def test_events_become_lanes_with_batch_indices(tmp_path: Path) -> None:
    for events, spans in (
        (TWO_STEPS, ON_A_GPU),
        (ON_A_CPU, [("main", "wait", 0, 0), ("main", "compute", 100, 0)]),
    ):
        (tmp_path / "profile.json").write_text(json.dumps({"traceEvents": events}))
        trace, on_gpu = load_profile(tmp_path / "profile.json"), events is TWO_STEPS
        found = [(s.lane, s.stage, s.start_ns // 1000, s.batch) for s in trace.spans]
        assert found == spans, events
        assert trace.note.startswith("recorded by torch.profiler, without workers"), events
        summary = trace.summary()
        assert (summary.at_most, summary.steps) == (not on_gpu, 2 if on_gpu else 1), events
        busy = 411 / 1390 if on_gpu else 400 / 500  # µs with a kernel, and in total
        assert summary.utilization == pytest.approx(busy, abs=0.01), events
        # A schedule skipped the earlier steps, so the first wait is not a start-up.
        assert (summary.start_up_s == 0) == on_gpu, events


def test_recording_shows_the_kernels_of_its_own_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    now_us, fails = 0, False

    class Profiler:
        def __init__(self, *, activities: list[ProfilerActivity]) -> None:
            assert activities == [ProfilerActivity.CUDA]

        def start(self) -> None: ...

        def stop(self) -> None:
            if fails:
                raise RuntimeError("CUPTI")

        def export_chrome_trace(self, path: str) -> None:
            profile = {"baseTimeNanoseconds": 10**15, "traceEvents": TWO_STEPS}
            Path(path).write_text(json.dumps(profile))

    def clock() -> int:
        return 1000 * now_us

    def load() -> Iterator[list[int]]:
        nonlocal now_us
        for now_us in (400, 1100):  # noqa: B007
            yield [1]

    monkeypatch.setattr(kineto.time, "time_ns", lambda: 10**15 + 5 * 10**12 + clock())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for there, problem in (([], "needs a CUDA device"), ([ProfilerActivity.CUDA], "already runs")):
        monkeypatch.setattr(torch.profiler, "supported_activities", lambda there=there: there)
        with profile(activities=[ProfilerActivity.CPU]), pytest.raises(KeepfedError, match=problem):
            kineto.start_profiler()
    monkeypatch.setattr(torch.profiler, "profile", Profiler)
    for fails, note in ((False, "kernels of torch.profiler"), (True, "no kernels")):
        now_us = 10
        with record(clock=clock, kernels=True) as trace:
            for _ in trace.batches(load()):
                with stage("transfer", lane="copy"):  # the profiler's copies replace this one
                    now_us = 1010 if now_us == 400 else 2000
        rows = [(s.lane, s.stage, s.start_ns // 1000 - 10, s.batch) for s in trace.spans]
        spans = [row for row in rows if row[0] != "main"]
        assert (spans == [span for span in ON_A_GPU if span[0] != "main"]) != fails, spans
        assert (trace.note.startswith(note), trace.summary().at_most) == (True, fails)


@pytest.mark.slow
def test_new_profile_has_waiting_and_computing(tmp_path: Path) -> None:
    numbers, model = TensorDataset(torch.randn(96, 64)), torch.nn.Linear(64, 64)
    steps = schedule(wait=1, warmup=1, active=4, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps, acc_events=True) as profiler:
        for (batch,) in DataLoader(numbers, batch_size=16, num_workers=2):
            with record_function("train"):
                model(batch).sum().backward()
            profiler.step()
    profiler.export_chrome_trace(str(tmp_path / "fresh.json.gz"))
    trace = load_profile(tmp_path / "fresh.json.gz")
    assert trace.lanes == ["main"]
    for name in ("wait", "compute"):
        assert {s.batch for s in trace.spans if s.stage == name} >= {0, 1, 2, 3}
