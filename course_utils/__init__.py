"""Keep the GPUs fed: measure, emulate and mend data loading.

The public names are loaded when they are first used, so that importing the package needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from course_utils.version import __version__ as __version__

if TYPE_CHECKING:
    from course_utils.hardware.gpu import get_accelerator
    from course_utils.hardware.storage import slow_storage
    from course_utils.measure.diagnosis import diagnose
    from course_utils.measure.simulate import Pipeline, simulate
    from course_utils.measure.spans import stage
    from course_utils.measure.trace import record
    from course_utils.teaching.exercise import check
    from course_utils.teaching.explorer import explorer
    from course_utils.teaching.notebook import (
        cleanup_workers,
        data_path,
        predict,
        ready,
        reveal,
        start_workers,
    )

__all__ = [
    "Pipeline",
    "check",
    "cleanup_workers",
    "data_path",
    "diagnose",
    "explorer",
    "get_accelerator",
    "predict",
    "ready",
    "record",
    "reveal",
    "simulate",
    "slow_storage",
    "stage",
    "start_workers",
]

_HOME = {
    "Pipeline": "measure.simulate",
    "check": "teaching.exercise",
    "cleanup_workers": "teaching.notebook",
    "data_path": "teaching.notebook",
    "diagnose": "measure.diagnosis",
    "explorer": "teaching.explorer",
    "get_accelerator": "hardware.gpu",
    "predict": "teaching.notebook",
    "ready": "teaching.notebook",
    "record": "measure.trace",
    "reveal": "teaching.notebook",
    "simulate": "measure.simulate",
    "slow_storage": "hardware.storage",
    "stage": "measure.spans",
    "start_workers": "teaching.notebook",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'course_utils' has no attribute {name!r}")
    value = getattr(import_module(f"course_utils.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
