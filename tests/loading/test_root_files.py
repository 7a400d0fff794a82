from itertools import chain
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot

from course_utils.hardware.storage import VirtualClock, slow_storage
from course_utils.loading.root_files import Cluster, ClusterStream, RootFiles
from data_scripts import make_collisions
from keepfed.loaders.ragged import RaggedCollate

PARTICLES = ["part_energy", "part_deta"]
JETS = 300  # in a file: clusters of 125, 125 and 50
LAST = (250, 300)


@pytest.fixture(scope="module", params=["ttree", "rntuple"])
def paths(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp(request.param)
    for kind in ("signal", "background"):
        jets = make_collisions.draw_jets(kind, JETS, np.random.default_rng([7, len(kind)]))
        make_collisions.write_jets(folder / f"{kind}.root", jets, request.param)
    return [folder / "signal.root", folder / "background.root"]


def test_clusters_and_entries_have_the_values_that_were_written(paths: list[Path]) -> None:
    for preset in (None, "NFS", "XRootD"):
        fs = slow_storage(paths[0].parent, preset, cache_mb=0) if preset else None
        if fs:
            VirtualClock(fs)
        files = RootFiles(paths, PARTICLES, ["weight", "label_Hbb"], fs=fs)
        assert (len(files), len(files.clusters)) == (2 * JETS, 6)
        assert files.clusters[:3] == [Cluster(0, *edges) for edges in ((0, 125), (125, 250), LAST)]
        for path, first in zip(paths, (0, 3), strict=True):
            truth = uproot.open(path)["tree"].arrays()
            parts = [files.read(cluster) for cluster in files.clusters[first : first + 3]]
            values = np.concatenate([entries.values for entries in parts])
            for column, name in zip(values.T, PARTICLES, strict=True):
                np.testing.assert_array_equal(column, ak.flatten(truth[name]))
            lengths = np.concatenate([np.diff(entries.offsets) for entries in parts])
            np.testing.assert_array_equal(lengths, ak.num(truth["part_energy"]))
            for name in ("weight", "label_Hbb"):
                fields = np.concatenate([entries.fields[name] for entries in parts])
                np.testing.assert_array_equal(fields, truth[name])
    samples = list(chain(*map(files.samples, files.clusters)))
    for index in (0, 124, 125, JETS, -1):
        alone, within = files[index], samples[index]
        assert alone["index"] == within["index"] == index % len(files)
        assert alone["weight"] == within["weight"]
        assert (alone["values"] == within["values"]).all()
    with pytest.raises(IndexError):
        files[len(files)]


def test_uproot_reads_a_cluster_of_a_ttree_at_once_but_pages_one_by_one(paths: list[Path]) -> None:
    fs = slow_storage(paths[0].parent, "XRootD")
    VirtualClock(fs)
    files = RootFiles(paths, PARTICLES, ["weight"], fs=fs)
    assert fs.counters().opens == len(paths)
    fs.reset_counters()
    for cluster in files.clusters:
        files.read(cluster)
    requests, tree = fs.counters().requests / len(files.clusters), files._files[0].file
    ClusterStream(files).close()
    assert tree.file.closed
    assert requests == 1 if paths[0].parent.name.startswith("ttree") else requests > 5
    assert fs.counters().opens == 0


def _counters(path: Path, events: dict[str, Any]) -> None:
    """Write a counter for each ragged column, as in many private files."""
    with uproot.recreate(path, compression=uproot.ZLIB(1)) as file:
        file.mkdir("analysis")
        types = {name: ak.type(column).content for name, column in events.items()}
        tree = file.mktree("Events", types)
        for part in (slice(0, 7), slice(7, 100)):
            tree.extend({name: column[part] for name, column in events.items()})


def _doubles(path: Path, events: dict[str, Any]) -> None:
    """Write float64 and int64 columns without compression, next to a histogram."""
    with uproot.recreate(path, compression=None) as file:
        file["h"] = np.histogram([1.0, 2.0])
        file.mktree("Events", {name: ak.values_astype(c, "float64") for name, c in events.items()})


def test_files_of_other_code_are_read_unchanged(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 4, 100)  # some events have no muon
    events = {
        "genWeight": ak.Array(rng.normal(size=100)),
        "event": ak.Array(rng.integers(2**40, size=100).astype("u8")),
        "Muon_pt": ak.unflatten(rng.exponential(size=lengths.sum()).astype("f4"), lengths),
        "Muon_charge": ak.unflatten(rng.choice([-1, 1], lengths.sum()), lengths),
    }
    path, columns = tmp_path / "mine.root", ["Muon_pt", "Muon_charge"]
    for write in (_counters, _doubles):
        write(path, events)
        files = RootFiles([path], columns, ["genWeight", "event"])
        samples = [*ClusterStream(files, buffer=1, shuffle_shards=False)]
        assert [len(sample["values"]) for sample in samples] == lengths.tolist(), write
        batch = RaggedCollate("values")(samples)
        for name in files.fields:
            assert batch[name].tolist() == events[name].tolist()
        values = np.concatenate([sample["values"] for sample in samples])
        for column, name in zip(values.T, columns, strict=True):
            np.testing.assert_array_equal(column, ak.flatten(events[name]))
        files.close()


def test_unclear_tree_and_unknown_column_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "two.root"
    muons = ak.Array([[1.0], [], [2.0, 3.0]])
    with uproot.recreate(path) as file:
        for name in ("Events", "Runs"):
            file.mktree(name, {"pt": muons, "jet": muons[::-1], "weight": np.arange(3.0)})
    with pytest.raises(FileNotFoundError, match=r"contains Events, Runs\. Pass the name"):
        RootFiles([path], ["pt"])
    with pytest.raises(OSError, match=r"two\.root: the tree Events has no column mass, only"):
        RootFiles([path], ["pt", "mass"], tree="Events")
