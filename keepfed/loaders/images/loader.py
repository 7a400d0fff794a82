"""Load JPEGs as fast as the cores decode them: threads, one file, batches whose memory is reused.

    pack_images("train.images", data_path("images"))
    loader = ImageLoader("train.images", batch_size=128, size=224, seed=1)
    for epoch in range(3):
        for batch in loader: ...  # {"images": (128, 3, 224, 224), "labels": (128,), ...}
    test = ImageLoader("test.images", 128, shuffle=False, crops=CentreCrop(resize=256))

Why threads: the codec and torch let go of Python's lock while they work, so two threads decode at
once, in one memory. A worker would be a process: what it makes has to be sent, and a batch of
photographs in float32 is 77 MB.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController
from torch import Tensor

from keepfed.limits import usable_cores
from keepfed.loaders.contract import Place
from keepfed.loaders.images.crops import IMAGENET_MEAN, IMAGENET_STD, CentreCrop, Crops, Indices
from keepfed.loaders.images.decoding import Decoder, Window, scaling
from keepfed.loaders.images.packed import PackedImages
from keepfed.loaders.resume import IndexBatches

Batch = dict[str, Tensor]
AT_ONCE = 1_000_000  # pixels of a task: a thread is through with them in some milliseconds
AHEAD = 2  # batches that are made while the loop works on one


class ImageLoader(IndexBatches):
    """Give every image exactly once an epoch, each with a crop and a flip of its own.

    A batch is a dict: "images", (batch, 3, size, size), uint8 or normalised float32; "labels" and
    "index", int64 (batch,), the second one being the place of each image in the file. Order, crops
    and flips depend on the seed, the epoch and the index, not on threads or ranks.

    A batch stays as it is until `buffers` more were asked for; then its memory is used again. Who
    keeps batches longer copies them, or takes `buffers=None`. Where there is CUDA they are pinned,
    and a copy with `non_blocking=True` is only queued: a loop that reads no loss may be so far
    ahead of the device that it copies what was decoded later. Give the batches to a
    `CudaPrefetcher`: with its depth and two as `buffers`, a copy has ended before its source is
    used again.

    Each loop has threads of its own, which end with it, however it ends. Every rank has equally
    many batches: images at the end that are fewer than the ranks are left out.
    """

    def __init__(
        self,
        packed: str | Path,
        batch_size: int = 128,
        size: int = 224,
        *,
        dtype: Literal["float32", "uint8"] = "float32",
        shuffle: bool = True,
        seed: int = 0,
        crops: Crops | CentreCrop | None = None,
        antialias: bool = True,
        channels_last: bool = True,
        drop_last: bool = False,
        place: Place | None = None,
        threads: int | None = None,
        buffers: int | None = 3,
    ):
        """Open the file, and decode nothing.

        Args:
            packed: a file of pack_images.
            batch_size: images in a batch.
            size: pixels of a side of what is given.
            dtype: "uint8", or "float32", normalised with mean and deviation of ImageNet.
            shuffle: whether each epoch has a new order; False: the order in the file.
            seed: what order, crops and flips depend on, besides epoch and index.
            crops: how crops and flips are drawn, None: as torchvision does by itself; or the middle
                of each image, which is all that validation needs.
            antialias: whether each new pixel is a mean over all that it covers, as in torchvision;
                False: it mixes the four nearest, which is quicker; see `Decoder`.
            channels_last: whether the three colours of a pixel lie side by side in memory, as
                convolutions like them; False: a plane for each colour. The shape is the same.
            drop_last: whether last batches that are not full are dropped.
            place: rank that these images are for; None: the rank of the process.
            threads: that decode; None: one for each core that this process may use.
            buffers: batches whose memory is used in turn; None: every batch has its own.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: it is no file of pack_images, or not whole.
            ValueError: a number is too small, there is no such dtype, or images are to be resized
                to less than is taken of them.
        """
        threads = usable_cores() if threads is None else threads
        numbers = {"size": size, "threads": threads, "buffers": buffers}
        for name, number in numbers.items():
            if number is not None and number < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {number}.")
        if dtype not in ("float32", "uint8"):
            raise ValueError(f'There are no images as {dtype!r}; choose "float32" or "uint8".')
        self.resize = crops.resize if isinstance(crops, CentreCrop) else None
        if self.resize is not None and self.resize < size:
            raise ValueError(
                f"The middle {size} pixels of {self.resize} cannot be; take resize={size} or more."
            )
        self.images = PackedImages(packed)
        order: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last}
        super().__init__(len(self.images), batch_size, place=place, **order)
        self.size, self.crops = size, crops or Crops()
        self.dtype, self.antialias, self.channels_last = dtype, antialias, channels_last
        self.threads, self.buffers = threads, buffers
        self._ring: deque[Batch] | None = None

    def draw(self, indices: Indices) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the windows and flips of some images in this epoch; see `Crops.draw`.

        With `CentreCrop` a window is a whole image, which is resized before its middle is taken.
        The edges of a window that is decoded smaller lie where the smaller pixels have theirs.
        """
        rows = self.images.table[np.asarray(indices)]
        sizes = np.stack([rows["height"], rows["width"]], 1).astype(np.int64)
        windows, flips = self.crops.draw(self.seed, self.epoch.value, indices, sizes)
        if self.antialias and self.resize is None:
            factors = [
                scaling(rows, columns, self.size) for rows, columns in windows[:, 2:].tolist()
            ]
            windows -= windows % np.array(factors)[:, None]
        return windows, flips

    def __iter__(self) -> Iterator[Batch]:
        return self._follow_itself(self._ahead())

    def _ahead(self) -> Iterator[Batch]:
        """Yield the batches in order, while threads work on those that come next."""
        # of the loop before, if that came to its end: new memory has to be cleared, page by page.
        # A loop that was left may be followed by another while its last batches are in use.
        ring, self._ring = self._ring or self._new_ring(), None
        decoders = SimpleQueue[Decoder]()
        for _ in range(self.threads):
            decoder = Decoder(self.images, self.size, antialias=self.antialias, resize=self.resize)
            decoders.put(decoder)
        norm = self._norm() if self.dtype == "float32" else None
        pool, begun = ThreadPoolExecutor(self.threads, "images", _by_itself), deque[_Begun]()
        try:
            for indices in self.deal():
                ring.rotate(-1)
                memory = ring[0] if ring else self._memory()
                batch = {name: part[: len(indices)] for name, part in memory.items()}
                begun.append(self._begin(pool, decoders, indices, batch, norm))
                if len(begun) > AHEAD:
                    yield _ended(*begun.popleft())
            while begun:
                yield _ended(*begun.popleft())
            self._ring = ring
        finally:
            pool.shutdown(cancel_futures=True)

    def _begin(
        self,
        pool: ThreadPoolExecutor,
        decoders: SimpleQueue[Decoder],
        indices: NDArray[np.int64],
        batch: Batch,
        norm: tuple[Tensor, Tensor] | None,
    ) -> _Begun:
        """Hand the images of a batch to the threads, some at a time."""
        windows, flips = self.draw(indices)
        at_once = max(1, AT_ONCE * len(indices) // int(windows[:, 2:].prod(1).sum()))
        parts = map(Window._make, windows.tolist())
        jobs = list(zip(indices.tolist(), parts, flips.tolist(), batch["images"], strict=True))

        def work(some: list[tuple[int, Window, bool, Tensor]]) -> None:
            decoder = decoders.get()
            try:
                for job in some:
                    decoder.write(*job, norm)
            finally:
                decoders.put(decoder)

        tasks = [pool.submit(work, jobs[at : at + at_once]) for at in range(0, len(jobs), at_once)]
        batch["labels"].numpy()[:] = self.images.table["label"][indices]
        batch["index"].numpy()[:] = indices
        return batch, tasks

    def _new_ring(self) -> deque[Batch]:
        """Return memory for batches in use and in progress; empty if each batch has its own."""
        count = 0 if self.buffers is None else self.buffers + AHEAD
        return deque(self._memory() for _ in range(count))

    def _memory(self) -> Batch:
        """Return memory for a batch, pinned if there is CUDA, in the layout that was chosen."""
        pinned = torch.cuda.is_available()
        count, layout = self.batch_size, torch.contiguous_format
        if self.channels_last:
            layout = torch.channels_last
        numbers = (
            torch.empty(count, dtype=torch.int64, device="cpu", pin_memory=pinned) for _ in range(2)
        )
        images = torch.empty(
            (count, 3, self.size, self.size),
            dtype=getattr(torch, self.dtype),
            memory_format=layout,
            device="cpu",
            pin_memory=pinned,
        )
        return dict(zip(("images", "labels", "index"), (images, *numbers), strict=True))

    def _norm(self) -> tuple[Tensor, Tensor]:
        """Return what each row is multiplied with, and what is added then, laid out as a row is."""
        factor = 1 / (255 * torch.tensor(IMAGENET_STD, device="cpu"))
        shift = -torch.tensor(IMAGENET_MEAN, device="cpu") * 255 * factor
        factor, shift = (values.repeat(self.size, 1).T[:, None] for values in (factor, shift))
        if self.channels_last:
            return factor, shift
        return factor.contiguous(), shift.contiguous()


_Begun = tuple[Batch, list[Future[None]]]


def _by_itself() -> None:
    """Let a thread of ours share nothing out among threads of torch: there is one for each core."""
    torch.get_num_threads()  # which sets it, when a thread asks for the first time
    _openmp().limit(limits=1)  # of this thread alone


@cache
def _openmp() -> ThreadpoolController:
    """Return what limits OpenMP, with which torch computes; to find it takes milliseconds."""
    return ThreadpoolController().select(user_api="openmp")


def _ended(batch: Batch, tasks: list[Future[None]]) -> Batch:
    """Return a batch once all its tasks have ended, or raise what one of them did."""
    for task in tasks:
        task.result()
    return batch
