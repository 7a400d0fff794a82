"""09.2: a prefetcher to the GPU, judged by its contract, on emulated GPUs with their own clock."""

from course_stories.prefetchers import CONTRACT, RUNS, Make, check_all
from course_utils.teaching.exercise import Verdict, exercise, right


@exercise("09.2", title="Repair the prefetcher", seconds=180)
def repair_the_prefetcher(prefetcher_class: Make) -> Verdict:
    """Judge a prefetcher by clause after clause, the simple ones first."""
    check_all(prefetcher_class, CONTRACT.values())
    return right(
        f"Right in {RUNS} of {RUNS} epochs, and the copies run beside the steps. An error reaches "
        "the loop, a second epoch begins, a break leaves nothing behind; any batch, on the right "
        "GPU, and no more than `depth` + 1 of them there if each loss is read."
    )
