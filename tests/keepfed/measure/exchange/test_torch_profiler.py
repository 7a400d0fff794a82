import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, TensorDataset

from course_utils.paths import recording
from keepfed.measure.exchange import load_profile

NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def host(name: str, start: float, end: float, *, cat: str = "user_annotation", **args: Any) -> Any:
    """Return an event of the main thread; times are microseconds."""
    place = {"ph": "X", "cat": cat, "name": name, "pid": 77, "tid": 77}
    return {**place, "ts": 5e9 + start, "dur": end - start, "args": args}


def device(name: str, start: float, end: float, launch: int, *, cat: str = "kernel") -> Any:
    """Return an event of GPU 0, whose thread is the stream."""
    return {**host(name, start, end, cat=cat, correlation=launch), "pid": 0, "tid": 7}


def call(name: str, start: float, launch: int) -> Any:
    return host(name, start, start + 5, cat="cuda_runtime", correlation=launch)


# Written by hand with the categories, names and arguments of Kineto, the library that writes the
# file: libkineto/src/output_json.cpp and docs/traces/after_fix_trace.json in pytorch/kineto.
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
    ("gpu", "compute", 520, 0),  # a gap of 5 µs is no idle time
    ("gpu", "compute", 790, 0),
    ("main", "wait", 1000, 1),
    ("gpu", "compute", 1140, 0),  # launched by the first step, run in the second
    ("gpu", "compute", 1300, 1),
]
WITHOUT_A_LOADER = (  # a loop is cut at the steps of the profiler
    host("ProfilerStep#0", 0, 100),
    host("aten::mm", 10, 30, cat="cpu_op"),
    host("aten::inner", 12, 20, cat="cpu_op"),
    host("ProfilerStep#1", 100, 200),
    host("aten::mm", 110, 130, cat="cpu_op"),
)
WITHOUT_WORKERS = (  # what the loader computes in the main process counts as waiting
    host(NEXT.replace("Multi", "Single"), 0, 100),
    host("aten::stack", 10, 30, cat="cpu_op"),
    host("aten::mm", 400, 500, cat="cpu_op"),
)


@pytest.mark.parametrize(
    ("events", "spans"),
    [
        (TWO_STEPS, ON_A_GPU),
        (WITHOUT_A_LOADER, [("cpu", "compute", 0, 0), ("cpu", "compute", 100, 1)]),
        (WITHOUT_WORKERS, [("main", "wait", 0, 0), ("cpu", "compute", 400, 0)]),
    ],
    ids=["GPU", "without a loader", "without workers"],
)
def test_events_become_lanes_with_the_batch_they_belong_to(
    events: Any, spans: Any, tmp_path: Path
) -> None:
    (tmp_path / "profile.json").write_text(json.dumps({"traceEvents": events}))
    trace = load_profile(tmp_path / "profile.json")
    assert [(s.lane, s.stage, s.start_ns // 1000, s.batch) for s in trace.spans] == spans
    assert trace.note.startswith("recorded by torch.profiler, workers not in it")
    assert ("no GPU" in trace.note) == (events is not TWO_STEPS)
    # a schedule left the steps before out, so the first wait is one as any other
    assert (trace.summary().start_up_s == 0) == (events is not WITHOUT_WORKERS)


CUT_SHORT = gzip.compress(b'{"traceEvents": [' + bytes(range(256)) * 50)[:200]


@pytest.mark.parametrize("content", [b"no JSON", b"[]", b'{"traceEvents": []}', CUT_SHORT])
def test_a_file_that_is_no_profile_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.json holds no profile; write one with"):
        load_profile(tmp_path / "broken.json")


@pytest.mark.slow
def test_the_recorded_profile_and_a_fresh_one_have_steps_of_waiting_and_computing(
    tmp_path: Path,
) -> None:
    numbers, model = TensorDataset(torch.randn(96, 64)), torch.nn.Linear(64, 64)
    steps = schedule(wait=1, warmup=1, active=4, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps, acc_events=True) as profiler:
        for (batch,) in DataLoader(numbers, batch_size=16, num_workers=2):
            with record_function("train"):
                model(batch).sum().backward()
            profiler.step()
    profiler.export_chrome_trace(str(tmp_path / "fresh.json.gz"))
    for file in (recording("profile_cpu.json.gz"), tmp_path / "fresh.json.gz"):
        trace = load_profile(file)
        assert {*trace.lanes} == {"main", "cpu"}
        for stage in ("wait", "compute"):
            assert {s.batch for s in trace.spans if s.stage == stage} >= {0, 1, 2, 3}
