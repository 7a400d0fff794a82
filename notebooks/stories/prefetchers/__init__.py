"""Prefetchers that are not right yet, and the proof of each defect."""

from notebooks.stories.prefetchers.bench import (
    BATCH_BYTES,
    BATCHES,
    DiskError,
    Source,
    Tally,
    make_gpus,
    make_tensors,
    sums,
)
from notebooks.stories.prefetchers.defects import (
    prove_all,
)
from notebooks.stories.prefetchers.notes_prefetcher import (
    NotesPrefetcher,
    default_stream,
    side_stream,
    side_stream_with_wait,
)

__all__ = [
    "BATCHES",
    "BATCH_BYTES",
    "DiskError",
    "NotesPrefetcher",
    "Source",
    "Tally",
    "default_stream",
    "make_gpus",
    "make_tensors",
    "prove_all",
    "side_stream",
    "side_stream_with_wait",
    "sums",
]
