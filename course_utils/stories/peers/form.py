"""A form that installs libraries in separate environments and measures them here."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ipywidgets as widgets

from course_utils.errors import CourseError
from course_utils.stories.peers import tables
from course_utils.stories.peers.comparison import store
from course_utils.stories.peers.environment import HOME, install
from course_utils.stories.peers.libraries import LIBRARIES
from course_utils.stories.peers.measure import Measurement, fastest
from course_utils.stories.peers.peer import Package
from course_utils.stories.peers.tables import TABLES
from course_utils.stories.peers.trial import LoaderProcess
from course_utils.teaching.notebook import card
from keepfed.errors import KeepfedError, sentence


class LibraryForm(widgets.VBox):  # type: ignore[misc]
    """A checkbox per library, a button that installs and measures, and its messages."""

    def __init__(self, home: Path = HOME):
        """Offer all libraries that are not part of the course."""
        self.home = home
        self.packages = {name: peer.needs for name, peer in LIBRARIES.items() if peer.needs}
        self.boxes = {
            name: widgets.Checkbox(description=_label(name, package), indent=False)
            for name, package in self.packages.items()
        }
        for box in self.boxes.values():
            box.layout.width = "auto"
        self.button = widgets.Button(description="Install and measure here")
        self.button.layout = widgets.Layout(width="auto", align_self="flex-start")
        self.said = widgets.HTML()
        self.button.on_click(self._run)
        super().__init__([*self.boxes.values(), self.button, self.said])

    def _run(self, button: Any) -> None:
        chosen = [name for name, box in self.boxes.items() if box.value]
        lines: list[str] = [] if chosen else ["Choose a library first."]
        self._say(lines)
        self.button.disabled = True
        try:
            for name in chosen:
                self._say([*lines, f"Installing and measuring {name}. This takes a while."])
                lines.append(self._try(name))
                self._say(lines)
        finally:
            self.button.disabled = False

    def _try(self, name: str) -> str:
        """Install and measure a library, and return a message."""
        rates = []
        try:
            install(self.packages[name], self.home)
            for task in TABLES:
                measured = _measured(task, name, self.home)
                store(task, measured, self.home)
                rates.append(f"{measured.rate:,.0f} {task}")
        except (KeepfedError, OSError) as error:
            return f"{name}: " + sentence(error)
        return f"{name}: {' and '.join(rates)} samples per second. Run the comparison to see more."

    def _say(self, lines: list[str]) -> None:
        self.said.value = card("plain", "Libraries", *lines) if lines else ""


def _measured(task: str, name: str, home: Path) -> Measurement:
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
        closing(
            LoaderProcess(tables.__name__, task, name, TABLES[task], Path(folder), home)
        ) as trial,
    ):
        return fastest(run)


def _label(name: str, package: Package) -> str:
    return f"{name} ({package.name} {package.version}, {package.megabytes:,} MB)"
