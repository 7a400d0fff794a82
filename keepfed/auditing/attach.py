"""Patch torch so that every loop over a `DataLoader` is audited.

`keepfed audit` loads this module while torch is being imported, so it must not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


def patch(module: ModuleType) -> None:
    """Audit the loaders and iterators of a module of torch."""
    if loader := getattr(module, "StatefulDataLoader", None):
        loader._get_iterator = _audited(loader._get_iterator)
        return
    iterators, loader = module._BaseDataLoaderIter, module.DataLoader
    iterators._account = None
    iterators.__next__ = _taken(iterators.__next__)
    loader._get_iterator = _audited(loader._get_iterator)


def _audited(make: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    def get_iterator(loader: Any) -> Iterator[Any]:
        from keepfed.auditing.loops import audit_iterator

        return audit_iterator(loader, make)

    return get_iterator


def _taken(next_batch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def next_of_audited(iterator: Any) -> Any:
        if iterator._account is None:
            return next_batch(iterator)
        from keepfed.auditing.loops import next_audited

        return next_audited(iterator, next_batch)

    return next_of_audited
