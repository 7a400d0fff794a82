"""The emulated device and the model are two programs that must come to the same figures."""

from itertools import product

import pytest
import torch

from course_utils.measure.simulate import Pipeline, simulate
from course_utils.measure.trace import record
from tests.hardware.fake_device import fake_device

STEPS = 12
LOOPS = [
    Pipeline(read_ms=read, copy_ms=4, step_ms=step, steps=STEPS, **loop)
    for read, step, loop in product(
        (5, 20, 60),
        (20, 50),
        (
            {},
            {"sync": False},
            {"pinned": True},
            {"pinned": True, "sync": False},
            {"pinned": True, "overlap": True},
            {"pinned": True, "overlap": True, "sync": False},
        ),
    )
]


def measure(pipeline):
    """Run the loop on the emulated device, on a clock that the loading moves on."""
    gpu, clock = fake_device(step_ms=pipeline.step_ms)
    megabytes = pipeline.copy_ms * (2 if pipeline.pinned else 1)
    batch = torch.zeros(round(megabytes * 1e6), dtype=torch.uint8)

    def load():
        for _ in range(pipeline.steps):
            clock.work(pipeline.read_ms)
            yield batch

    with record(clock=clock) as trace:
        batches = trace.batches(load())
        run = overlapped if pipeline.overlap else serial
        run(gpu, gpu.pinned(batches) if pipeline.pinned else batches, pipeline)
    return trace


def serial(gpu, batches, pipeline):
    for batch in batches:
        loss = gpu.step(gpu.upload(batch, non_blocking=pipeline.pinned))
        if pipeline.sync:
            loss.item()


def overlapped(gpu, batches, pipeline):
    copies, ahead = gpu.Stream(), None
    for batch in batches:
        with gpu.stream(copies):
            uploaded = gpu.upload(batch, non_blocking=True)
            done = copies.record_event()
        if ahead:
            step(gpu, *ahead, pipeline)
        ahead = uploaded, done
    step(gpu, *ahead, pipeline)


def step(gpu, uploaded, done, pipeline):
    gpu.current_stream().wait_event(done)
    uploaded.record_stream(gpu.current_stream())
    loss = gpu.step(uploaded)
    if pipeline.sync:
        loss.item()


def name(pipeline):
    loop = [flag for flag in ("pinned", "overlap", "sync") if getattr(pipeline, flag)]
    return "-".join([f"read {pipeline.read_ms}", f"step {pipeline.step_ms}", *loop])


@pytest.mark.parametrize("pipeline", LOOPS, ids=name)
def test_the_device_and_the_model_agree(pipeline):
    predicted, measured = simulate(pipeline), measure(pipeline)
    assert measured.summary().utilisation == pytest.approx(
        predicted.summary().utilisation, abs=0.001
    )
    for lane in ("copy", "gpu"):
        assert spans(measured, lane) == spans(predicted, lane)


def spans(trace, lane):
    return [(s.stage, s.start_ns, s.end_ns, s.batch) for s in trace.spans if s.lane == lane]
