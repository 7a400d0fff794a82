"""Loops of the shapes that people write: of public repositories, tutorials and other libraries.

Each is written anew, as short as its shape allows, and slow for the reason that the original is.
Where what `diagnose` advises is a change of code, the loop that followed the advice stands below.
"""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    get_worker_info,
)

from benchmarks.known_loaders import (
    FromStorage,
    InMemory,
    Loop,
    as_they_are,
    known,
    mended,
    step_of,
)
from course_utils.teaching.explorer import use_cpu
from course_utils.teaching.notebook import data_path

ROWS = 20_000


class TokenChunks(Dataset[torch.Tensor]):
    """Chunks of one long tensor of tokens at a random offset: BabyLlama's dataset."""

    def __init__(self, length: int = 128):
        """Make three million tokens."""
        self.tokens, self.length = torch.arange(3_000_000), length

    def __len__(self) -> int:
        """Count the chunks."""
        return len(self.tokens) // self.length - 1

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return one chunk."""
        start = index * self.length + random.randrange(self.length)
        return self.tokens[start : start + self.length]


@known("tokens in memory, step of 0.3 ms", "CPU")
def _token_chunks(folder: Path) -> Loop:
    return DataLoader(TokenChunks(), batch_size=64, shuffle=True), step_of(0.3)


@mended("tokens in memory, step of 0.3 ms")
def _token_windows(folder: Path) -> Loop:
    tokens = torch.arange(3_000_000).unfold(0, 128, 128)
    order = torch.randperm(len(tokens)).split(64)
    return [tokens[indices] for indices in order], step_of(0.3)


def _as_image(sample: tuple[bytes, int]) -> tuple[torch.Tensor, int]:
    array = np.log1p(np.load(BytesIO(sample[0])).astype(np.float32))
    smaller = (array / array.std()).reshape(48, 4, 48, 4).mean(axis=(1, 3))
    return torch.from_numpy(smaller), sample[1]


@known("WebLoader, one worker that decodes arrays", "CPU")
def _web_loader(folder: Path) -> Loop:
    import webdataset

    rng = np.random.default_rng(0)
    for shard in range(4):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for number in range(200):
                file = BytesIO()
                np.save(file, rng.integers(0, 255, (192, 192), np.uint8))
                for ending, content in (("npy", file.getvalue()), ("cls", b"1")):
                    entry = tarfile.TarInfo(f"{shard}{number:04}.{ending}")
                    entry.size = len(content)
                    tar.addfile(entry, BytesIO(content))
    shards = [str(folder / f"{shard}.tar") for shard in range(4)]
    dataset = webdataset.WebDataset(shards, shardshuffle=False, empty_check=False)
    samples = dataset.to_tuple("npy", "cls").map(_decoded).batched(32)
    return webdataset.WebLoader(samples, batch_size=None, num_workers=1), step_of(5)


def _decoded(sample: tuple[bytes, bytes]) -> tuple[torch.Tensor, int]:
    return _as_image((sample[0], int(sample[1])))


class Hits(Dataset[list[dict[str, float]]]):
    """Events as lists of hits, each hit a dict."""

    def __len__(self) -> int:
        """Count the events."""
        return ROWS

    def __getitem__(self, index: int) -> list[dict[str, float]]:
        """Return the hits of one event."""
        return [{"x": float(i), "y": 0.5, "t": 0.1 * i, "q": 1.0} for i in range(60)]


class HitArrays(Hits):
    """The same events as arrays."""

    def __getitem__(self, index: int) -> Any:
        """Return the hits of one event: x, y, t, q."""
        i = torch.arange(60.0)
        return torch.stack([i, torch.full_like(i, 0.5), 0.1 * i, torch.ones_like(i)], 1)


@known("lists of dicts, two workers", "collate or IPC")
def _dicts(folder: Path) -> Loop:
    loader = DataLoader(Hits(), batch_size=64, num_workers=2, collate_fn=as_they_are)
    gpu = step_of(5)
    return loader, lambda batch: gpu(torch.zeros(8))


@mended("lists of dicts, two workers")
def _no_dicts(folder: Path) -> Loop:
    gpu = step_of(5)
    loader = DataLoader(HitArrays(), batch_size=64, num_workers=2)
    return loader, lambda batch: gpu(torch.zeros(8))


class Stalls(InMemory):
    """One sample in 97 waits for 250 ms, such as a file on a disk that is asleep."""

    def __getitem__(self, index: int) -> torch.Tensor:
        """Wait, once in a while."""
        time.sleep(0.25 if index % 97 == 50 else 0.001)
        return self.rows[int(index)]


@known("one sample in 97 stalls, four workers", "uneven")
def _stalls(folder: Path) -> Loop:
    return DataLoader(Stalls(), batch_size=16, num_workers=4), step_of(5)


@mended("one sample in 97 stalls, four workers")
def _awake(folder: Path) -> Loop:
    return DataLoader(FromStorage(folder, 1), batch_size=16, num_workers=4), step_of(5)


class RandomWindows:
    """Batches of random windows, stacked one by one: nanoGPT's `get_batch` as an iterable."""

    def __init__(self, folder: Path, batch_size: int = 12, length: int = 256):
        """Write a file of tokens."""
        self.file, self.size, self.length = folder / "train.bin", batch_size, length
        np.arange(3_000_000, dtype=np.uint16).tofile(self.file)

    def __iter__(self) -> Iterator[Any]:
        """Yield windows and the same windows one token later, without end."""
        while True:
            data = np.memmap(self.file, dtype=np.uint16, mode="r")
            starts = torch.randint(len(data) - self.length, (self.size,)).tolist()
            rows = [data[i : i + self.length + 1].astype(np.int64) for i in starts]
            x = torch.stack([torch.from_numpy(row[:-1]) for row in rows])
            yield x, torch.stack([torch.from_numpy(row[1:]) for row in rows])


