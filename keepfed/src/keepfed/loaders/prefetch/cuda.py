"""Copy the next batch to the device while the device computes the current one.

    loader = DataLoader(dataset, batch_size=256, num_workers=8, pin_memory=True)
    for batch in CudaPrefetcher(loader, "cuda"):
        train(batch)

The prefetcher needs no thread, because the loader already has workers and a thread that pins.
It only launches copies, on the copy stream of the device, and each step waits for its own batch.
While recording, write `trace.batches(prefetcher)`, so that the requests of the loop itself count.
All prefetchers of a device share the copy stream and its memory. If your step runs on another
stream, call `next()` while this stream is the current one, so that it waits for the batch.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sized
from typing import Any, cast

import torch

from keepfed.batches import SMALL, dense_parts, has_gaps, move, record_stream, tensors
from keepfed.device import BatchDevice, CudaDevice
from keepfed.measure.spans import current

PAGEABLE = (
    "The batches are in pageable memory, so each copy blocks the loop. Pass pin_memory=True to the "
    "loader. If a batch is a dataclass, also give it a method pin_memory(), which the loader calls."
)
GAPS = (
    "The batches are views of pinned memory with gaps. PyTorch first copies them into pageable "
    "memory, which blocks the loop. Return batch.contiguous() from collate_fn, and slice the batch "
    "on the device."
)

Queued = tuple[Any, Any, int]  # batch in flight, event of its arrival, batch number


class CudaPrefetcher:
    """Iterable over the batches of a loader on the device, each copied during the step before.

    A batch may be a tensor, or a nested structure of mappings, lists, tuples, named tuples and
    dataclasses. It keeps its type. Objects with a method `to(device, non_blocking)` are moved by
    this method, for example graphs of PyTorch Geometric or DGL, a TensorDict, or a BatchEncoding.
    Numbers, strings and objects without tensors are unchanged. A loader pins a dataclass only if it
    has a method `pin_memory`. Create a PackedSequence in the loop, because its lengths must stay on
    the host.

    Each loop is one epoch of the loader. An error in the loader is raised in the loop, after all
    earlier batches. If the loop is left early, prefetched batches are dropped and the workers of
    the loader end.

    Raises:
        TypeError: In the loop, if an object in a batch hides its tensors.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        device: BatchDevice | torch.device | str | int | None = None,
        *,
        depth: int = 1,
    ):
        """Store the loader. The first batch is requested when the loop begins.

        Args:
            loader: Source of the batches, in pinned memory: `DataLoader(pin_memory=True)`. A source
                that reuses the memory of a batch may do so after `depth` + 2 more batches were
                requested, because the copy has finished by then.
            device: A CUDA device ("cuda" for the current one of this thread), or another
                `BatchDevice`, such as an emulated one. On a CPU, and on devices other than CUDA,
                batches are moved without prefetching. None for CUDA, if available.
            depth: Number of batches copied in advance. `depth` + 1 batches are on the device if the
                loop reads each loss and drops its batch before it requests the next, otherwise one
                more. A loop that reads no loss is blocked while it is more than two steps ahead of
                the device. Otherwise batches that a step still needs would accumulate.

        Raises:
            TypeError: If `depth` is not an integer.
            ValueError: If `depth` is less than 1, or `device` is not a valid device string.
            RuntimeError: If the device does not exist.
        """
        if not isinstance(depth, int) or isinstance(depth, bool):
            raise TypeError(f"`depth` must be a whole number of at least 1, but is {depth!r}.")
        if depth < 1:
            raise ValueError(f"`depth` must be at least 1, but is {depth}.")
        self.loader, self.depth = loader, depth
        self.device = _choose(device)
        self._looked = False

    def __len__(self) -> int:
        return len(cast(Sized, self.loader))

    def __iter__(self) -> Iterator[Any]:
        if isinstance(device := self.device, torch.device):
            return (move(batch, device) for batch in self.loader)
        return self._prefetch(device)

    def _prefetch(self, gpu: BatchDevice) -> Iterator[Any]:
        batches, staged, end = iter(self.loader), deque[Queued](), cast(Exception | None, None)
        launched = deque[Any]()  # one event after each step that may still run
        try:
            while end is None or staged:
                if len(launched) > 1:  # keep one step running, so that the device stays busy
                    launched.popleft().synchronize()
                while end is None and len(staged) <= self.depth:
                    try:
                        staged.append(self._stage(gpu, next(batches)))
                    except Exception as error:  # also StopIteration, after earlier batches
                        end = error
                if staged:
                    # The next copy was launched before, so it runs even if the loop waits for the
                    # device at the end of its step.
                    user = gpu.current_stream()
                    yield self._hand_over(gpu, *staged.popleft())
                    # The loop may request the next batch on a different stream.
                    launched.append(user.record_event(gpu.Event()))
            _number(-1)
            if not isinstance(end, StopIteration):
                raise end
        finally:
            end = None  # breaks the cycle of the error's traceback and this frame
            staged.clear()
            if hasattr(batches, "close"):
                batches.close()
            del batches  # ends the workers, even if a notebook keeps an error of the loop

    def _stage(self, gpu: BatchDevice, batch: Any) -> Queued:
        """Launch the copy of `batch`, and return to the current stream."""
        if not self._looked:
            self._looked = True
            _warn_if_slow(gpu, batch)
        trace = current()
        with gpu.stream(copies := gpu.copy_stream):
            uploaded = gpu.upload(batch, non_blocking=True)
            return uploaded, copies.record_event(), -1 if trace is None else trace.batch

    @staticmethod
    def _hand_over(gpu: BatchDevice, batch: Any, arrived: Any, number: int) -> Any:
        """Let the current stream wait for this copy, but not for later copies."""
        _number(number)
        user = gpu.current_stream()
        user.wait_event(arrived)
        # The memory belongs to the copy stream. Without this call, the next batch could overwrite
        # it as soon as Python drops this batch, while the step still reads it.
        record_stream(batch, user)
        return batch


def _warn_if_slow(gpu: BatchDevice, batch: Any) -> None:
    """Warn at the line of the loop if copying `batch` will block it."""
    here = [t for t in tensors(batch) if t.device.type == "cpu"]
    parts = [part for tensor in here for part in dense_parts(tensor)]
    if sum(part.nbytes for part in parts if not gpu.is_pinned(part)) > SMALL:
        warnings.warn(PAGEABLE, stacklevel=4)
    elif any(has_gaps(part) for part in parts):
        warnings.warn(GAPS, stacklevel=4)


def _choose(device: BatchDevice | torch.device | str | int | None) -> BatchDevice | torch.device:
    """Return a device that can prefetch, or a torch device without prefetching."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if isinstance(device, int):  # torch without CUDA rejects integers
        device = f"cuda:{device}"
    if isinstance(device, str):
        try:
            device = torch.device(device)
        except RuntimeError:  # its message lists all device types of torch
            raise ValueError(
                f'{device!r} is not a valid device. Use "cuda", "cuda:1" or "cpu", or omit it.'
            ) from None
    if isinstance(device, torch.device) and device.type == "cuda":
        there = torch.cuda.device_count()
        if (device.index or 0) >= there:
            raise RuntimeError(
                f"{device} does not exist. CUDA devices: {there}. Omit the device to use the "
                "available one."
            )
        return CudaDevice(device)
    return device


def _number(batch: int) -> None:
    """Set the batch number in the trace, because the loader is ahead of the loop."""
    trace = current()
    if trace is not None:
        trace.batch = batch
