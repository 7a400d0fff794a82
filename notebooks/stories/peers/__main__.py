"""Measure loaders from a terminal.

python -m notebooks.stories.peers                        all that are here, as a recording has it
python -m notebooks.stories.peers small "record loader"  one of them, in the Python that is called
"""

import json
import platform
import sys
from collections.abc import Iterator, Sequence
from datetime import date

from course_utils.hardware.machine import usable_cores
from notebooks.stories.peers.comparison import measure_all
from notebooks.stories.peers.environment import is_installed, measure_there
from notebooks.stories.peers.libraries import ALL, LIBRARIES
from notebooks.stories.peers.measure import TASKS, Measured, measure


def main(argv: Sequence[str]) -> int:
    """Measure one peer, or all of them, and return the exit status."""
    if argv:
        task, name = argv
        print(json.dumps(measure(name, ALL[name], TASKS[task]).row()))
        return 0
    machine = f"{platform.system()}, {usable_cores()} cores, Python {platform.python_version()}"
    found = {task: [one.row() for one in _all(task)] for task in TASKS}
    print(json.dumps({"machine": machine, "date": str(date.today()), **found}, indent=1))
    return 0


def _all(task: str) -> Iterator[Measured]:
    yield from measure_all(task)
    for name, peer in LIBRARIES.items():
        if peer.needs and is_installed(peer.needs):
            yield measure_there(task, name, peer.needs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
