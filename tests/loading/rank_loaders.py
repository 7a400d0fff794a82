"""Run every loader in one rank of torchrun, and write the samples that it served.

python rank_loaders.py FOLDER OUT START_METHOD
"""

import json
import os
import sys
from pathlib import Path

from torch import distributed

from tests.loading.loaders import KINDS

# Kinds by number of workers; all others load in the main process.
KINDS_OF = {0: tuple(KINDS), 1: ("ragged", "batches", "events", "tar"), 2: ("ragged", "events")}


def served(name: str, folder: Path, workers: int, method: str | None) -> list[list[int]]:
    """Return the samples of two epochs; the loader finds the rank in the environment."""
    kind = KINDS[name]
    options = {"multiprocessing_context": method, "persistent_workers": True} if workers else {}
    loader = kind.make(folder)
    batches = kind.load(loader, folder, num_workers=workers, **options)
    epochs = []
    for _ in range(2):
        expected = len(loader)
        found = [kind.ids(batch) for batch in loader.follow(batches)]
        assert expected == (len(found) if kind.has_position else sum(map(len, found)))
        epochs.append([number for batch in found for number in batch])
    return epochs


if __name__ == "__main__":
    folder, out, method = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    for name in (
        "RANK",
        "WORLD_SIZE",
    ):  # other workers than forked ones get the rank from the loader
        os.environ.pop(name)
    # A worker that is not forked needs a second for imports, so only two kinds use such workers.
    methods = {0: None, 1: "fork" if hasattr(os, "fork") else method, 2: method}
    found = {
        f"{name} {workers}": served(name, folder, workers, methods[workers])
        for workers, names in KINDS_OF.items()
        for name in names
    }
    (out / f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()
