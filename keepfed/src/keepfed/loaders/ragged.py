"""Batch samples of different lengths without padding, or with little padding.

    loader = DataLoader(events, 64, shuffle=True, collate_fn=RaggedCollate("pulses"))
    for batch in CudaPrefetcher(loader):
        pulses = batch["pulses"]  # Ragged: the rows of all events, one event after another
        states = layer(pulses.values)  # a layer that works on each row needs nothing else
        queries = pulses.nested(states)  # attention within each event

A model computes padding too, and a `Ragged` contains only real rows. Loaders, workers and
prefetchers handle it like every tuple of tensors. `RaggedLoader` reads such batches from one file.
If your model needs padding, `LengthBuckets` puts samples of similar length into a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import IterableDataset, default_collate

from keepfed.checks import require_unchanged, stamp
from keepfed.loaders.contract import WorkerSlot, epoch_rng
from keepfed.loaders.resume import IndexBatches, Order, ResumableBatches
from keepfed.loaders.workers import LazyFile
from keepfed.reading import reading

_POOL = 50  # buckets sorted together; more of them need less padding, but scatter more


class Ragged(NamedTuple):
    """Samples of different lengths: sample i is `values[offsets[i] : offsets[i + 1]]`."""

    values: Tensor  # (rows of all samples, ...)
    offsets: Tensor  # int64 (samples + 1,), from 0 to len(values)
    shortest: int  # rows of the shortest sample, on the host, so that no kernel must wait for it
    longest: int  # and of the longest one

    @classmethod
    def join(cls, samples: Sequence[ArrayLike | Tensor]) -> Ragged:
        """Return arrays or tensors of shape (rows, ...) as one batch.

        Raises:
            ValueError: If samples are not numbers, or some are integers and others floats.
        """
        parts = [_to_tensor(sample, "Samples") for sample in samples]
        full = [part for part in parts if part.numel()] or parts[:1]
        if not all(part.ndim for part in full) or len({p.is_floating_point() for p in full}) > 1:
            raise ValueError(
                f"Samples have shapes such as {[*full[-1].shape]} and types such as "
                f"{full[-1].dtype}. Return arrays of shape (rows, ...), all of one type."
            )
        lengths = [len(part) for part in parts]
        offsets = torch.tensor([0, *lengths], device="cpu").cumsum(0)
        return cls(torch.cat(full), offsets, min(lengths), max(lengths))

    @property
    def sample(self) -> Tensor:
        """Sample index of each row, int64 (rows,), to give each row the value of its sample."""
        index = torch.arange(len(self.offsets) - 1, device=self.offsets.device)
        return index.repeat_interleave(self.offsets.diff(), output_size=len(self.values))

    def nested(self, values: Tensor | None = None) -> Tensor:
        """Return a nested tensor in torch.jagged layout, of `values` or of other rows."""
        rows = self.values if values is None else values
        known: dict[str, Any] = {"min_seqlen": self.shortest, "max_seqlen": self.longest}
        if torch.__version__ < "2.5":  # which finds the lengths itself, and waits for the device
            known = {}
        return torch.nested.nested_tensor_from_jagged(rows, self.offsets, **known)


class RaggedCollate:
    """A `collate_fn` that joins some fields of the samples, and stacks the others as torch does."""

    def __init__(self, *fields: str):
        """Store the names of the fields whose lengths differ. Samples are mappings."""
        self.fields = fields

    def __call__(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return a batch with a `Ragged` for each field whose length differs."""
        names = [name for name in samples[0] if name not in self.fields]
        batch = default_collate([{name: sample[name] for name in names} for sample in samples])
        joined = {name: Ragged.join([one[name] for one in samples]) for name in self.fields}
        return {**batch, **joined}


