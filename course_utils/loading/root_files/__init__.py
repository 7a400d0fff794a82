"""Read ROOT files a cluster at a time: TTree or RNTuple, local or remote.

    files = RootFiles(sorted(folder.glob("*.root")), ["part_energy", "part_deta"], ["weight"])
    stream = ClusterStream(files, buffer=2000)
    loader = DataLoader(stream, 64, num_workers=2, collate_fn=RaggedCollate("values"))
    for batch in loader: ...  # {"values": Ragged, "index": (64,), "weight": (64,)}

A cluster is the smallest part of a file in which all columns begin and end with the same entry. A
basket of a TTree, or a page of an RNTuple, is compressed as a whole, so one entry costs as much as
a whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from keepfed.loaders.stream import ShardedStream, StreamOptions
from keepfed.loaders.workers import LazyFile
from keepfed.measure.spans import stage
from keepfed.reading import reading

_CHECK = "Check that it is complete, and the names of its columns"


class Cluster(NamedTuple):
    """Entries of one file that are stored together."""

    file: int
    start: int
    stop: int


class Entries(NamedTuple):
    """Entries of a file: entry i has the rows `offsets[i]` to `offsets[i + 1]`."""

    values: NDArray[np.float32]  # (rows, columns)
    offsets: NDArray[np.int64]  # (entries + 1,)
    fields: Mapping[str, NDArray[Any]]  # each (entries,)


class RootFiles(Dataset[dict[str, Any]]):
    """The entries of ROOT files with the same layout. Only the named columns are read.

    A sample has the rows of an entry as `values`, its position in all files as `index`, and its
    fields.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        rows: Sequence[str],
        fields: Sequence[str] = (),
        *,
        tree: str = "",
        fs: Any = None,
    ):
        """Read where the clusters of each file are.

        Args:
            paths: Files, in the order of their entries. Without `fs`, they may be URLs.
            rows: Ragged columns of one collection, such as the particles of a jet.
            fields: Columns with one number per entry.
            tree: Name of the TTree or RNTuple. "": the only one of a file.
            fs: fsspec file system to read from, such as `slow_storage(...)`.

        Raises:
            OSError: If a file is missing, is not a ROOT file, or lacks the tree or a column.
        """
        self.rows, self.fields = list(rows), list(fields)
        self._files = [LazyFile(_open, str(path), tree, fs) for path in paths]
        edges = []
        for path, file in zip(paths, self._files, strict=True):
            with reading(path, step=_CHECK):
                edges.append(cluster_edges(file.file, [*self.rows, *self.fields]))
        self.clusters = [
            Cluster(file, *pair)
            for file, own in enumerate(edges)
            for pair in pairwise(own)
            if pair[0] < pair[1]  # the file may be empty
        ]
        # index of the first entry of each file
        self.firsts = np.cumsum([0, *(own[-1] for own in edges)]).tolist()

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def __getitem__(self, index: int) -> dict[str, Any]:
        index = range(len(self))[index]
        file = int(np.searchsorted(self.firsts, index, "right")) - 1
        entry = index - self.firsts[file]
        return next(self.samples(Cluster(file, entry, entry + 1)))

    def samples(self, cluster: Cluster) -> Iterator[dict[str, Any]]:
        """Read a cluster, and yield its samples."""
        values, offsets, fields = self.read(cluster)
        first = self.firsts[cluster.file] + cluster.start
        for entry, rows in enumerate(np.split(values, offsets[1:-1])):
            own = {name: column[entry] for name, column in fields.items()}
            yield {"values": torch.from_numpy(rows), "index": first + entry, **own}

    def read(self, cluster: Cluster) -> Entries:
        """Read a cluster, or any other range of a file."""
        file = self._files[cluster.file]
        with reading(file.args[0], cluster.start, step=_CHECK):
            return read_entries(file.file, self.rows, self.fields, cluster.start, cluster.stop)

    def close(self) -> None:
        """Close the files in this process. The next read opens them again."""
        for file in self._files:
            file.close()


class ClusterStream(ShardedStream[dict[str, Any], Cluster]):
    """The samples of ROOT files. Exactly one worker of one rank reads each cluster, once per epoch.

    A worker holds a cluster, and `buffer` samples.
    """

    def __init__(self, files: RootFiles, **options: Unpack[StreamOptions]):
        """Read nothing yet; `ShardedStream` describes the options."""
        self.files = files
        super().__init__(files.clusters, **options)

    def read(self, shards: Sequence[Cluster]) -> Iterator[dict[str, Any]]:
        """Yield the samples of these clusters."""
        return chain.from_iterable(map(self.files.samples, shards))

    def size(self, shard: Cluster) -> int:
        """Return the number of entries of a cluster."""
        return shard.stop - shard.start

    def close(self) -> None:
        """Close the files in this process. The next loop opens them again."""
        super().close()
        self.files.close()


def read_entries(
    tree: Any, rows: Sequence[str], fields: Sequence[str], start: int, stop: int
) -> Entries:
    """Read entries of an open TTree or RNTuple: ragged columns `rows`, and `fields`."""
    import awkward

    with stage("read"):  # and decompress
        array = tree.arrays([*rows, *fields], entry_start=start, entry_stop=stop)
    with stage("decode"):
        flat = [awkward.flatten(array[name]).to_numpy() for name in rows]
        offsets = np.cumsum([0, *awkward.num(array[rows[0]])], dtype=np.int64)
        values = np.stack(flat, axis=1).astype(np.float32, copy=False)
        return Entries(values, offsets, {name: _signed(array[name]) for name in fields})


def _signed(column: Any) -> NDArray[Any]:
    """Return a column with a type that torch can collate, also for numbers of runs and events."""
    values: NDArray[Any] = column.to_numpy()
    return values.astype(np.int64) if values.dtype.kind == "u" else values


def _open(path: str, tree: str, fs: Any) -> Any:
    import uproot

    where, options = (fs.unstrip_protocol(path), fs.storage_options) if fs else (path, {})
    file = uproot.open(where, array_cache=None, object_cache=None, **options)
    names = sorted({*file.keys(filter_classname=["TTree", "ROOT::RNTuple"], cycle=False)})
    if (tree not in names) if tree else (len(names) != 1):
        file.close()
        contents = ", ".join(names) or "no tree"
        raise FileNotFoundError(f"{path} contains {contents}. Pass the name of the tree as `tree`.")
    return file[tree or names[0]]


def cluster_edges(tree: Any, columns: list[str]) -> list[int]:
    """Return the entries at which clusters begin, and the number of entries."""
    if missing := [name for name in columns if name not in tree]:
        there = ", ".join(tree.keys())
        raise ValueError(f"the tree {tree.name} has no column {', '.join(missing)}, only {there}")
    if hasattr(tree, "common_entry_offsets"):  # a TTree
        return [int(edge) for edge in tree.common_entry_offsets(filter_name=columns)]
    firsts = [int(cluster.num_first_entry) for cluster in tree.cluster_summaries]
    return [*firsts, int(tree.num_entries)]
