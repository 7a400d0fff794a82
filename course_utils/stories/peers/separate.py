"""Install libraries in separate environments, and measure them here."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from course_utils.errors import CourseError
from course_utils.stories.peers import tables
from course_utils.stories.peers.comparison import store
from course_utils.stories.peers.environment import install
from course_utils.stories.peers.libraries import LIBRARIES
from course_utils.stories.peers.measure import Measurement, fastest
from course_utils.stories.peers.tables import TABLES
from course_utils.stories.peers.trial import LoaderProcess


def try_libraries(*names: str) -> None:
    """Install libraries, measure them, and store the results for the next comparison.

    Args:
        names: Libraries to install. Without any, print those that can be installed.

    Raises:
        CourseError: If a name is unknown, or installing or measuring fails.
    """
    packages = {name: peer.needs for name, peer in LIBRARIES.items() if peer.needs}
    choice = [
        f"  {name!r}: {p.name} {p.version}, {p.megabytes:,} MB" for name, p in packages.items()
    ]
    if not names:
        print("Libraries that are not part of the course:", *choice, sep="\n")
    for name in names:
        if name not in packages:
            raise CourseError(f"There is no library {name!r}. Choose {', '.join(packages)}.")
        print(f"Installing and measuring {name}. This takes a while.", flush=True)
        install(packages[name])
        rates = []
        for task in TABLES:
            measured = _measured(task, name)
            store(task, measured)
            rates.append(f"{measured.rate:,.0f} {task}")
        print(f"{name}: {' and '.join(rates)} samples per second.")


def _measured(task: str, name: str) -> Measurement:
    """Measure a loader in a process of its environment.

    Raises:
        CourseError: If the process fails.
    """

    def run(number: int) -> Measurement:
        if (epoch := trial.run(number)) is None:
            raise CourseError(f"Measuring failed ({trial.failed}). Use our recorded results.")
        return epoch

    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        closing(LoaderProcess(tables.__name__, task, name, TABLES[task], Path(folder))) as trial,
    ):
        return fastest(run)
