"""Pipelines of WebDataset as lecture notes print them, in words of our own, and mended.

Each runs where `urls` (the URLs of 6 tar shards), `count` (their 48 samples, JPEGs of several
sizes whose class is their number) and `folder` (an empty folder) are known. What it calls `served`
are the numbers that came.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Snippet:
    """One thing wrong in a snippet."""

    name: str
    source: str  # which lecture note has it
    broken: str
    error: str  # a regular expression that what the broken one prints has in it
    mended: str
    why: str
    needs: str = ""  # a package that is not part of the course; empty: it runs here


PIPELINES = (
    Snippet(
        name="address",
        source="notes 003 and 004",
        broken="""\
import webdataset as wds

data = wds.WebDataset("s3://my-bucket/train-{000000..000002}.tar", shardshuffle=False)
served = [int(sample["cls"]) for sample in data]
""",
        error=r"ValueError: s3://my-bucket/train-000000.tar: no gopen handler defined",
        mended="""\
import webdataset as wds
from webdataset.tariterators import group_by_keys

from course_utils.loading.shards import open_shards, read_members

shards = wds.SimpleShardList(urls)  # s3://... as well: fsspec opens them
data = wds.DataPipeline(shards, wds.split_by_worker, open_shards, read_members, group_by_keys)
served = [int(sample["cls"]) for sample in data]
""",
        why="webdataset opens files, http:, pipe: and some more, but not s3:. Something else has "
        "to open it: fsspec, as here, or a command behind pipe:.",
    ),
    Snippet(
        name="sizes",
        source="note 003",
        broken="""\
import webdataset as wds

data = wds.WebDataset(urls, shardshuffle=False).decode("torchrgb").to_tuple("jpg", "cls")
served = [int(label) for _, labels in data.batched(16) for label in labels]
""",
        error=r"AssertionError: .*all shapes must be equal",
        mended="""\
import webdataset as wds
from torchvision import transforms

resize = transforms.Resize((32, 32))
data = wds.WebDataset(urls, shardshuffle=False).decode("torchrgb").to_tuple("jpg", "cls")
data = data.map_tuple(resize, int)
served = [int(label) for _, labels in data.batched(16) for label in labels]
""",
        why="A batch is one tensor, so its images need one size. Photographs have many.",
    ),
    Snippet(
        name="batches",
        source="note 003",
        broken="""\
import webdataset as wds
from torch.utils.data import DataLoader

data = wds.WebDataset(urls, shardshuffle=False).decode().to_tuple("cls").batched(16)
(labels,) = next(iter(DataLoader(data)))
print("the shape of a batch of 16 labels:", tuple(labels.shape))
""",
        error=r"labels: \(1, 16\)",
        mended="""\
import webdataset as wds
from torch.utils.data import DataLoader

data = wds.WebDataset(urls, shardshuffle=False).decode().to_tuple("cls").batched(16)
served = [int(label) for (labels,) in DataLoader(data, batch_size=None) for label in labels]
""",
        why="DataLoader makes batches of what it gets, here of one batch each: batch_size is 1 "
        "by default. With batch_size=None it passes on what it gets.",
    ),
    Snippet(
        name="tensors",
        source="note 003",
        broken="""\
import webdataset as wds
from torchvision import transforms

transform = transforms.Compose([transforms.Resize((32, 32)), transforms.ToTensor()])
data = wds.WebDataset(urls, shardshuffle=False).decode("torchrgb").to_tuple("jpg", "cls")
served = [label for _, label in data.map_tuple(transform, int)]
""",
        error=r"TypeError: pic should be PIL Image or ndarray. Got <class 'torch.Tensor'>",
        mended="""\
import webdataset as wds
from torchvision import transforms

transform = transforms.Compose([transforms.Resize((32, 32)), transforms.ToTensor()])
data = wds.WebDataset(urls, shardshuffle=False).decode("pil").to_tuple("jpg", "cls")
served = [label for _, label in data.map_tuple(transform, int)]
""",
        why="decode('torchrgb') has made a tensor already. ToTensor takes PIL images and arrays.",
    ),
    Snippet(
        name="no_tensors",
        source="note 004",
        broken="""\
import webdataset as wds
from torchvision import transforms

