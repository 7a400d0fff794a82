"""What a class takes of a machine that it shares: /dev/shm and memory."""

import json
from collections.abc import Iterator

from course_utils.paths import REPO
from keepfed.loaders.workers import ShmBudget
from keepfed.words import size

LEARNERS = (1, 20, 60)
BATCH, WORKERS = 8_000_000, 3  # the most that is on its way in a notebook: prediction 04i
STAGED = 14_000_000  # the small events, which notebook 07 copies to /dev/shm


def budget() -> Iterator[str]:
    """Yield a table of what some numbers of learners need, and what it rests on."""
    measured = json.loads((REPO / "recordings" / "memory.json").read_text("utf-8"))
    peaks = {notebook: 1_000_000 * mb for notebook, mb in measured["peak_mb"].items()}
    yield "| Learners | Batches on their way | Staged | `/dev/shm` | Memory, with all of this |"
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
        shm = need.travelling_bytes + need.staged_bytes
        sizes = need.travelling_bytes, need.staged_bytes, shm, shm + need.programs_bytes
        yield f"| {learners} | {' | '.join(map(size, sizes))} |"
    yield ""
    yield (
        "The memory of a learner is that of the kernel and all its workers at their peak, measured "
        f"while the solved notebooks ran with data of size {measured['size']} "
        f"({measured['machine']}, {measured['date']}, `recordings/make_memory.py`). By notebook: "
        f"{', '.join(f'{notebook} {size(peak)}' for notebook, peak in peaks.items())}. The table "
        "gives everybody the largest of these at the same moment, which is the safe side."
    )