class GatheredWindows(RandomWindows):
    """The same by one gather."""

    def __iter__(self) -> Iterator[Any]:
        """Yield windows and the same windows one token later, without end."""
        data, window = np.memmap(self.file, dtype=np.uint16, mode="r"), np.arange(self.length + 1)
        while True:
            starts = torch.randint(len(data) - self.length, (self.size, 1)).numpy()
            rows = torch.from_numpy(data[starts + window].astype(np.int64))
            yield rows[:, :-1], rows[:, 1:]


@known("random windows of tokens, no DataLoader", "CPU")
def _windows(folder: Path) -> Loop:
    return RandomWindows(folder), step_of(0.2)


@mended("random windows of tokens, no DataLoader")
def _gathered(folder: Path) -> Loop:
    return GatheredWindows(folder), step_of(0.2)


class MappedBatches(IterableDataset[Any]):
    """Neighbouring events of a mapped file as one batch, in random order: PolarBERT's dataset."""

    def __init__(self, folder: Path, dtype: type[np.generic] = np.float32):
        """Write 40,000 events of 128 pulses."""
        self.size, shape = 1024, (40_960, 128, 4)
        self.x = np.memmap(folder / "x.npy", dtype, "w+", shape=shape)
        self.x[:] = 1
        self.lengths = np.memmap(folder / "l.npy", np.float32, "w+", shape=shape[:1])

    def __len__(self) -> int:
        """Count the batches."""
        return len(self.x) // self.size

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches."""
        starts = np.arange(0, len(self.x), self.size)
        np.random.shuffle(starts)
        for start in starts:
            part = slice(start, start + self.size)
            yield torch.tensor(self.x[part]), torch.tensor(self.lengths[part])


@known("mapped batches of 2 MB, one worker", "collate or IPC")
def _mapped(folder: Path) -> Loop:
    return _mapped_as(folder, np.float32)


@mended("mapped batches of 2 MB, one worker")
def _mapped_bytes(folder: Path) -> Loop:
    return _mapped_as(folder, np.uint8)


def _mapped_as(folder: Path, dtype: type[np.generic]) -> Loop:
    dataset, gpu = MappedBatches(folder, dtype), step_of(0.5)
    loader = DataLoader(dataset, batch_size=None, num_workers=1, persistent_workers=True)
    return loader, lambda batch: gpu(batch[0][:, 0].clone())


@known("torchvision ImageFolder, no workers", "CPU")
def _image_folder(folder: Path) -> Loop:
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    usual = [transforms.RandomResizedCrop(96), transforms.RandomHorizontalFlip()]
    images = ImageFolder(
        str(data_path("images")), transforms.Compose([*usual, transforms.ToTensor()])
    )
    return DataLoader(images, batch_size=16, shuffle=True), step_of(20)


def _hugging_face(folder: Path) -> Any:
    import datasets

    datasets.disable_progress_bars()
    columns = {"x": np.ones((ROWS, 32), np.float32), "label": np.arange(ROWS)}
    return datasets.Dataset.from_dict(columns).with_format("torch")


@known("rows of Hugging Face datasets as tensors", "CPU")
def _rows(folder: Path) -> Loop:
    gpu = step_of(1)
    loader = DataLoader(_hugging_face(folder), batch_size=64, shuffle=True)
    return loader, lambda batch: gpu(batch["x"])


def _slow_start(worker_id: int) -> None:
    time.sleep(1.5)


@known("workers that take 1.5 s to start, 40 batches", "start-up")
def _slow_starters(folder: Path) -> Loop:
    loader = DataLoader(InMemory(40 * 64), batch_size=64, num_workers=2, worker_init_fn=_slow_start)
    return loader, step_of(10)


@known("TensorDataset, sample by sample", "CPU")
def _tensor_dataset(folder: Path) -> Loop:
    data = TensorDataset(torch.ones(ROWS, 64), torch.arange(ROWS))
    gpu = step_of(0.5)
    return DataLoader(data, batch_size=256, shuffle=True), lambda batch: gpu(batch[0])


class Rows(Dataset[torch.Tensor]):
    """Rows of an HDF5 file, opened in `__init__`."""

    def __init__(self, folder: Path):
        """Write the file."""
        with h5py.File(folder / "rows.h5", "w") as file:
            file["x"] = np.ones((ROWS, 128), np.float32)
        self.file = h5py.File(folder / "rows.h5")

    def __len__(self) -> int:
        """Count the rows."""
        return ROWS

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return one row."""
        return torch.from_numpy(self.file["x"][index])


