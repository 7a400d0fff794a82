"""The emulated device and the simulator are two programs that must give the same figures."""

from itertools import chain, product

import pytest
import torch

from keepfed.measure.simulate import Pipeline, simulate
from keepfed.measure.trace import record
from tests.hardware.fake_device import fake_device

WAYS = [{}, {"pinned": True}, {"pinned": True, "overlap": True}]
LOOPS = [
    Pipeline(read_ms=read, copy_ms=4, step_ms=step, steps=12, sync=sync, **way)
    for (read, step), sync, way in product([(5, 20), (20, 20), (60, 20)], [True, False], WAYS)
]


def measure(pipeline):
    gpu, clock = fake_device(step_ms=pipeline.step_ms)
    megabytes = pipeline.copy_ms * (2 if pipeline.pinned else 1)
    batch = torch.zeros(round(megabytes * 1e6), dtype=torch.uint8)

    def load():
        for _ in range(pipeline.steps):
            clock.work(pipeline.read_ms)
            yield batch

    with record(clock=clock) as trace:
        batches = trace.batches(load())
        copied = overlapped if pipeline.overlap else serial
        for uploaded in copied(gpu, gpu.pinned(batches) if pipeline.pinned else batches):
            loss = gpu.step(uploaded)
            if pipeline.sync:
                loss.item()
    return trace


def serial(gpu, batches):
    for batch in batches:
        yield gpu.upload(batch, non_blocking=True)


def overlapped(gpu, batches):
    copies, ahead = gpu.Stream(), None
    for batch in chain(batches, [None]):
        before, ahead = ahead, None
        if batch is not None:
            with gpu.stream(copies):
                ahead = gpu.upload(batch, non_blocking=True), copies.record_event()
        if before:
            uploaded, done = before
            gpu.current_stream().wait_event(done)
            uploaded.record_stream(gpu.current_stream())
            yield uploaded


def test_device_and_model_agree():
    for pipeline in LOOPS:
        predicted, measured = simulate(pipeline), measure(pipeline)
        used, expected = (trace.summary().utilization for trace in (measured, predicted))
        assert used == pytest.approx(expected, abs=0.001), pipeline
        for lane in ("copy", "gpu"):
            assert spans(measured, lane) == spans(predicted, lane), pipeline


def spans(trace, lane):
    return [(s.stage, s.start_ns, s.end_ns, s.batch) for s in trace.spans if s.lane == lane]
