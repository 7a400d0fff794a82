from pathlib import Path

import numpy as np
from torch.utils.data import DataLoader

from course_utils.hardware.storage import VirtualClock, slow_storage
from course_utils.loading.root_files import ClusterStream, RootFiles
from course_utils.stories.formats_compared.reading_root import read_epoch
from data_scripts import make_collisions
from keepfed.loaders.ragged import RaggedCollate


def test_random_jets_need_more_requests_and_mix_better_than_clusters(tmp_path: Path) -> None:
    for number, kind in enumerate(("signal", "background")):
        jets = make_collisions.draw_jets(kind, 500, np.random.default_rng(number))
        make_collisions.write_jets(tmp_path / f"{kind}.root", jets)
    storage, signal = slow_storage(tmp_path, "XRootD"), np.arange(1_000) >= 500
    VirtualClock(storage)
    files = RootFiles(sorted(tmp_path.glob("*.root")), ["part_energy"], fs=storage)
    collate = RaggedCollate("values")
    shuffled = DataLoader(files, 50, shuffle=True, collate_fn=collate)
    alone = read_epoch(storage, shuffled, signal, memory=50, batches=2)
    stream = DataLoader(ClusterStream(files, buffer=1), 50, collate_fn=collate)
    clusters = read_epoch(storage, stream, signal, memory=1)
    assert (alone.requests, clusters.requests) == (1_000, 8)
    assert alone.seconds > 50 * clusters.seconds
    assert alone.mixing.ratio < 2 < 4 < clusters.mixing.ratio