@known("HDF5 row by row", "CPU")
def _hdf5(folder: Path) -> Loop:
    return DataLoader(Rows(folder), batch_size=128, shuffle=True), step_of(5)


class Frame(Dataset[Any]):
    """Rows of a table by `iloc`, as in most notebooks of competitions."""

    def __init__(self) -> None:
        """Make the table."""
        import pandas

        self.table = pandas.DataFrame(np.ones((ROWS, 20), np.float32))

    def __len__(self) -> int:
        """Count the rows."""
        return ROWS

    def __getitem__(self, index: int) -> Any:
        """Return features and label of one row."""
        row = self.table.iloc[int(index)]
        return torch.tensor(row.iloc[:-1].to_numpy()), torch.tensor(row.iloc[-1])


@known("a table row by row", "CPU")
def _frame(folder: Path) -> Loop:
    gpu = step_of(1.5)
    return DataLoader(Frame(), batch_size=64, shuffle=True), lambda batch: gpu(batch[0])


@mended("a table row by row")
def _columns(folder: Path) -> Loop:
    gpu, x, y = step_of(1.5), torch.ones(ROWS, 19), torch.ones(ROWS)
    order = BatchSampler(range(ROWS), 64, drop_last=False)
    data = TensorDataset(x, y)
    return DataLoader(data, sampler=order, batch_size=None), lambda batch: gpu(batch[0])


class Pulses(Dataset[torch.Tensor]):
    """One query of a database for each event, as GraphNeT's SQLite dataset does."""

    def __init__(self, folder: Path):
        """Write 4,000 events of 50 pulses."""
        self.path = str(folder / "events.db")
        with sqlite3.connect(self.path) as base:
            base.execute("create table pulses (event integer, t real, q real)")
            rows = ((event, t, 1.0) for event in range(4000) for t in range(50))
            base.executemany("insert into pulses values (?, ?, ?)", rows)
            base.execute("create index by_event on pulses (event)")
        self.base: sqlite3.Connection | None = None

    def __len__(self) -> int:
        """Count the events."""
        return 4000

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return the pulses of one event."""
        if self.base is None:
            self.base = sqlite3.connect(self.path)
        query = "select t, q from pulses where event = ?"
        return torch.tensor(self.base.execute(query, (int(index),)).fetchall())


@known("a query for each event", "CPU")
def _sqlite(folder: Path) -> Loop:
    return DataLoader(Pulses(folder), batch_size=64, shuffle=True), step_of(3)


def _collated_text(texts: list[str]) -> torch.Tensor:
    """Turn texts into padded tokens, in Python."""
    rows = [[hash(word) % 5000 for word in text.split()] for text in texts]
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


class Texts(Dataset[str]):
    """Lines of text."""

    def __len__(self) -> int:
        """Count the lines."""
        return 8000

    def __getitem__(self, index: int) -> str:
        """Return one line."""
        return "the quick brown fox jumps over the lazy dog " * (8 + index % 9)


@known("tokens made in the collate function", "collate or IPC")
def _texts(folder: Path) -> Loop:
    return DataLoader(Texts(), batch_size=64, collate_fn=_collated_text), step_of(1.5)


class Lines(IterableDataset[torch.Tensor]):
    """A stream that knows nothing of workers: each would yield all of it."""

    def __init__(self, shared_out: bool = False):
        """Let each worker have a share, if `shared_out`."""
        self.shared_out = shared_out

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield numbers read from lines of text."""
        info = get_worker_info() if self.shared_out else None
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for number in range(first, 20_000, step):
            line = ",".join(str(number + i) for i in range(100))
            yield torch.tensor([float(word) for word in line.split(",")])


