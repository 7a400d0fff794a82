"""Explore how loading strategies keep a GPU busy: predict every case, measure any case.

box = explorer()
box             # choose strategy and times in the picture; works without a kernel
box.measure()   # run the chosen case, and show the measurement below the prediction
box.au          # predicted share of time with a busy GPU, after the first step
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from course_utils.hardware.gpu import PRESETS, EmulatedAccelerator
from course_utils.hardware.storage import UNLIMITED, SlowFileSystem, slow_storage
from keepfed.formatting import percent
from keepfed.loaders.prefetch import CudaPrefetcher
from keepfed.measure.picture import Control, Picture, TimelineGrid, facts, key, states
from keepfed.measure.simulate import CPU_STAGES, Pipeline, simulate
from keepfed.measure.spans import stage
from keepfed.measure.trace import Trace, record

Batch = dict[str, torch.Tensor]

FILE = "batches.bin"
HOURS_PER_MONTH = 730  # 365 days / 12 * 24 h, rounded
EUR_PER_HOUR = 2.0  # assumed price of a GPU
COST = f"Idle cost of a month ({HOURS_PER_MONTH} h)"
FIRST_STEPS = 12  # in the first view, because gaps and steps of a whole run look like one bar
SHARES = {"read_ms": 0.6, "decode_ms": 0.25, "transform_ms": 0.1, "collate_ms": 0.05}
HOST_MS = 2.0  # main process, per batch, on two cores; from benchmarks/model.py
COPY_MS = 8.0  # from pageable memory; half of it from pinned memory

# Each strategy includes the improvements of the one before it.
STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "naive": {"num_workers": 0},
    "workers": {"prefetch_factor": 1},
    "prefetch": {"prefetch_factor": 4},
    "pinned": {"prefetch_factor": 4, "pinned": True},
    "CUDA prefetch": {"prefetch_factor": 4, "pinned": True, "overlap": True},
    "streaming": {"prefetch_factor": 4, "pinned": True, "overlap": True},
}


CONTROLS = (
    Control("strategy", "Strategy", tuple(STRATEGIES)),
    Control("load", "Load a batch (ms)", (20, 40, 80, 160)),
    Control("step", "Step time (ms)", (20, 50, 100)),
    Control("workers", "Workers", (1, 2, 4)),
)


class Explorer(TimelineGrid):
    """Predicted timelines of all states of the controls; `state` is the chosen one."""

    def __init__(self, *, start: Mapping[str, str | int] | None = None):
        """Simulate every state once.

        Args:
            start: Initial state, e.g. `{"strategy": "workers", "load": 80}`. Missing controls start
                in the middle.
        """
        pictures = {}
        for state in states(CONTROLS):
            trace, name = _predict(_pipeline(state)), str(state["strategy"])
            figures = _facts(trace, state)
            pictures[key(CONTROLS, state)] = Picture([trace], [name], figures, steps=FIRST_STEPS)
        middle = {c.name: c.options[len(c.options) // 2] for c in CONTROLS if c.name != "strategy"}
        super().__init__(CONTROLS, pictures, state={**middle, **(start or {})})

    @property
    def idle(self) -> float:
        """Predicted idle share of the chosen state."""
        return _predict(_pipeline(self.state)).summary().idle

    @property
    def au(self) -> float:
        """Predicted busy share after the first step, including the time of the main process."""
        return simulate(replace(_pipeline(self.state), host_ms=HOST_MS)).summary().au

    def measure(self) -> Trace:
        """Run the chosen state with real workers, and draw it below the prediction.

        The new prediction includes two times that the model usually leaves out: the measured
        start-up of the workers, and the time of the main process.
        """
        state = dict(self.state)
        pipeline = _pipeline(state)
        measured = run_pipeline(pipeline)
        start_s = [trace.summary().start_up_s for trace in (measured, simulate(pipeline))]
        late_ms = 1e3 * max(0.0, start_s[0] - start_s[1])
        predicted = simulate(replace(pipeline, start_up_ms=late_ms, host_ms=HOST_MS))
        names = [f"{state['strategy']}, predicted", "measured"]
        shares = (percent(trace.summary().au) for trace in (predicted, measured))
        busy = "{} predicted, {} measured".format(*shares)
        figures = {"GPU busy after the first step": busy, **_facts(measured, state)}
        self.put(state, Picture([predicted, measured], names, facts=figures))
        return measured


explorer = Explorer  # called like the other functions of a notebook


def _facts(trace: Trace, state: Mapping[str, Any]) -> dict[str, str]:
    summary = trace.summary()
    naive = _predict(_pipeline({**state, "strategy": "naive"})).summary().samples_per_s
    per_month = EUR_PER_HOUR * HOURS_PER_MONTH
    return {
        **{name: value for name, value in facts(trace).items() if name.startswith("GPU")},
        "Speed": f"{summary.samples_per_s / naive:.1f} times naive",
        COST: f"{per_month * summary.idle:,.0f} of {per_month:,.0f} €",
    }


@cache  # a notebook shows the explorer more than once, and simulating every state takes seconds
def _predict(pipeline: Pipeline) -> Trace:
    return simulate(pipeline)


def _pipeline(state: Mapping[str, Any]) -> Pipeline:
    strategy = str(state["strategy"])
    common = Pipeline(
        **{stage: share * state["load"] for stage, share in SHARES.items()},
        copy_ms=COPY_MS,
        step_ms=state["step"],
        steps=60,
        num_workers=state["workers"],
        cores=2,
        jitter=0.4,
    )
    chosen = replace(common, **STRATEGIES[strategy])
    if chosen.pinned:
        chosen = replace(chosen, copy_ms=COPY_MS / 2)
    if strategy == "streaming":  # whole shards in one long request, not one request per sample
        chosen = replace(chosen, read_ms=chosen.read_ms / 4)
    return chosen


def run_pipeline(pipeline: Pipeline) -> Trace:
    """Run a pipeline with the times that `simulate` assumes, and return its trace.

    Real workers read from emulated storage, use the CPU for the time that decoding, transforming
    and collating take, and feed an emulated device. The trace therefore differs from the simulation
    only if the model is wrong.
    """
    with TemporaryDirectory() as folder:
        loader = DataLoader(
            TimedBatches(pipeline, _storage(pipeline, Path(folder))),
            batch_size=None,  # an item of the dataset is a whole batch
            num_workers=pipeline.num_workers,
            prefetch_factor=pipeline.prefetch_factor if pipeline.num_workers else None,
        )
        gpu = _device(pipeline)
        with record(label="measured") as trace:
            batches: Iterable[Batch] = trace.batches(loader, ids="sample")
            if pipeline.pinned:
                batches = gpu.pinned(batches)
            if pipeline.overlap:
                uploaded: Iterable[Any] = CudaPrefetcher(batches, gpu)
            else:
                uploaded = (gpu.upload(one, non_blocking=pipeline.pinned) for one in batches)
            for batch in uploaded:
                loss = gpu.step(batch)
                if pipeline.sync:
                    loss.item()
            gpu.synchronize()
    return trace


class TimedBatches(Dataset[Batch]):
    """Dataset whose batches take as long to load as a pipeline specifies."""

    def __init__(self, pipeline: Pipeline, storage: SlowFileSystem):
        """Store the description of the pipeline and a handle of the storage."""
        self.pipeline, self.storage = pipeline, storage

    def __len__(self) -> int:
        return self.pipeline.steps

    def __getitem__(self, index: int) -> Batch:
        """Return batch `index`: "sample" contains its sample IDs, int64 of shape (batch_size,)."""
        first = index * self.pipeline.batch_size
        if self.pipeline.read_ms:
            with stage("read"), self.storage.open(FILE) as file:
                file.seek(index)
                file.read(1)
        for name in CPU_STAGES:
            if duration_ms := getattr(self.pipeline, f"{name}_ms"):
                with stage(name):
                    use_cpu(duration_ms)
        samples = torch.arange(first, first + self.pipeline.batch_size, device="cpu")
        return {"sample": samples}


def use_cpu(duration_ms: float) -> None:
    """Compute until this thread has used `duration_ms` of CPU time."""
    end = time.thread_time_ns() + round(duration_ms * 1e6)
    while time.thread_time_ns() < end:
        pass


def _device(pipeline: Pipeline) -> EmulatedAccelerator:
    """Return a device whose bus takes `copy_ms` per batch, from pinned or pageable memory."""
    batch_gb = pipeline.batch_size * torch.int64.itemsize / 1e9
    gb_s = batch_gb / (pipeline.copy_ms / 1e3) if pipeline.copy_ms else math.inf
    preset = replace(PRESETS["RTX 3090"], pinned_gb_s=gb_s, pageable_gb_s=gb_s)
    return EmulatedAccelerator(preset, step_ms=pipeline.step_ms)


def _storage(pipeline: Pipeline, folder: Path) -> SlowFileSystem:
    """Return a storage with `storage_streams` parallel requests of `read_ms` each."""
    (folder / FILE).write_bytes(bytes(pipeline.steps))
    return slow_storage(
        folder,
        replace(
            UNLIMITED,
            request_ms=pipeline.read_ms,
            requests_at_once=pipeline.storage_streams or max(pipeline.num_workers, 1),
        ),
    )
