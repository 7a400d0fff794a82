"""Loaders of ROOT files: ours, and uproot's iterate as its documentation shows it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import awkward as ak
import numpy as np
import torch
import uproot
from torch.utils.data import DataLoader

from course_utils.loading.root_files import ClusterStream, RootFiles
from course_utils.stories.peers.libraries import BUFFER
from course_utils.stories.peers.peer import Epoch, Peers, Samples, peer
from keepfed.loaders.ragged import RaggedCollate
from keepfed.loaders.stream import batched

ROOT_PEERS: Peers = {}
COLUMNS = ["a", "b", "c", "d"]
FILES, CLUSTER, TOGETHER = 4, 250, 16


def root(folder: Path, samples: Samples) -> None:
    """Write TTrees with ragged columns, in clusters of 250 entries."""
    for number, part in enumerate(np.array_split(samples, FILES)):
        with uproot.recreate(folder / f"{number}.root", compression=uproot.LZ4(4)) as file:
            types = dict.fromkeys(COLUMNS, "var * float32")
            tree = file.mktree("tree", types, counter_name=lambda _: "n")
            for first in range(0, len(part), CLUSTER):
                block = part[first : first + CLUSTER]
                columns = (ak.from_regular(block[:, :, n]) for n in range(len(COLUMNS)))
                tree.extend(dict(zip(COLUMNS, columns, strict=True)))


@peer(ROOT_PEERS, "clusters in a buffer", root)
def cluster_stream(folder: Path, batch_size: int) -> Epoch:
    stream = ClusterStream(RootFiles(sorted(folder.glob("*.root")), COLUMNS), buffer=BUFFER)
    loader = DataLoader(stream, batch_size, collate_fn=RaggedCollate("values"))

    def epoch(number: int) -> Iterator[torch.Tensor]:
        stream.set_epoch(number)
        for batch in loader:
            yield batch["values"].values[batch["values"].offsets[:-1], 0]

    return epoch


@peer(ROOT_PEERS, "16 clusters joined and permuted", root)
def joined_clusters(folder: Path, batch_size: int) -> Epoch:
    files = RootFiles(sorted(folder.glob("*.root")), COLUMNS)

    def epoch(number: int) -> Iterator[torch.Tensor]:
        rng = np.random.default_rng(number)
        order = iter(rng.permutation(len(files.clusters)).tolist())
        while chosen := list(islice(order, TOGETHER)):
            parts = [files.read(files.clusters[one]) for one in chosen]
            firsts = np.concatenate([part.values[part.offsets[:-1], 0] for part in parts])
            for batch in batched(rng.permutation(firsts), batch_size):
                yield torch.from_numpy(np.array(batch))

    return epoch


@peer(ROOT_PEERS, "uproot.iterate, in order", root)
def uproot_iterate(folder: Path, batch_size: int) -> Epoch:
    paths = [f"{path}:tree" for path in sorted(folder.glob("*.root"))]

    def epoch(number: int) -> Iterator[torch.Tensor]:
        for array in uproot.iterate(paths, COLUMNS, step_size=batch_size):
            flat = [ak.flatten(array[name]).to_numpy() for name in COLUMNS]
            values = torch.from_numpy(np.stack(flat, axis=1))
            yield values[np.cumsum([0, *ak.num(array["a"])])[:-1], 0]

    return epoch
