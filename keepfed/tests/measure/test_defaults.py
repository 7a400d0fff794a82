"""`watch` and `diagnose` work even if a script changes the defaults of torch."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from keepfed.measure.diagnosis.differential import diagnose
from keepfed.measure.watch.loop import watch
from tests.measure.datasets import Numbers


class OnCpu(DataLoader[Any]):
    """DataLoader with its own tensors on the CPU, because torch cannot read them on "meta"."""

    def _get_iterator(self) -> Any:
        with torch.device("cpu"):
            return super()._get_iterator()


@pytest.fixture
def _on_meta(new_records: None) -> Iterator[None]:
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.mark.usefixtures("_on_meta")
def test_default_device_breaks_neither_watch_nor_diagnose() -> None:
    for workers in (0, 1):
        options: Any = {"num_workers": workers, "collate_fn": sum}
        watched = watch(OnCpu(Numbers(), 4, persistent_workers=workers > 0, **options))
        assert list(watched) == [6.0, 22.0, 38.0], workers
        found = diagnose(OnCpu(Numbers(400), 4, **options), lambda batch: None, seconds=0.5)
        assert found.measurements.setting.workers == workers
