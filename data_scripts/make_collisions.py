"""Create jets of proton collisions in ROOT files, with signal and background in separate files.

    python -m data_scripts.make_collisions --size M
    python -m data_scripts.make_collisions --size M --check

The layout is that of JetClass, an open data set of simulated LHC jets (Qu, Li and Qian 2022,
doi:10.5281/zenodo.6619768): a tree `tree` with one entry per jet, columns `jet_*` and `label_*`,
and ragged columns `part_*` with the particles of each jet. The physics is a toy. JetClass has no
event weights. The column `weight` adds them as a generator beyond leading order does: all weights
of a file have the same size, and some are negative.

ttree/signal_0.root     TTree, the format of most files today
rntuple/signal_0.root   RNTuple, its successor, with the same jets

The same seed gives the same jets, but not the same bytes, because ROOT stores the time of writing.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from data_scripts import files
from data_scripts.command import DatasetScript

FORMS = ("ttree", "rntuple")
COUNTS = {"S": 8_000, "M": 40_000, "L": 400_000}
FILES = {"signal": 2, "background": 6}  # files of equal size
CLUSTER = 125  # jets, but real clusters have megabytes
NEGATIVE = {"signal": 0.0, "background": 0.2}  # share of jets with a negative weight
EXPECTED = {"signal": 100.0, "background": 10_000.0}  # sum of all weights
PARTICLES = {"signal": 45, "background": 35}  # in the mean

Columns = dict[str, Any]  # name -> array, ragged for the particles


def build(folder: Path, size: str, seed: int) -> files.Facts:
    """Fill an empty folder with the jets of `size`, in both formats."""
    each = COUNTS[size] // sum(FILES.values())
    names = [(kind, number) for kind, count in FILES.items() for number in range(count)]
    for form in FORMS:
        (folder / form).mkdir()
    for place, (kind, number) in enumerate(tqdm(names, unit="file", disable=None)):
        jets = draw_jets(kind, each, np.random.default_rng([seed, place]))
        jets["weight"] *= EXPECTED[kind] / (FILES[kind] * each * (1 - 2 * NEGATIVE[kind]))
        for form in FORMS:
            write_jets(folder / form / f"{kind}_{number}.root", jets, form)
    return {"counts": {kind: count * each for kind, count in FILES.items()}}


def draw_jets(kind: str, count: int, rng: np.random.Generator) -> Columns:
    """Return jets of one kind. Their weights are 1 or -1."""
    import awkward

    sizes = 1 + rng.negative_binomial(8, 8 / (8 + PARTICLES[kind]), count)
    jet = np.repeat(np.arange(count), sizes)
    pt, eta = 500 * (1 - rng.random(count)) ** -0.25, rng.uniform(-2, 2, count)
    energy = rng.exponential(size=len(jet)) ** 2
    energy *= (pt * np.cosh(eta) / np.bincount(jet, energy))[jet]
    # signal has two prongs, closer together at high pt
    apart = (250 / pt if kind == "signal" else 0 * pt) * [[-0.5], [0.5]]
    prong, angle = rng.integers(2, size=len(jet)), rng.uniform(0, 2 * np.pi, count)[jet]
    parts = {
        "part_energy": energy,
        "part_deta": apart[prong, jet] * np.cos(angle) + rng.normal(scale=0.1, size=len(jet)),
        "part_dphi": apart[prong, jet] * np.sin(angle) + rng.normal(scale=0.1, size=len(jet)),
        "part_charge": rng.integers(-1, 2, len(jet)),
    }
    weight = np.where(rng.permutation(count) < NEGATIVE[kind] * count, -1, 1)
    jets = {"jet_pt": pt, "jet_eta": eta, "weight": weight, "label_Hbb": kind == "signal"}
    return {
        **{name: np.full(count, column, np.float32) for name, column in jets.items()},
        **{name: awkward.unflatten(part.astype(np.float32), sizes) for name, part in parts.items()},
    }


def write_jets(path: Path, jets: Columns, form: str = "ttree") -> None:
    """Write a TTree in which a basket of each column has CLUSTER jets, or such an RNTuple."""
    import awkward
    import uproot

    types = {name: awkward.type(column).content for name, column in jets.items()}
    with uproot.recreate(path, compression=uproot.LZ4(4)) as file:
        if form == "rntuple":
            tree = file.mkrntuple("tree", types)
        else:  # all columns of particles share a counter
            tree = file.mktree("tree", types, counter_name=lambda _: "jet_nparticles")
        for first in range(0, len(jets["weight"]), CLUSTER):
            tree.extend({name: column[first : first + CLUSTER] for name, column in jets.items()})


SCRIPT = DatasetScript(
    name="collisions",
    version=1,
    counts=COUNTS,
    bytes_each=dict.fromkeys("SML", 1_500),
    seconds={"S": 1, "M": 2, "L": 19},
    build=build,
    usage=__doc__,
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
