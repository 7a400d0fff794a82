"""Load JPEGs from one packed file with several threads, into batches whose memory is reused.

    pack_images("train.images", data_path("images"))
    loader = ImageLoader("train.images", batch_size=128, size=224, seed=1)
    for epoch in range(3):
        for batch in loader: ...  # {"images": (128, 3, 224, 224), "labels": (128,), ...}
    test = ImageLoader("test.images", 128, shuffle=False, crops=CenterCrop())

The JPEG codec and torch release the GIL, so threads decode in parallel in the same memory. Worker
processes would have to send each batch, and a batch of photographs in float32 is 77 MB.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import local
from typing import Any, Literal, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keepfed.checks import require_unchanged
from keepfed.errors import required
from keepfed.limits import usable_cores
from keepfed.loaders.images.crops import IMAGENET_MEAN, IMAGENET_STD, CenterCrop, Crops, Indices
from keepfed.loaders.images.decoding import Decoder, scaling
from keepfed.loaders.images.packed import PackedImages
from keepfed.loaders.resume import IndexBatches, Order

Batch = dict[str, Tensor]
AT_ONCE = 1_000_000  # pixels per task, which a thread decodes in a few milliseconds
AHEAD = 2  # batches decoded in advance


class ImageLoader(IndexBatches):
    """Loader that serves every image once per epoch, each with its own random crop and flip.

    A batch is a dict with the tensors "images", "labels" and "index". Images are uint8 or
    normalized float32 of shape (batch, 3, size, size), in torch's layout channels_last, in which
    convolutions are faster. Labels, and the indices of the images in the file, are int64 (batch,).
    Order, crops and flips depend on the seed, the epoch and the index, but not on the number of
    threads or ranks.

    A batch is valid until `buffers` more batches were requested. Then its memory is reused. With
    CUDA, batches are pinned, and a copy with `non_blocking=True` is only queued. So that each copy
    finishes in time, use a `CudaPrefetcher`, and set `buffers` to its depth plus two. Each loop
    starts new threads, which end with the loop, even after an error.
    """

    def __init__(
        self,
        packed: str | Path,
        batch_size: int = 128,
        size: int = 224,
        *,
        dtype: Literal["float32", "uint8"] = "float32",
        crops: Crops | CenterCrop | None = None,
        threads: int | None = None,
        buffers: int = 3,
        **order: Unpack[Order],
    ):
        """Open the file without decoding images.

        Args:
            packed: A file written by `pack_images`.
            batch_size: Images in a batch.
            size: Height and width of the served images, in pixels.
            dtype: "uint8", or "float32", normalized with the mean and deviation of ImageNet.
            crops: Distribution of crops and flips, or `CenterCrop` for validation. None for the
                defaults of torchvision.
            threads: Number of decoding threads. None for one per core that this process may use.
            buffers: Number of batches whose memory is used in turn.
            **order: `shuffle`, `seed`, `drop_last` and `slot` of `IndexBatches`.

        Raises:
            ReadError: If the file is missing or incomplete, or `pack_images` did not write it.
            ValueError: If a number is too small, or `dtype` is not supported.
        """
        threads = usable_cores() if threads is None else threads
        for name, number in {"size": size, "threads": threads, "buffers": buffers}.items():
            if number < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {number}.")
        if dtype not in ("float32", "uint8"):
            raise ValueError(f'`dtype` must be "float32" or "uint8", but is {dtype!r}.')
        self.images = PackedImages(packed)
        super().__init__(len(self.images), batch_size, **order)
        self.size, self.crops = size, crops or Crops()
        self.dtype, self.threads, self.buffers = dtype, threads, buffers
        self._ring: deque[Batch] | None = None

    def draw(self, indices: Indices) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the windows and flips of some images in this epoch, as `Crops.draw` does.

        Windows that are decoded at a smaller scale are aligned to the larger pixels.
        """
        rows = self.images.table[np.asarray(indices)]
        sizes = np.stack([rows["height"], rows["width"]], 1).astype(np.int64)
        windows, flips = self.crops.draw(self.seed, self.epoch.value, indices, sizes)
        factors = [scaling(h, w, self.size) for h, w in windows[:, 2:].tolist()]
        return windows - windows % np.array(factors)[:, None], flips

    def __iter__(self) -> Iterator[Batch]:
        return self._follow_itself(self._ahead())

    def _ahead(self) -> Iterator[Batch]:
        """Yield the batches in order, while threads decode the next ones."""
        require_unchanged(self.images.path, self.images.stamp)
        # Reuse the memory of the previous loop, because the system clears new memory page by page.
        # After an early exit, new memory is needed, because batches of that loop may be in use.
        ring, self._ring = self._ring, None
        if ring is None:
            ring = deque(self._memory() for _ in range(self.buffers + AHEAD))
        norm = _norm(self.size) if self.dtype == "float32" else None
        own = local()

        def start() -> None:
            # limit torch to one thread in this thread only, because there is one for each core
            torch.get_num_threads()  # the first call in a thread sets its limit
            _openmp().limit(limits=1)
            own.decoder = Decoder(self.images, self.size, norm)

        def write(jobs: list[_Job]) -> None:
            for job in jobs:
                own.decoder.write(*job)

        def finished() -> Batch:
            batch, tasks = pending.popleft()
            for task in tasks:
                task.result()  # or its error
            return batch

        pool, pending = ThreadPoolExecutor(self.threads, "images", start), deque[_Pending]()
        try:
            for indices in self.deal():
                ring.rotate(-1)
                batch = {name: part[: len(indices)] for name, part in ring[0].items()}
                tasks = [pool.submit(write, jobs) for jobs in self._jobs(indices, batch)]
                pending.append((batch, tasks))
                if len(pending) > AHEAD:
                    yield finished()
            while pending:
                yield finished()
            self._ring = ring
        finally:
            pool.shutdown(cancel_futures=True)

    def _jobs(self, indices: NDArray[np.int64], batch: Batch) -> list[list[_Job]]:
        """Return the images of a batch, a few of them per task, and write the rest of the batch."""
        windows, flips = self.draw(indices)
        at_once = max(1, AT_ONCE * len(indices) // int(windows[:, 2:].prod(1).sum()))
        images = batch["images"]
        jobs = list(zip(indices.tolist(), windows.tolist(), flips.tolist(), images, strict=True))
        batch["labels"].numpy()[:] = self.images.table["label"][indices]
        batch["index"].numpy()[:] = indices
        return [jobs[at : at + at_once] for at in range(0, len(jobs), at_once)]

    def _memory(self) -> Batch:
        """Return memory for a batch, pinned if CUDA is available."""
        count, pinned = self.batch_size, torch.cuda.is_available()
        where: dict[str, Any] = {"device": "cpu", "pin_memory": pinned}
        images = torch.empty(
            (count, 3, self.size, self.size),
            dtype=getattr(torch, self.dtype),
            memory_format=torch.channels_last,
            **where,
        )
        labels, index = (torch.empty(count, dtype=torch.int64, **where) for _ in range(2))
        return {"images": images, "labels": labels, "index": index}


_Job = tuple[int, list[int], bool, Tensor]  # arguments of `Decoder.write`
_Pending = tuple[Batch, list[Future[None]]]


def _norm(size: int) -> tuple[Tensor, Tensor]:
    """Return factor and shift of the normalization, in the memory layout of an image row."""
    factor = 1 / (255 * torch.tensor(IMAGENET_STD, device="cpu"))
    shift = -torch.tensor(IMAGENET_MEAN, device="cpu") * 255 * factor
    return factor.repeat(size, 1).T[:, None], shift.repeat(size, 1).T[:, None]


@cache
def _openmp() -> Any:
    """Return the controller of OpenMP, cached because finding it takes milliseconds."""
    return required("threadpoolctl").ThreadpoolController().select(user_api="openmp")
