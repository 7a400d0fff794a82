"""Measure one loader with the current Python.

python -m course_utils.stories.peers small "record loader"
"""

import json
import sys
from collections.abc import Sequence

from course_utils.stories.peers.libraries import ALL
from course_utils.stories.peers.measure import TASKS, measure


def main(argv: Sequence[str]) -> int:
    """Print the measurement as JSON, and return the exit status."""
    task, name = argv
    print(json.dumps(measure(name, ALL[name], TASKS[task]).row()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
