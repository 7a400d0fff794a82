"""Keep the GPUs fed: measure, emulate and mend data loading.

The public names are loaded when they are first used, so that importing the package needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_utils.hardware.accelerator import get_accelerator
    from course_utils.hardware.storage import slow_storage
    from course_utils.measure.diagnose import diagnose
    from course_utils.measure.simulate import Pipeline, simulate
    from course_utils.measure.trace import record, stage
    from course_utils.paths import data_path
    from course_utils.teaching.exercise import check
    from course_utils.teaching.explorer import explorer
    from course_utils.teaching.leftovers import cleanup_workers
    from course_utils.teaching.predict import predict, reveal
    from course_utils.teaching.start import ready, start_workers

__version__ = "0.1.0"

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
    "cleanup_workers": "teaching.leftovers",
    "data_path": "paths",
    "diagnose": "measure.diagnose",
    "explorer": "teaching.explorer",
    "get_accelerator": "hardware.accelerator",
    "predict": "teaching.predict",
    "ready": "teaching.start",
    "record": "measure.trace",
    "reveal": "teaching.predict",
    "simulate": "measure.simulate",
    "slow_storage": "hardware.storage",
    "stage": "measure.trace",
    "start_workers": "teaching.start",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'course_utils' has no attribute {name!r}")
    value = getattr(import_module(f"course_utils.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
