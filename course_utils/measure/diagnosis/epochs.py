"""Run a loader for as long as one wants to look, and leave it as it was found."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader


def prefetched(loader: Iterable[Any]) -> int:
    """Return how many batches `loader` may have ready when the first one is taken."""
    if not isinstance(loader, DataLoader) or not loader.num_workers:
        return 0
    return int(loader.num_workers) * int(loader.prefetch_factor or 2)


def length(loader: Iterable[Any]) -> int | None:
    """Return the number of batches of an epoch, None if the loader does not know."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except TypeError:
        return None


def end(batches: Iterator[Any] | None, *, orderly: bool = True) -> None:
    """End an epoch early, with its workers unless they are persistent.

    A worker that is stopped while a batch of its lies in the queue can die with a message on
    stderr, so an orderly end asks for no more and takes what was asked for.
    """
    if batches is None:
        return
    if orderly and hasattr(batches, "_sampler_iter"):
        batches._sampler_iter = iter(())
        for _ in batches:
            pass
    elif hasattr(batches, "_shutdown_workers"):
        batches._shutdown_workers()
    elif hasattr(batches, "close"):
        batches.close()


@contextmanager
def untouched(loader: Iterable[Any], *, timeout_s: float) -> Iterator[None]:
    """Leave `loader` and the random numbers of this process as they were.

    Inside, the loader starts workers of its own: persistent ones that run already are put aside. A
    loader that would wait for ever for a batch gives up after `timeout_s`.
    """
    with ExitStack() as stack:
        stack.enter_context(_same_random_numbers(loader))
        if isinstance(loader, DataLoader):
            stack.enter_context(_same_attributes(loader))
            loader._iterator = None
            if loader.num_workers and not loader.timeout:
                loader.timeout = timeout_s
        yield


@contextmanager
def _same_attributes(loader: DataLoader[Any]) -> Iterator[None]:
    before = dict(vars(loader))
    try:
        yield
    finally:
        ours = getattr(loader, "_iterator", None)
        vars(loader).clear()
        vars(loader).update(before)
        if ours is not None:
            end(ours, orderly=False)


@contextmanager
def _same_random_numbers(loader: Iterable[Any]) -> Iterator[None]:
    generators = _generators(loader)
    states = [generator.get_state() for generator in generators]
    ours, numpy_state = random.getstate(), np.random.get_state()
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if started else ()
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(ours)
            np.random.set_state(numpy_state)
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)


def _generators(loader: Iterable[Any]) -> list[torch.Generator]:
    """Return the generators that the loader and its samplers hold."""
    holders: list[Any] = [loader]
    for name in ("sampler", "batch_sampler"):
        with suppress(AttributeError):
            holders.append(getattr(loader, name))
    holders += [getattr(holder, "sampler", None) for holder in holders[1:]]
    found = (getattr(holder, "generator", None) for holder in holders)
    unique = {id(one): one for one in found if isinstance(one, torch.Generator)}
    return list(unique.values())
