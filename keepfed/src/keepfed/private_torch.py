"""List the private names of torch that this package uses, in one place.

torch may rename or remove these names in any release. No name is looked up when a module of this
package is imported, and `without` says what happens if a name does not exist. Importing this module
does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Literal, NamedTuple

OLDEST = "2.4"  # the oldest torch that the tests run with
Owner = Literal["torch", "a DataLoader", "its iterator", "its iterator with workers"]
REFUSED = "`listen` raises an error that names it, and `keepfed watch` runs the loop unwatched"


class Private(NamedTuple):
    """One private name: its owner, the path from there, the purpose, and the fallback."""

    owner: Owner
    name: str
    use: str
    without: str = REFUSED


_FETCH = "utils.data._utils.fetch"
_LOOP = "utils.data.dataloader"

PRIVATE = (
    Private("torch", f"{_FETCH}._MapDatasetFetcher.fetch", "a worker begins a batch"),
    Private("torch", f"{_FETCH}._IterableDatasetFetcher.fetch", "a worker begins a batch"),
    Private("torch", f"{_LOOP}._SingleProcessDataLoaderIter", "the other names are checked on one"),
    Private(
        "torch",
        f"{_LOOP}._BaseDataLoaderIter.__next__",
        "`keepfed watch` times it",
        "`keepfed watch` prints one line, and the program runs unwatched",
    ),
    Private(
        "torch",
        f"{_LOOP}._MultiProcessingDataLoaderIter._shutdown_workers",
        "ends an epoch at once",
        "the epoch ends when Python frees its iterator",
    ),
    Private(
        "torch",
        "utils.data._utils.signal_handling._set_SIGCHLD_handler",
        "a worker that dies between two cells does not end the kernel",
        "`cu.ready` raises AttributeError",
    ),
    Private(
        "torch",
        "UntypedStorage._new_shared",
        "reserves the shared memory of a cache without a copy",
        "`SampleCache` copies zeros into shared memory, so all pages are occupied at once",
    ),
    Private("torch", "cuda._sleep", "keeps a GPU busy", "busy work on a GPU raises AttributeError"),
    Private("a DataLoader", "_get_iterator", "recording begins when the iterator is made"),
    Private("a DataLoader", "_iterator", "persistent workers keep their listeners"),
    Private("its iterator", "_num_yielded", "persistent workers begin another epoch"),
    Private("its iterator", "_collate_fn", "finds the listeners of an iterator"),
    Private("its iterator", "_dataset_fetcher.fetch", "begins a batch without workers"),
    Private("torch", "distributed.distributed_c10d._world", "counts process groups", "counts none"),
    Private("its iterator", "_sampler_iter", "is emptied to end an epoch in order"),
    Private(
        "its iterator with workers",
        "_workers",
        "`diagnose` counts workers and their cores",
        "`diagnose` reports a loop without workers",
    ),
    Private(
        "its iterator with workers",
        "_shutdown",
        "unfinished loops are found before they are ended",
        "`cleanup_workers` ends no loop early",
    ),
)


def missing(owners: Mapping[str, Any], *, without: str | None = None) -> tuple[Private, ...]:
    """Return the names that do not exist in `owners`, which maps each `Private.owner` to an object.

    Args:
        owners: Names whose owner is not listed here are not checked.
        without: If given, check only the names with this fallback.
    """
    asked = (one for one in PRIVATE if without in (None, one.without))
    return tuple(one for one in asked if one.owner in owners and not _has(owners, one))


def _has(owners: Mapping[str, Any], one: Private) -> bool:
    try:
        attrgetter(one.name)(owners[one.owner])
    except AttributeError:
        return False
    return True
