"""The checks of the sample notebook."""

import os
from collections.abc import Callable

from torch.utils.data import DataLoader, Dataset

from course_utils.teaching.exercise import Verdict, exercise, expect, right, wrong


@exercise("90.1", title="Squares from a worker")
def squares(attempt: Callable[[], Dataset[tuple[int, int]]]) -> Verdict:
    loader = DataLoader(attempt(), batch_size=4, num_workers=2, timeout=60)
    batches = list(loader)
    found = [square for values, _ in batches for square in values.tolist()]
    expect(found == [i * i for i in range(12)], "These are not squares.", "Multiply by itself.")
    workers = {pid for _, pids in batches for pid in pids.tolist()}
    expect(os.getpid() not in workers, "No worker ran.", "Set num_workers.")
    return right("Two workers computed the squares.")


@exercise("90.2", title="Count the batches")
def count(attempt: int) -> Verdict:
    if attempt == 3:
        return right("Twelve numbers make three batches of four.")
    return wrong("The last batch counts too.", "Divide 12 by 4.")
