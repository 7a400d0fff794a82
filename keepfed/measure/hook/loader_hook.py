"""Tell listeners how a `DataLoader` makes its batches, in whatever process it makes them.

Nothing is added to the dataset, and no file or extra queue is used: only for the moment in which
the loader's iterator is made, its `collate_fn` and `worker_init_fn` are exchanged; the iterator and
its workers keep the exchanged ones. `keepfed.private_torch` lists the private names of torch
that this needs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Subset, TensorDataset, dataloader

from keepfed import private_torch
from keepfed.errors import KeepfedError

MAX_PARTS = 32  # of an object or a list are looked at for a loader in them


class Listener:
    """Is told of every batch in the process that makes it; picklable, for workers get a copy."""

    def worker_started(self, worker_id: int) -> None:
        """Begin in a worker: this process, in which the loader's `worker_init_fn` has just run."""

    def fetch_begins(self, index: Any) -> None:
        """Note that a batch is begun: `index` is what the sampler gave for it."""

    def samples_made(self) -> None:
        """Note that all samples of the batch are there and that collating begins."""

    def batch_made(self, batch: Any) -> Any:
        """Note that the batch is collated; return what is to go on instead of it."""
        return batch

    def failed(self, error: Exception) -> None:
        """Handle an error of this listener, which is called no more; raise it by default."""
        raise error


_PARCEL = "a batch and what is said about it"


def attach_report(batch: Any, about: Any) -> Any:
    """Return what a listener in a worker sends instead of `batch`: that, and what it has to say.

    Sending an object of a class would cost as much as all else. The loader pins what is in a tuple
    and makes a list of it, and leaves bytes alone.
    """
    return _PARCEL, batch, pickle.dumps(about)


def detach_report(received: Any) -> tuple[Any, Any]:
    """Return a batch and what a listener in its worker says about it; None if there is none."""
    batch, about = _opened(received)
    return batch, None if about is None else pickle.loads(about)


def without_report(received: Any) -> Any:
    """Return a batch without what a listener in its worker sent along."""
    return _opened(received)[0]


def _opened(received: Any) -> tuple[Any, bytes | None]:
    if isinstance(received, (tuple, list)) and len(received) == 3:
        mark, batch, about = received
        if isinstance(mark, str) and mark == _PARCEL:
            return batch, about
    return received, None


def listen(
    loader: DataLoader[Any],
    listeners: Sequence[Listener],
    begin: Callable[[Any], Iterator[Any]] = iter,
) -> Iterator[Any]:
    """Return `begin(loader)`, with `listeners` where its batches are made.

    `loader` stays as it was.

    The first listener is the outermost: told first of all beginnings and last of all ends.
    Persistent workers that run already keep those whom they were started with.

    Raises:
        KeepfedError: if this version of torch has not what is needed.
    """
    if absent := missing():
        raise KeepfedError(
            f"torch {torch.__version__} has no {', no '.join(absent)}, without which a DataLoader "
            "cannot be recorded; install a version that the course was tested with: "
            "pip install -r requirements.lock."
        )
    hook = _Hook(loader, listeners)
    originals = loader.collate_fn, loader.worker_init_fn
    try:
        loader.collate_fn = hook.collate
        if loader.num_workers:
            loader.worker_init_fn = hook.start_worker
        batches = begin(loader)
    finally:
        loader.collate_fn, loader.worker_init_fn = originals
    if not loader.num_workers:
        hook.follow(getattr(batches, "_dataset_fetcher", None))
    return batches


def listen_within(
    around: Iterable[Any],
    loader: DataLoader[Any],
    listeners: Sequence[Listener],
    made: Callable[[Iterator[Any]], None],
) -> Iterator[Any]:
    """Return `iter(around)`, which asks `loader` for batches, now or when the first is wanted.

    `made` is given the iterator of `loader` as soon as there is one.
    """
    if loader._iterator is None or not loader.persistent_workers:
        vars(loader)["_get_iterator"] = partial(_begin, loader, listeners, made)
    try:
        return iter(around)
    except BaseException:
        vars(loader).pop("_get_iterator", None)
        raise


def _begin(
    loader: DataLoader[Any], listeners: Sequence[Listener], made: Callable[[Iterator[Any]], None]
) -> Iterator[Any]:
    """Stand in for `loader._get_iterator`, once."""
    del vars(loader)["_get_iterator"]
    batches = listen(loader, listeners, type(loader)._get_iterator)
    made(batches)
    return batches


