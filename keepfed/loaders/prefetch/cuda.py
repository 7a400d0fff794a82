"""Copy the next batch to the device while the device computes the present one.

    loader = DataLoader(dataset, batch_size=256, num_workers=8, pin_memory=True)
    for batch in CudaPrefetcher(loader, "cuda"):
        train(batch)

No thread is needed: a loader has its workers and, to pin, a thread already. A copy is only
launched, on the copy stream of the device, which holds the step back until it has arrived. When
recording, make it anew in each epoch: `CudaPrefetcher(trace.batches(loader), gpu)`; all of them
share that stream, and so its memory. Code that computes on a stream of its own asks for the batch
in there: `next()` notes the current stream.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sized
from typing import Any, cast

import torch

from keepfed.device import (
    BatchDevice,
    CudaDevice,
    dense_parts,
    has_gaps,
    move,
    record_stream,
    tensors,
)
from keepfed.device.batches import SMALL
from keepfed.measure.spans import current

PAGEABLE = (
    "The batches are in pageable memory: copying blocks the loop, and is hidden only where that is "
    "ahead of its steps. Give the loader pin_memory=True, and a batch that is a dataclass a method "
    "pin_memory(), which the loader then calls."
)
GAPS = (
    "The batches are parts of pinned memory with gaps between, which PyTorch first packs into "
    "pageable memory: copying blocks the loop, and is hidden only where that is ahead of its steps."
    " Let the collate_fn return batch.contiguous(), and cut on the device what you need."
)

Staged = tuple[Any, Any, int]  # a batch on its way, the event of its arrival, its number


class CudaPrefetcher:
    """The batches of a loader on the device, each copied during the step before it.

    Batches may be tensors, or mappings, lists, tuples, named tuples and dataclasses of them,
    nested, and keep their type. Objects with a method `to(device, non_blocking)` are moved by it:
    graphs of PyTorch Geometric or DGL, a TensorDict, a BatchEncoding. Numbers, strings and objects
    without tensors pass through. (A loader pins a dataclass only if that has a method `pin_memory`.
    Pack a PackedSequence in the loop: its lengths have to stay on the host.)

    Each loop over it is one epoch of the loader. An error of the loader is raised in the loop,
    after the batches that came before it. Leaving the loop drops what was copied ahead and lets the
    loader's workers go.

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
        """Start nothing yet: the first batch is asked for when the loop begins.

        Args:
            loader: where the batches come from, in pinned memory: `DataLoader(pin_memory=True)`.
                Who fills the same memory again does so when `depth` + 2 more were asked for, not
                before: then its copy has ended.
            device: a CUDA device, fixed now ("cuda": the current one of this thread), or
                another `BatchDevice`, such as an emulated one. On a CPU, and on devices other
                than CUDA, batches are moved one by one. None: CUDA if there is any.
            depth: batches copied ahead. `depth` + 1 are on the device if the loop reads each loss
                and drops its batch before it asks for the next; else one more. A loop that reads
                no loss is held up until the device is at most two steps behind it: what a step
                still has to read takes memory, and would pile up.

        Raises:
            TypeError: if `depth` is no whole number.
            ValueError: if `depth` is less than 1, or `device` is no name of a device.
            RuntimeError: if there is no such device.
        """
        if not isinstance(depth, int) or isinstance(depth, bool):
            raise TypeError(f"{depth=} is no number of batches; take a whole one, at least 1.")
        if depth < 1:
            raise ValueError(f"A depth of {depth} copies nothing ahead; take at least 1.")
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
        batches, staged, end = iter(self.loader), deque[Staged](), cast(Exception | None, None)
        launched = deque[Any]()  # an event behind each step whose end was not waited for
        try:
            while end is None or staged:
                if len(launched) > 1:  # not for the last one: the device would run dry
                    launched.popleft().synchronize()
                while end is None and len(staged) <= self.depth:
                    try:
                        staged.append(self._stage(gpu, next(batches)))
                    except Exception as error:  # StopIteration too: the batches before it go first
                        end = error
                if staged:
                    # Only now that the next copy is under way: it runs even if the loop waits for
                    # the device at the end of its step.
                    user = gpu.current_stream()
                    yield self._hand_over(gpu, *staged.popleft())
                    # The loop may ask for the next batch on another stream than it computed on.
                    launched.append(user.record_event(gpu.Event()))
            _number(-1)
            if not isinstance(end, StopIteration):
                raise end
        finally:
            end = None  # its traceback holds this frame: they would keep each other alive
            staged.clear()
            if hasattr(batches, "close"):
                batches.close()
            del batches  # with it go the workers, also where a notebook keeps an error of the loop

    def _stage(self, gpu: BatchDevice, batch: Any) -> Staged:
        """Launch the copy of `batch`; the stream is left again before the loop runs on."""
        if not self._looked:
            self._looked = True
            _warn_if_slow(gpu, batch)
        trace = current()
        with gpu.stream(copies := gpu.copy_stream):
            uploaded = gpu.upload(batch, non_blocking=True)
            return uploaded, copies.record_event(), -1 if trace is None else trace.batch

    @staticmethod
    def _hand_over(gpu: BatchDevice, batch: Any, arrived: Any, number: int) -> Any:
        """Let what the loop launches from now on wait for this copy, and for no later one."""
        _number(number)
        user = gpu.current_stream()
        user.wait_event(arrived)
        # Its memory belongs to the copy stream, which would write the next batch into it as soon as
        # Python drops this one, while the step still reads.
        record_stream(batch, user)
        return batch


def _warn_if_slow(gpu: BatchDevice, batch: Any) -> None:
    """Warn where the loop is if copying `batch` will hold it up."""
    here = [t for t in tensors(batch) if t.device.type == "cpu"]
    parts = [part for tensor in here for part in dense_parts(tensor)]
    if sum(part.nbytes for part in parts if not gpu.is_pinned(part)) > SMALL:
        warnings.warn(PAGEABLE, stacklevel=4)
    elif any(has_gaps(part) for part in parts):
        warnings.warn(GAPS, stacklevel=4)


def _choose(device: BatchDevice | torch.device | str | int | None) -> BatchDevice | torch.device:
    """Return an accelerator, or the torch device that batches are simply moved to."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if isinstance(device, int):  # a torch without CUDA knows no numbers
        device = f"cuda:{device}"
    if isinstance(device, str):
        try:
            device = torch.device(device)
        except RuntimeError:  # which lists all that torch has ever heard of
            raise ValueError(
                f'{device!r} is no device: take "cuda", "cuda:1" or "cpu", or leave it out.'
            ) from None
    if isinstance(device, torch.device) and device.type == "cuda":
        there = torch.cuda.device_count()
        if (device.index or 0) >= there:
            raise RuntimeError(
                f"The device {device} is not here (CUDA devices: {there}): leave it out to take "
                "what there is."
            )
        return CudaDevice(device)
    return device


def _number(batch: int) -> None:
    """Tell the trace which batch the loop works on: the loader is ahead of it."""
    trace = current()
    if trace is not None:
        trace.batch = batch