@known("a stream that ignores its workers", "CPU")
def _lines(folder: Path) -> Loop:
    return DataLoader(Lines(), batch_size=64), step_of(1.5)


@mended("a stream that ignores its workers")
def _shared_lines(folder: Path) -> Loop:
    return DataLoader(Lines(shared_out=True), batch_size=64, num_workers=2), step_of(1.5)


class Pool:
    """Batches from a pool of processes of its own, in order."""

    def __init__(self, processes: int):
        """Start nothing yet."""
        self.processes = processes

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield what the processes make."""
        context = multiprocessing.get_context("fork")
        with context.Pool(self.processes) as pool:
            for batch in pool.imap(_made, range(3000)):
                yield torch.from_numpy(batch)


def _made(number: int) -> np.ndarray:
    use_cpu(12)
    return np.full((64, 16), number, np.float32)


@known("a pool of processes of its own", "CPU")
def _pool(folder: Path) -> Loop:
    return Pool(1), step_of(6)


@mended("a pool of processes of its own")
def _made_before(folder: Path) -> Loop:
    return [torch.full((64, 16), float(number)) for number in range(3000)], step_of(6)


class Ahead(DataLoader[Any]):
    """A loader whose iteration is a generator that is one batch ahead, as in Accelerate."""

    def __iter__(self) -> Any:
        """Yield the batches, each when the next one has come."""
        batches = super().__iter__()
        batch = next(batches)
        for later in batches:
            yield batch
            batch = later
        yield batch


class Standardised(InMemory):
    """Rows that are standardised one at a time."""

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return one row."""
        row = self.rows[int(index)].double()
        for _ in range(4):
            row = (row - row.mean()) / (row.std() + 1)
        return row.float()


@known("a loader of Accelerate's shape", "CPU")
def _accelerated(folder: Path) -> Loop:
    return Ahead(Standardised(), batch_size=64), step_of(3)


@known("a step that computes on the CPU", "CPU")
def _cpu_step(folder: Path) -> Loop:
    loader = DataLoader(Standardised(), batch_size=64, shuffle=True)
    return loader, lambda batch: use_cpu(3)


class Landmarks(Dataset[Any]):
    """A picture read and resized by scikit-image, as in PyTorch's tutorial on loading data."""

    def __init__(self) -> None:
        """Find the files."""
        self.files = sorted(Path(data_path("images")).rglob("*.jpg"))

    def __len__(self) -> int:
        """Count the pictures."""
        return len(self.files)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return a picture and its points."""
        from skimage import io, transform

        image = transform.resize(io.imread(self.files[int(index)]), (96, 96))
        return {
            "image": torch.from_numpy(image.transpose(2, 0, 1)).float(),
            "points": torch.ones(2),
        }


@known("pictures resized by scikit-image", "CPU")
def _landmarks(folder: Path) -> Loop:
    gpu = step_of(10)
    loader = DataLoader(Landmarks(), batch_size=4, num_workers=1)
    return loader, lambda batch: gpu(batch["image"])


class Sequence:
    """A sequence of batches by index, as in Keras."""

    def __len__(self) -> int:
        """Count the batches."""
        return 400

    def __getitem__(self, number: int) -> np.ndarray:
        """Return one batch, from storage that takes its time."""
        if number >= len(self):
            raise IndexError(number)
        time.sleep(0.012)
        return np.full((64, 16), number, np.float32)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield them all."""
        return (self[number] for number in range(len(self)))


@known("a sequence of batches, as in Keras", "storage")
def _sequence(folder: Path) -> Loop:
    gpu = step_of(10)
    return Sequence(), lambda batch: gpu(torch.from_numpy(batch))


@known("npz per event", "CPU")
def _npz(folder: Path) -> Loop:
    for number in range(400):
        np.savez_compressed(folder / f"{number}.npz", x=np.ones((200, 4), np.float32))
    return DataLoader(Archives(folder), batch_size=32, num_workers=1), step_of(2)


class Archives(Dataset[torch.Tensor]):
    """A compressed file for each event."""

    def __init__(self, folder: Path):
        """Know the folder."""
        self.folder = folder

    def __len__(self) -> int:
        """Count the events."""
        return 40_000

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return one event."""
        return torch.from_numpy(np.load(self.folder / f"{index % 400}.npz")["x"])
