"""Notify listeners about every batch of a `DataLoader`, in the process that builds it.

The hook replaces the loader's `collate_fn` and `worker_init_fn` while the iterator is created, and
restores them afterwards. The iterator and its workers keep the replacements. The dataset is
unchanged, and the hook needs no extra files or queues. It uses private names of torch: those of
`PRIVATE`, the fetchers of `torch.utils.data._utils.fetch`, and `_dataset_fetcher`, `_collate_fn`
and `_sampler_iter` of an iterator.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Subset

from keepfed.errors import KeepfedError

OLDEST = "2.4"  # the oldest torch that the tests run with
PRIVATE = "_get_iterator", "_iterator"  # of a `DataLoader`, without which no loop is followed
MAX_PARTS = 32  # parts of an object or a list that are searched for a loader


class Listener:
    """Callbacks in the process that builds a batch.

    A listener must be picklable, because every worker gets a copy.
    """

    def worker_started(self, worker_id: int) -> None:
        """Start in this process, which is a worker after its `worker_init_fn` has run."""

    def fetch_begins(self, index: Any) -> None:
        """Handle the start of a fetch. `index` is what the sampler returned for the batch."""

    def samples_made(self, samples: Any) -> None:
        """Handle the start of collating, when all samples of the batch are loaded."""

    def batch_made(self, batch: Any) -> Any:
        """Handle the end of collating, and return the batch to pass on."""
        return batch

    def failed(self, error: Exception) -> None:
        """Handle an error of this listener, which is then removed. The default raises it."""
        raise error


_PARCEL = "a batch with a report"


def attach_report(batch: Any, about: Any) -> Any:
    """Return `batch` together with `about`, for a listener that sends both from a worker.

    The result is a tuple, because pickling an object of a class would double the cost. The loader
    pins the contents of a tuple, turns it into a list, and leaves the pickled bytes alone.
    """
    return _PARCEL, batch, pickle.dumps(about)


def detach_report(received: Any) -> tuple[Any, Any]:
    """Return a batch and the report of its worker, or None if there is no report."""
    batch, about = _opened(received)
    return batch, None if about is None else pickle.loads(about)


def without_report(received: Any) -> Any:
    """Return a batch without the report of its worker."""
    return _opened(received)[0]


def _opened(received: Any) -> tuple[Any, bytes | None]:
    if isinstance(received, (tuple, list)) and len(received) == 3:
        mark, batch, about = received
        if isinstance(mark, str) and mark == _PARCEL:
            return batch, about
    return received, None


def receive_report(iterator: Any, next_batch: Callable[[Any], Any]) -> Any:
    """Return the next batch, and call `iterator._take_report` with its report, or with None.

    With `replace_next`, a loader around this one does not see the reports.
    """
    batch, report = detach_report(next_batch(iterator))
    iterator._take_report(report)
    return batch


Step = Callable[[Any, Callable[[Any], Any]], Any]  # of an iterator and its `next`


def replace_next(iterator: Any, step: Step) -> None:
    """Let `next(iterator)` return `step(iterator, next_batch)`, unless it already does."""
    kind = type(iterator)
    if not hasattr(kind, step.__name__):
        names = {"__next__": lambda self: step(self, kind.__next__), step.__name__: step}
        iterator.__class__ = type(kind.__name__, (kind,), names)


def restore_next(iterator: Any, step: Step) -> None:
    """Undo `replace_next`."""
    if step.__name__ in vars(type(iterator)):
        iterator.__class__ = type(iterator).__base__


def listen_within(
    around: Iterable[Any],
    loader: DataLoader[Any],
    listeners: Sequence[Listener],
    made: Callable[[Iterator[Any]], None],
) -> Iterator[Any]:
    """Return `iter(around)` with `listeners` on the `loader` inside it.

    `around` may create the iterator of `loader` at once or with the first batch. `made` is called
    with this iterator when it exists.
    """

    def begin(loader: DataLoader[Any]) -> Iterator[Any]:
        """Replace `loader._get_iterator` for one call."""
        del vars(loader)["_get_iterator"]
        batches = Hook(loader, listeners).begin(loader, type(loader)._get_iterator)
        made(batches)
        return batches

    if loader._iterator is None or not loader.persistent_workers:
        vars(loader)["_get_iterator"] = partial(begin, loader)
    try:
        return iter(around)
    except BaseException:
        vars(loader).pop("_get_iterator", None)
        raise


def data_loader_in(loader: Any) -> DataLoader[Any] | None:
    """Return `loader` if it is a `DataLoader`, or the first one inside it, as in a WebLoader."""
    return next(data_loaders_in(loader), None)


def data_loaders_in(loader: Any, depth: int = 3) -> Iterator[DataLoader[Any]]:
    """Yield `loader` if it is a `DataLoader`, or all those inside it.

    The loaders of Accelerate also wrap a `DataLoader`, but count as `DataLoader` themselves.
    """
    if issubclass(type(loader), DataLoader):
        yield loader
    elif depth:
        listed = isinstance(loader, (list, tuple))
        parts = loader if listed else getattr(loader, "__dict__", {}).values()
        for part in islice(parts, MAX_PARTS):
            yield from data_loaders_in(part, depth - 1)


def reads_whole_batches(loader: Any) -> bool:
    """Return whether a `DataLoader` requests all samples of a batch from its dataset at once."""
    dataset = getattr(loader, "dataset", None)
    # A Subset always has __getitems__, but loops over the samples if its dataset has none.
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return hasattr(dataset, "__getitems__")


def has_listeners(loader: DataLoader[Any]) -> bool:
    """Return whether the iterator of `loader` that is being created has listeners."""
    return isinstance(getattr(loader.collate_fn, "__self__", None), Hook)


def get_listeners(loader: DataLoader[Any]) -> Sequence[Listener]:
    """Return the listeners of the running persistent workers of `loader`."""
    collate = getattr(loader._iterator, "_collate_fn", None)
    hook = getattr(collate, "__self__", None)
    return hook.listeners if isinstance(hook, Hook) else ()


def pause(batches: Any, paused: bool) -> None:
    """Pause or resume the listeners of `batches`, an iterator without workers."""
    batches._collate_fn.__self__.paused = paused


def end(batches: Iterator[Any] | None, *, orderly: bool = True) -> None:
    """End an epoch early, and its workers too unless they are persistent.

    If a worker is stopped while one of its batches is in the queue, it can print an error message.
    An orderly end therefore requests no further batches, and reads those in flight.
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


