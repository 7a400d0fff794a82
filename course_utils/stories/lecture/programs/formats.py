"""The same loop on one file per event, and on single files in two orders."""

from torch.utils.data import DataLoader

from course_utils.hardware.gpu import get_accelerator
from course_utils.hardware.storage import slow_storage
from course_utils.loading.events import open_events, pad_collate
from course_utils.stories.lecture import Finding
from course_utils.stories.lecture.programs.loop import busy, train
from course_utils.teaching.notebook import data_path
from keepfed.formatting import size

BATCH, STEPS = 16, 8
WAYS = {  # format, shuffled
    "npz per event": ("npz", True),
    "HDF5": ("hdf5", True),
    "npy": ("npy", True),
    "npy, in order": ("npy", False),
}


def run() -> Finding:
    """Train a few steps on each format, without workers."""
    folder, gpu = data_path("events", "S"), get_accelerator(step_ms=40)
    traces, table = {}, [["", "GPU busy", "requests per batch", "read per batch"]]
    for name, (kind, shuffle) in WAYS.items():
        storage = slow_storage(folder, "busy Lustre", cache_mb=0)
        events = open_events(folder, kind, fs=storage)
        storage.reset_counters()
        loader = DataLoader(events, BATCH, shuffle=shuffle, collate_fn=pad_collate)
        traces[name] = train(gpu, loader, steps=STEPS)
        asked = storage.counters()
        requests, read = (
            count / STEPS for count in (asked.requests + asked.opens, asked.bytes_read)
        )
        table.append([name, busy(traces[name]), f"{requests:.0f}", size(read)])
    each, _, one, ordered = (row[1:3] for row in table[1:])
    return Finding(
        f"With one file per event, a batch takes {each[1]} requests, and the GPU computes "
        f"{each[0]} of the time. With a single file, a batch takes {one[1]} requests ({one[0]}), "
        f"and a batch of neighboring events takes {ordered[1]} ({ordered[0]}).",
        traces,
        table,
    )