def data_loader_in(loader: Any, depth: int = 3) -> DataLoader[Any] | None:
    """Return the `DataLoader` that `loader` is or that it wraps, as a WebLoader does.

    Those of Accelerate wrap one too, but give themselves out as what they wrap.
    """
    if issubclass(type(loader), DataLoader):
        found: DataLoader[Any] = loader
        return found
    listed = isinstance(loader, (list, tuple))
    parts = loader if listed else getattr(loader, "__dict__", {}).values()
    inside = (data_loader_in(part, depth - 1) for part in islice(parts, MAX_PARTS) if depth)
    return next((one for one in inside if one is not None), None)


def reads_whole_batches(loader: Any) -> bool:
    """Tell whether the dataset of a `DataLoader` is asked for all samples of a batch at once."""
    dataset = getattr(loader, "dataset", None)
    while isinstance(dataset, Subset):  # it always has __getitems__, and loops if the other has not
        dataset = dataset.dataset
    return hasattr(dataset, "__getitems__")


def has_listeners(loader: DataLoader[Any]) -> bool:
    """Tell whether the iterator of `loader` that is being made has listeners."""
    return isinstance(getattr(loader.collate_fn, "__self__", None), _Hook)


def get_listeners(loader: DataLoader[Any]) -> Sequence[Listener]:
    """Return who listens to the persistent workers that `loader` has running."""
    collate = getattr(loader._iterator, "_collate_fn", None)
    hook = getattr(collate, "__self__", None)
    return hook.listeners if isinstance(hook, _Hook) else ()


def pause(batches: Any, paused: bool) -> None:
    """Let whoever listens to `batches`, made without workers, miss what comes, or hear it again."""
    batches._collate_fn.__self__.pause(batches._dataset_fetcher, paused)


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


@cache
def missing() -> tuple[str, ...]:
    """Return the private names of torch that `listen` needs and that the installed torch lacks."""
    with torch.device("cpu"):  # a default device such as "cuda" would break the iterator
        loader = DataLoader(
            TensorDataset(torch.zeros(1, device="cpu")), generator=torch.Generator()
        )
        # not iter(loader), because that one may be watched
        begin = getattr(dataloader, "_SingleProcessDataLoaderIter", iter)
        owners = {"torch": torch, "a DataLoader": loader, "its iterator": begin(loader)}
    absent = private_torch.missing(owners, without=private_torch.REFUSED)
    return tuple(f"{one.name} ({one.use})" for one in absent)


class _Hook:
    """Stands in for the two functions of a loader."""

    def __init__(self, loader: DataLoader[Any], listeners: Sequence[Listener]):
        self.listeners = tuple(listeners)
        self._collate, self._init = loader.collate_fn, loader.worker_init_fn

    def start_worker(self, worker_id: int) -> None:
        """Do what the loader's `worker_init_fn` does, then begin to listen in this process."""
        if self._init is not None:
            self._init(worker_id)
        for listener in self.listeners:
            try:
                listener.worker_started(worker_id)
            except Exception as error:
                self._drop(listener, error)
        fetch = torch.utils.data._utils.fetch
        for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            self.follow(kind)

    def follow(self, fetcher: Any) -> None:
        """Make `fetcher.fetch` (of a fetcher or of its class) tell when it begins."""
        fetch = getattr(fetcher, "fetch", None)
        if fetch is None:
            for listener in self.listeners:
                self._drop(listener, AttributeError("torch has no fetcher with a method fetch"))
            return

        def notifying_fetch(*args: Any) -> Any:
            for listener in self.listeners:
                try:
                    listener.fetch_begins(args[-1])
                except Exception as error:
                    self._drop(listener, error)
            return fetch(*args)

        self._fetches = fetch, notifying_fetch
        fetcher.fetch = notifying_fetch

    def _drop(self, listener: Listener, error: Exception) -> None:
        self.listeners = tuple(one for one in self.listeners if one is not listener)
        listener.failed(error)

    def pause(self, fetcher: Any, paused: bool) -> None:
        """Give a fetcher that is followed its own functions back, or take their place again."""
        own, told = self._fetches
        fetcher.fetch, fetcher.collate_fn = (own, self._collate) if paused else (told, self.collate)

    def collate(self, samples: Any) -> Any:
        """Do what the loader's `collate_fn` does."""
        for listener in self.listeners:
            try:
                listener.samples_made()
            except Exception as error:
                self._drop(listener, error)
        batch = self._collate(samples)
        for listener in reversed(self.listeners):
            try:
                batch = listener.batch_made(batch)
            except Exception as error:
                self._drop(listener, error)
        return batch