class Hook:
    """The replacement for `collate_fn` and `worker_init_fn` of a loader.

    Listeners nest, so the first one sees each batch begin first and end last. Running persistent
    workers keep the listeners they were started with.

    Raises:
        KeepfedError: If torch is too old, or lacks a private name that the hook uses.
    """

    def __init__(self, loader: DataLoader[Any], listeners: Sequence[Listener]):
        if torch.__version__ < OLDEST:
            raise KeepfedError(f"keepfed needs torch {OLDEST} or newer, not {torch.__version__}.")
        if absent := [name for name in PRIVATE if not hasattr(loader, name)]:
            raise KeepfedError(
                f"A DataLoader of torch {torch.__version__} has no {' and no '.join(absent)}, "
                "which is needed to follow its batches. Install a newer keepfed."
            )
        self.listeners = tuple(listeners)
        self._collate, self._init = loader.collate_fn, loader.worker_init_fn
        self.paused = False

    def begin(
        self, loader: DataLoader[Any], make: Callable[[Any], Iterator[Any]] = iter
    ) -> Iterator[Any]:
        """Return `make(loader)`, whose batches notify the listeners. `loader` is unchanged."""
        try:
            loader.collate_fn = self.collate
            if loader.num_workers:
                loader.worker_init_fn = self.start_worker
            batches = make(loader)
        finally:
            loader.collate_fn, loader.worker_init_fn = self._collate, self._init
        if not loader.num_workers:
            self.follow(getattr(batches, "_dataset_fetcher", None))
        return batches

    def start_worker(self, worker_id: int) -> None:
        """Call the loader's `worker_init_fn`, then start the listeners in this process."""
        if self._init is not None:
            self._init(worker_id)
        self._notify("worker_started", worker_id)
        fetch = torch.utils.data._utils.fetch
        for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            self.follow(kind)

    def follow(self, fetcher: Any) -> None:
        """Notify the listeners when `fetcher.fetch` begins. `fetcher` may be a class."""
        fetch = getattr(fetcher, "fetch", None)
        if fetch is None:
            for listener in self.listeners:
                self._drop(listener, AttributeError("torch has no fetcher with a method fetch"))
            return

        def notifying_fetch(*args: Any) -> Any:
            if not self.paused:
                self._notify("fetch_begins", args[-1])
            return fetch(*args)

        fetcher.fetch = notifying_fetch

    def _notify(self, event: str, about: Any) -> None:
        for listener in self.listeners:
            try:
                getattr(listener, event)(about)
            except Exception as error:
                self._drop(listener, error)

    def _drop(self, listener: Listener, error: Exception) -> None:
        self.listeners = tuple(one for one in self.listeners if one is not listener)
        listener.failed(error)

    def collate(self, samples: Any) -> Any:
        """Call the loader's `collate_fn`, and notify the listeners."""
        if self.paused:
            return self._collate(samples)
        self._notify("samples_made", samples)
        batch = self._collate(samples)
        for listener in reversed(self.listeners):
            try:
                batch = listener.batch_made(batch)
            except Exception as error:
                self._drop(listener, error)
        return batch
