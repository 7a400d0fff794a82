import multiprocessing
from pathlib import Path

import pytest

from course_utils.hardware.gpu import get_accelerator
from course_utils.stories.augmenting import load_ms, photo_loader
from course_utils.teaching.notebook import data_path
from keepfed.loaders.images import Jpegs
from keepfed.measure.trace import record


@pytest.mark.slow
def test_epochs_record_worker_spans(start_method: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
