"""Keep GPUs fed: measure a training loop, find what it waits for, and load faster.

Each public name is loaded when it is first used, so importing this package does not import torch.
"""

from typing import TYPE_CHECKING, Any

from keepfed.errors import required

__version__ = "1.0.0"

if TYPE_CHECKING:  # the same names, for readers and type checkers
    from keepfed.auditing.api import audit as audit
    from keepfed.loaders.prefetch import CudaPrefetcher as CudaPrefetcher
    from keepfed.loaders.prefetch import ThreadPrefetcher as ThreadPrefetcher
    from keepfed.loaders.staging import stage_to_shm as stage_to_shm
    from keepfed.measure.diagnosis import diagnose as diagnose
    from keepfed.measure.diagnosis import headroom as headroom
    from keepfed.measure.simulate import Pipeline as Pipeline
    from keepfed.measure.simulate import simulate as simulate
    from keepfed.measure.spans import stage as stage
    from keepfed.measure.trace import record as record
    from keepfed.measure.watch import watch as watch

_NAMES = {
    "auditing.api": ["audit"],
    "loaders.prefetch": ["CudaPrefetcher", "ThreadPrefetcher"],
    "loaders.staging": ["stage_to_shm"],
    "measure.diagnosis": ["diagnose", "headroom"],
    "measure.simulate": ["Pipeline", "simulate"],
    "measure.spans": ["stage"],
    "measure.trace": ["record"],
    "measure.watch": ["watch"],
}
_HOME = {name: home for home, names in _NAMES.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'keepfed' has no attribute {name!r}")
    value = getattr(required(f"keepfed.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
