import multiprocessing
from pathlib import Path

import pytest

from course_utils.hardware.gpu import get_accelerator
from course_utils.stories.augmenting import BEGUN, load_ms, pace_ms, photo_loader
from course_utils.teaching.notebook import data_path
from keepfed.loaders.images import Jpegs
from keepfed.measure.spans import Span
from keepfed.measure.trace import Trace, record


@pytest.mark.slow
def test_every_epoch_records_worker_spans(
    start_method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("course_utils.stories.augmenting.STEPS", 8)
    multiprocessing.set_start_method(start_method, force=True)
    loader, gpu = photo_loader(Jpegs(Path(data_path("images", "S")))), get_accelerator(emulate=True)
    for _ in range(2):
        with record() as trace:
            for images, _ in trace.batches(loader):
                gpu.step(gpu.upload(images), ms=2).item()
        assert {"worker 0", "worker 1"} <= {*trace.lanes}
        assert load_ms(trace) > 0
        assert trace.summary().complete


def test_pace_skips_first_steps_and_load_is_worker_time() -> None:
    trace = Trace(clock=lambda: 0)
    for batch in range(20):
        end = 1_000_000 * (batch + 4 * max(0, batch - BEGUN))
        trace.add(Span("gpu", "compute", end - 10, end - 5, batch))
        trace.add(Span("gpu", "compute", end - 5, end, batch))
        trace.add(Span(f"worker {batch % 2}", "decode", 0, 4_000_000, batch))
        trace.add(Span(f"worker {batch % 2}", "collate", 4_000_000, 6_000_000, batch))
        trace.add(Span("main", "wait", 0, 9_000_000, batch))
    assert (pace_ms(trace), load_ms(trace)) == (5, 6)