class RaggedLoader(IndexBatches, IterableDataset[dict[str, Any]]):
    """Loader that serves every sample of a file once per epoch, without padding.

        loader = RaggedLoader("pulses.npy", offsets, 64, fields={"energy": energy})
        for batch in loader: ...  # {"values": Ragged, "energy": (64,)}

    The file is a .npy file with the rows of all samples, such as the content of an awkward array.
    Each process maps it into memory. Python runs once per batch, and not once per sample.

    In a `DataLoader(ragged, batch_size=None, num_workers=2)` each worker builds every second batch.
    The batches and their order stay the same. Loop over `ragged.follow(loader)` there, so that
    epochs advance and the position is counted.
    """

    def __init__(
        self,
        path: str | Path,
        offsets: ArrayLike,
        batch_size: int,
        *,
        fields: Mapping[str, ArrayLike] | None = None,
        **order: Unpack[Order],
    ):
        """Open the file without reading rows.

        Args:
            path: A .npy file with the rows of all samples, shape (rows, ...).
            offsets: Sample i has the rows offsets[i] to offsets[i + 1].
            batch_size: Samples in a batch.
            fields: Arrays with one entry per sample, such as labels. They are kept in memory.
            **order: `shuffle`, `seed`, `drop_last` and `slot` of `IndexBatches`.

        Raises:
            ReadError: If the file is missing, incomplete or of a type that torch does not have.
            ValueError: If the offsets do not fit the file, or a field has a different length.
        """
        self.path, self._values = str(path), LazyFile(map_rows, str(path))
        rows = len(self._values.file)
        self._stamp = stamp(path)
        self.offsets = _to_tensor(np.array(offsets), "Offsets", whole=True).long().reshape(-1)
        ends = self.offsets[[0, -1]].tolist() if len(self.offsets) else ["nothing"] * 2
        if ends != [0, rows] or (self.offsets.diff() < 0).any():
            raise ValueError(
                f"The offsets go from {ends[0]} to {ends[1]}, but {path} has {rows:,} rows. Pass "
                "increasing offsets from 0 to the number of rows."
            )
        n_samples = len(self.offsets) - 1
        self.fields = dict[str, Tensor]()
        for name, values in (fields or {}).items():
            field = self.fields[name] = _to_tensor(np.array(values), f"Fields {name!r}")
            if len(field) != n_samples:
                raise ValueError(
                    f"The field {name!r} has {len(field):,} entries, but the offsets describe "
                    f"{n_samples:,} samples. Pass one entry per sample."
                )
        super().__init__(n_samples, batch_size, **order)

    def close(self) -> None:
        """End open loops and unmap the file. The next loop maps the file again."""
        super().close()
        self._values.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._follow_itself(self._read())

    def _read(self) -> Iterator[dict[str, Any]]:
        values = torch.from_numpy(self._values.file)
        for batch in self.deal():
            require_unchanged(self.path, self._stamp)
            indices = torch.from_numpy(batch)
            firsts, lengths = self.offsets[indices], self.offsets.diff()[indices]
            offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
            shift = (firsts - offsets[:-1]).repeat_interleave(lengths)
            rows = torch.arange(len(shift), device="cpu") + shift
            ragged = Ragged(values.index_select(0, rows), offsets, *map(int, lengths.aminmax()))
            yield {"values": ragged, **{name: f[indices] for name, f in self.fields.items()}}


def _to_tensor(values: Any, name: str, *, whole: bool = False) -> Tensor:
    """Return numbers as a tensor on the CPU, uncopied if possible.

    Raises ValueError if torch has no type for them, or if they must be `whole` and are not.
    """
    try:
        tensor = torch.as_tensor(values, device="cpu")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} have the type {np.asarray(values).dtype}, which torch does not support. "
            "Convert them to numbers of this machine, for example with .astype('float32')."
        ) from error
    if whole and tensor.numel() and (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"{name} must be whole numbers, but are {tensor.dtype}. Convert them.")
    return tensor


def map_rows(path: str) -> NDArray[Any]:
    """Map the rows of a .npy file, or raise ReadError if torch has no type for its numbers."""
    with reading(path, step="Write it again with np.save, as numbers of this machine"):
        # copy-on-write, so that torch accepts the array of a file that may be read-only
        rows: NDArray[Any] = open_memmap(path, mode="c")
        torch.from_numpy(rows[:1])
    return rows


class LengthBuckets(ResumableBatches):
    """A `batch_sampler` whose batches contain samples of similar length, for padded batches.

        batches = LengthBuckets(lengths, 64, seed=1)
        loader = DataLoader(events, batch_sampler=batches, collate_fn=pad_collate)

    Every 50 random buckets are sorted by length, cut into buckets again, and these are shuffled. In
    each step, all ranks get samples of similar length. The batches are not random samples: they
    scatter more in everything that the length predicts, such as the energy.
    """

    def __init__(
        self,
        lengths: ArrayLike,
        batch_size: int,
        *,
        bucket: int | None = None,
        seed: int = 0,
        slot: WorkerSlot | None = None,
        drop_last: bool = False,
    ):
        """Begin with epoch 0.

        Args:
            lengths: Length of each sample, in the order of the dataset.
            batch_size: Samples in a batch of one rank.
            bucket: Samples of similar length that stay together, best `batch_size` times the number
                of ranks. None for `batch_size`. To resume with another batch size, pass the first
                one here.
            seed: Determines the order, together with the epoch.
            slot: Rank of these batches. None for the rank of the process.
            drop_last: Whether incomplete last batches are dropped.

        Raises:
            ValueError: If a number is too small.
        """
        self.lengths = _to_tensor(np.array(lengths), "Lengths").numpy().reshape(-1)
        super().__init__(len(self.lengths), batch_size, seed=seed, slot=slot, drop_last=drop_last)
        self.bucket = batch_size if bucket is None else bucket
        if self.bucket < 1:
            raise ValueError(f"`bucket` must be at least 1, but is {bucket}.")
        self.made_by["bucket"] = self.bucket

    def _order(self) -> NDArray[np.int64]:
        order, rng = super()._order(), epoch_rng(self.seed, self.epoch.value)
        size, parts = self.bucket * _POOL, list[NDArray[np.int64]]()
        for first in range(0, len(order), size):
            pool = order[first : first + size]
            pool = pool[np.argsort(self.lengths[pool], kind="stable")]
            buckets = [pool[at : at + self.bucket] for at in range(0, len(pool), self.bucket)]
            # an incomplete bucket stays at the end, so that buckets and batches stay aligned
            full = len(pool) // self.bucket
            parts += [buckets[at] for at in rng.permutation(full)] + buckets[full:]
        return np.concatenate(parts)
