"""Load the same samples with other libraries, each used as its documentation shows.

Optional libraries are imported inside functions, and write their own file formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from course_utils.stories.peers import formats
from course_utils.stories.peers.course import COURSE, MappedBatches
from course_utils.stories.peers.peer import (
    Epoch,
    Package,
    Peers,
    Samples,
    epochs,
    peer,
    places,
    shuffled,
)

LIBRARIES: Peers = {}
BUFFER = 1000  # size of a shuffle buffer, in samples

GRAIN = Package("grain", "0.2.18", megabytes=20)
LITDATA = Package("litdata", "0.2.76", megabytes=30)
MOSAIC = Package("mosaicml-streaming", "0.13.0", megabytes=780)
SPDL = Package("spdl-core", "0.8.0", megabytes=5)


@peer(LIBRARIES, "WebDataset, tar shards", formats.tar, one_by_one=True)
def web_dataset(folder: Path, batch_size: int) -> Epoch:
    """Read shards in random order through a shuffle buffer."""
    import webdataset

    urls = sorted(map(str, folder.glob("*.tar")))

    def epoch(number: int) -> Iterator[torch.Tensor]:
        stream = webdataset.WebDataset(urls, shardshuffle=len(urls), seed=number)
        samples = stream.shuffle(BUFFER, seed=number).map(_decoded)
        for batch in samples.batched(batch_size, collation_fn=np.stack):
            yield places(batch)

    return epoch


def _decoded(sample: dict[str, Any]) -> Any:
    with BytesIO(sample["npy"]) as content:
        return np.load(content)


def _arrow(folder: Path, samples: Samples) -> None:
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    Dataset(formats.table(samples)).save_to_disk(folder / "arrow")


@peer(LIBRARIES, "HF datasets, streamed", _arrow, one_by_one=True)
def hf_stream(folder: Path, batch_size: int) -> Epoch:
    """Read Arrow files in order through a shuffle buffer."""
    from datasets import load_from_disk

    stream = load_from_disk(folder / "arrow").to_iterable_dataset(num_shards=8)
    mixed: Any = stream.shuffle(0, buffer_size=BUFFER).with_format("torch")
    return epochs(DataLoader(mixed, batch_size), mixed)


@peer(LIBRARIES, "HF datasets, by index", _arrow)
def hf_by_index(folder: Path, batch_size: int) -> Epoch:
    """Map Arrow files into memory, and read samples by index."""
    from datasets import load_from_disk

    return shuffled(load_from_disk(folder / "arrow").with_format("torch"), batch_size)


def _mds(folder: Path, samples: Samples) -> None:
    from streaming import MDSWriter

    shape = ",".join(map(str, samples.shape[1:]))
    with MDSWriter(out=str(folder), columns={"pulses": f"ndarray:float32:{shape}"}) as writer:
        for sample in samples:
            writer.write({"pulses": sample})


@peer(LIBRARIES, "MosaicML Streaming", _mds, needs=MOSAIC, one_by_one=True)
def mosaic(folder: Path, batch_size: int) -> Epoch:
    """Read existing MDS shards."""
    from streaming import StreamingDataset

    data = StreamingDataset(local=str(folder), batch_size=batch_size, shuffle=True)
    return epochs(DataLoader(data, batch_size))  # it counts its epochs itself


def _chunks(folder: Path, samples: Samples) -> None:
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(folder), chunk_bytes="2MB")
    for number, sample in enumerate(samples):
        writer[number] = sample
    writer.done()
    writer.merge()


@peer(LIBRARIES, "LitData", _chunks, needs=LITDATA, one_by_one=True)
def litdata(folder: Path, batch_size: int) -> Epoch:
    """Read existing chunks."""
    from litdata import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(str(folder), shuffle=True)
    return epochs(StreamingDataLoader(dataset, batch_size=batch_size))


@peer(LIBRARIES, "grain, over a memmap", formats.npy, needs=GRAIN, uses="16 threads")
def grain_memmap(folder: Path, batch_size: int) -> Epoch:
    """Read a memory-mapped array with grain, one sample at a time."""
    import grain

    samples = np.load(folder / "pulses.npy", mmap_mode="r")

    def epoch(number: int) -> Iterator[torch.Tensor]:
        data = grain.MapDataset.source(samples).shuffle(seed=number).batch(batch_size)
        return map(places, data.to_iter_dataset())

    return epoch


@peer(LIBRARIES, "SPDL, threads over a memmap", formats.npy, needs=SPDL, uses="2 threads")
def spdl(folder: Path, batch_size: int) -> Epoch:
    """Copy batches in two threads."""
    from spdl.pipeline import PipelineBuilder

    dataset = MappedBatches(folder)

    def epoch(number: int) -> Iterator[torch.Tensor]:
        batches = torch.split(torch.randperm(len(dataset)), batch_size)
        copy = PipelineBuilder().add_source(batches).pipe(dataset.__getitems__, concurrency=2)
        pipeline = copy.add_sink(2).build(num_threads=2)
        with pipeline.auto_stop():
            yield from map(places, pipeline)

    return epoch


ALL: Peers = {**COURSE, **LIBRARIES}
