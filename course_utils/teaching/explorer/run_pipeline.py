"""Run for real what `simulate` predicts: the same `Pipeline`, the same kind of `Trace`.

Real worker processes read from emulated storage, really use the processor for the time that
decoding, transforming and collating take, and feed an emulated device. So the two traces may differ
only where the model is wrong.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from course_utils.hardware.gpu import PRESETS, EmulatedAccelerator
from course_utils.hardware.storage import UNLIMITED, SlowFileSystem, slow_storage
from course_utils.measure.simulate import CPU_STAGES, Pipeline
from course_utils.measure.spans import stage
from course_utils.measure.trace import Trace, record

Batch = dict[str, torch.Tensor]
FILE = "batches.bin"


def run_pipeline(pipeline: Pipeline) -> Trace:
    """Return the trace of a real run of `pipeline`, which takes as long as it says."""
    with TemporaryDirectory() as folder:
        loader = DataLoader(
            TimedBatches(pipeline, _storage(pipeline, Path(folder))),
            batch_size=None,  # an item of the dataset is a whole batch
            num_workers=pipeline.num_workers,
            prefetch_factor=pipeline.prefetch_factor if pipeline.num_workers else None,
        )
        gpu = _device(pipeline)
        loop = _overlapped_loop if pipeline.overlap else _serial_loop
        with record(label="measured") as trace:
            batches: Iterable[Batch] = trace.batches(loader, ids="sample")
            loop(gpu, gpu.pinned(batches) if pipeline.pinned else batches, pipeline)
            gpu.synchronize()
    return trace


class TimedBatches(Dataset[Batch]):
    """Batches that take the time to load which a pipeline gives them."""

    def __init__(self, pipeline: Pipeline, storage: SlowFileSystem):
        """Keep what a worker needs: a description and a handle on the storage."""
        self.pipeline, self.storage = pipeline, storage

    def __len__(self) -> int:
        """Return the number of batches."""
        return self.pipeline.steps

    def __getitem__(self, index: int) -> Batch:
        """Return batch `index`: "sample" holds the ids of its samples, int64 of (batch_size,)."""
        first = index * self.pipeline.batch_size
        if self.pipeline.read_ms:
            with stage("read"), self.storage.open(FILE) as file:
                file.seek(index)
                file.read(1)
        for name in CPU_STAGES:
            if duration_ms := getattr(self.pipeline, f"{name}_ms"):
                with stage(name):
                    use_cpu(duration_ms)
        return {"sample": torch.arange(first, first + self.pipeline.batch_size)}


def use_cpu(duration_ms: float) -> None:
    """Compute until this thread has had the processor for `duration_ms`."""
    end = time.thread_time_ns() + round(duration_ms * 1e6)
    while time.thread_time_ns() < end:
        pass


def _serial_loop(gpu: EmulatedAccelerator, batches: Iterable[Batch], pipeline: Pipeline) -> None:
    for batch in batches:
        loss = gpu.step(gpu.upload(batch, non_blocking=pipeline.pinned))
        if pipeline.sync:
            loss.item()


def _overlapped_loop(
    gpu: EmulatedAccelerator, batches: Iterable[Batch], pipeline: Pipeline
) -> None:
    """Copy on a stream of its own, one batch ahead of the step that needs it."""
    copy_stream = gpu.Stream()

    def copy(batch: Batch) -> tuple[Any, Any]:
        with gpu.stream(copy_stream):
            on_device, copied = gpu.upload(batch, non_blocking=True), gpu.Event()
            copied.record()
        return on_device, copied

    def step(on_device: Any, copied: Any) -> None:
        gpu.current_stream().wait_event(copied)
        on_device["sample"].record_stream(gpu.current_stream())
        loss = gpu.step(on_device)
        if pipeline.sync:
            loss.item()

    ahead = None
    for batch in batches:
        copied_now = copy(batch)
        if ahead:
            step(*ahead)
        ahead = copied_now
    if ahead:
        step(*ahead)


def _device(pipeline: Pipeline) -> EmulatedAccelerator:
    """Return a device whose bus takes `copy_ms` for a batch, from whatever memory it comes."""
    batch_gb = pipeline.batch_size * torch.int64.itemsize / 1e9
    gb_s = batch_gb / (pipeline.copy_ms / 1e3) if pipeline.copy_ms else math.inf
    preset = replace(PRESETS["RTX 3090"], pinned_gb_s=gb_s, pageable_gb_s=gb_s)
    return EmulatedAccelerator(preset, step_ms=pipeline.step_ms)


def _storage(pipeline: Pipeline, folder: Path) -> SlowFileSystem:
    """Return a storage that answers a request after `read_ms`, to `storage_streams` at a time."""
    (folder / FILE).write_bytes(bytes(pipeline.steps))
    return slow_storage(
        folder,
        replace(
            UNLIMITED,
            request_ms=pipeline.read_ms,
            requests_at_once=pipeline.storage_streams or max(pipeline.num_workers, 1),
        ),
    )
