"""The /dev/shm and memory that a class needs on a shared machine."""

import json
from collections.abc import Iterator

from course_utils.paths import REPO
from keepfed.formatting import size
from keepfed.loaders.workers import ShmBudget

LEARNERS = (1, 20, 60)
BATCH, WORKERS = 8_000_000, 3  # bytes and workers of the largest loader, in prediction 04i
STAGED = 14_000_000  # bytes of the small events, which notebook 07 copies to /dev/shm


def budget() -> Iterator[str]:
    """Yield a table of the memory for some numbers of learners, and its assumptions."""
    measured = json.loads((REPO / "notebooks/recordings/memory.json").read_text("utf-8"))
    peaks = {notebook: 1_000_000 * mb for notebook, mb in measured["peak_mb"].items()}
    yield "| Learners | Batches in flight | Staged | `/dev/shm` | Total memory |"
    yield "|---|---|---|---|---|"
    for learners in LEARNERS:
        need = ShmBudget(
            batch_bytes=BATCH,
            num_workers=WORKERS,
            loaders=learners,
            staged_bytes=learners * STAGED,
            programs_bytes=learners * max(peaks.values()),
            memory_bytes=0,
        )
        shm = need.traveling_bytes + need.staged_bytes
        sizes = need.traveling_bytes, need.staged_bytes, shm, shm + need.programs_bytes
        yield f"| {learners} | {' | '.join(map(size, sizes))} |"
    yield ""
    yield (
        "The memory of a learner is the peak of the kernel and all its workers, measured while the "
        f"solved notebooks ran with data of size {measured['size']} "
        f"({measured['machine']}, {measured['date']}, `recordings/make_memory.py`). By notebook: "
        f"{', '.join(f'{notebook} {size(peak)}' for notebook, peak in peaks.items())}. The table "
        "is an upper limit, because it gives the largest of these to all learners at once."
    )