transform = transforms.Compose([transforms.Resize(32), transforms.CenterCrop(32)])
data = wds.WebDataset(urls, shardshuffle=False).decode("pil").to_tuple("jpg", "cls")
images, labels = next(iter(data.map_tuple(transform, int).batched(16)))
print("a batch is a", type(images).__name__, "of", type(images[0]).__name__)
""",
        error=r"a batch is a list of Image",
        mended="""\
import webdataset as wds
from torchvision import transforms

steps = [transforms.Resize(32), transforms.CenterCrop(32), transforms.PILToTensor()]
data = wds.WebDataset(urls, shardshuffle=False).decode("pil").to_tuple("jpg", "cls")
data = data.map_tuple(transforms.Compose(steps), int).batched(16)
served = [int(label) for images, labels in data for label in labels if len(images.shape) == 4]
""",
        why="Only tensors and arrays are stacked; PIL images stay a list, which no model takes.",
    ),
    Snippet(
        name="shard_order",
        source="note 003",
        broken="""\
import webdataset as wds

data = wds.WebDataset(urls, shardshuffle=True).decode().to_tuple("cls")
first, second = ([label for (label,) in data] for epoch in range(2))
print("the second epoch has the order of the first:", first == second)
""",
        error=r"positive integer(?s:.*)order of the first: True",
        mended="""\
import webdataset as wds

data = wds.WebDataset(urls, shardshuffle=100, detshuffle=True, seed=1).decode().to_tuple("cls")
served, second = ([label for (label,) in data] for epoch in range(2))
print("the second epoch has the order of the first:", served == second)
""",
        why="shardshuffle wants a number, and draws the same order from its seed in each epoch. "
        "detshuffle=True counts the epochs, so that each has an order of its own.",
    ),
    Snippet(
        name="resampled",
        source="note 003",
        broken="""\
import os
from itertools import islice

import webdataset as wds

seen = []
for rank in ("0", "1"):
    os.environ.update(RANK=rank, WORLD_SIZE="2")  # as torchrun does
    data = wds.WebDataset(
        urls, resampled=True, shardshuffle=True, nodesplitter=wds.split_by_node
    )
    numbers = [int(sample["cls"]) for sample in islice(data, 10 * count)]
    seen.append(set(numbers[:count]))
print(f"no end after {len(numbers)} of {count} samples")
print(f"with {count} draws each, {len(seen[0] & seen[1])} samples were on both ranks")
print(f"rank 0 saw {len(seen[0])} of {count} samples, rank 1 saw {len(seen[1])}")
""",
        error=r"ignored for resampled(?s:.*)no end after 480 of 48 samples",
        mended="""\
import os

import webdataset as wds

served = []
for rank in ("0", "1"):
    os.environ.update(RANK=rank, WORLD_SIZE="2")  # as torchrun does
    data = wds.WebDataset(
        urls, shardshuffle=100, detshuffle=True, seed=1, nodesplitter=wds.split_by_node
    )
    served += [int(sample["cls"]) for sample in data]
""",
        why="resampled draws shards with replacement, for ever, and each worker draws its own: "
        "nothing is split. with_epoch ends the draws, but makes no epoch of them.",
    ),
    Snippet(
        name="buffer",
        source="note 004",
        broken="""\
import webdataset as wds

from course_utils.loading.shards import decode_image

decoded = []


def decode(sample):
    image, label = decode_image(sample)
    decoded.append(image.float().nbytes)
    return image.float(), label


data = iter(wds.WebDataset(urls, shardshuffle=False).map(decode).shuffle(10000))
first = next(data)
print(f"decoded before the first sample came: {len(decoded)}, {sum(decoded) / 1e3:,.0f} kB")
served = [first[1], *(label for _, label in data)]
""",
        error=r"first sample came: 48, 1,\d{3} kB",
        mended="""\
import webdataset as wds

from course_utils.loading.shards import decode_image

decoded = []


def decode(sample):
    image, label = decode_image(sample)
    decoded.append(image.float().nbytes)
    return image.float(), label


data = iter(wds.WebDataset(urls, shardshuffle=False).shuffle(10000).map(decode))
first = next(data)
print(f"decoded before the first sample came: {len(decoded)}, {sum(decoded) / 1e3:,.0f} kB")
served = [first[1], *(label for _, label in data)]
""",
        why="A buffer behind the decoder holds images, 10,000 of 3 x 224 x 224 floats are 6 GB in "
        "each worker. Before it, the buffer holds the bytes of files.",
    ),
)
