"""Keep the GPUs fed: measure, emulate and fix data loading.

Public names are imported on first use, so importing the package does not import torch.
"""

from typing import TYPE_CHECKING, Any

from course_utils.errors import INSTALL_AGAIN
from keepfed.errors import required

__version__ = "1.0.0"

if TYPE_CHECKING:  # the same names, for type checkers and editors
    from course_utils.hardware.gpu import emulated_cuda as emulated_cuda
    from course_utils.hardware.gpu import get_accelerator as get_accelerator
    from course_utils.hardware.storage import slow_storage as slow_storage
    from course_utils.teaching.exercise import check as check
    from course_utils.teaching.explorer import explorer as explorer
    from course_utils.teaching.notebook import cleanup_workers as cleanup_workers
    from course_utils.teaching.notebook import data_path as data_path
    from course_utils.teaching.notebook import predict as predict
    from course_utils.teaching.notebook import ready as ready
    from course_utils.teaching.notebook import reveal as reveal
    from keepfed import Pipeline as Pipeline
    from keepfed import diagnose as diagnose
    from keepfed import record as record
    from keepfed import simulate as simulate
    from keepfed import stage as stage
    from keepfed import watch as watch

_NOTEBOOK = ("cleanup_workers", "data_path", "predict", "ready", "reveal")
_KEEPFED = ("Pipeline", "diagnose", "record", "simulate", "stage", "watch")
_HOME = {
    "check": "course_utils.teaching.exercise",
    "emulated_cuda": "course_utils.hardware.gpu",
    "explorer": "course_utils.teaching.explorer",
    "get_accelerator": "course_utils.hardware.gpu",
    "slow_storage": "course_utils.hardware.storage",
    **dict.fromkeys(_NOTEBOOK, "course_utils.teaching.notebook"),
    **dict.fromkeys(_KEEPFED, "keepfed"),
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'course_utils' has no attribute {name!r}")
    value = getattr(required(_HOME[name], INSTALL_AGAIN), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
