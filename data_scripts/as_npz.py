"""Write events as one NumPy archive each, as they are or compressed."""

from pathlib import Path

import numpy as np
from tqdm import trange

from data_scripts.native import Events

FILES_PER_FOLDER = 1000


def write(events: Events, path: Path, *, deflate: bool = False) -> None:
    """Write one .npz per event: `pulses`, and its row of the table as `event`."""
    save = np.savez_compressed if deflate else np.savez
    title = "npz-deflate" if deflate else "npz"
    for index in trange(len(events), desc=title, unit="event", disable=None):
        target = path / npz_name(index)
        if index % FILES_PER_FOLDER == 0:
            target.parent.mkdir(parents=True)
        save(target, pulses=events[index], event=events.table[index])


def npz_name(index: int) -> str:
    """Return where event `index` is below the npz folder, such as 002/002345.npz."""
    return f"{index // FILES_PER_FOLDER:03d}/{index:06d}.npz"
