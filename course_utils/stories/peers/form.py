"""A form that installs libraries in separate environments and measures them here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ipywidgets as widgets

from course_utils.stories.peers.comparison import store
from course_utils.stories.peers.environment import HOME, install, measure_there
from course_utils.stories.peers.libraries import LIBRARIES
from course_utils.stories.peers.measure import TASKS
from course_utils.stories.peers.peer import Peer
from course_utils.teaching.notebook import card
from keepfed.errors import KeepfedError, sentence


class LibraryForm(widgets.VBox):  # type: ignore[misc]
    """A checkbox per library, a button that installs and measures, and its messages."""

    def __init__(self, home: Path = HOME):
        """Offer all libraries that are not part of the course."""
        self.home = home
        self.boxes = {
            name: widgets.Checkbox(description=_label(name, peer), indent=False)
            for name, peer in LIBRARIES.items()
            if peer.needs
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
        package = LIBRARIES[name].needs
        assert package is not None
        rates = []
        try:
            install(package, self.home)
            for task in TASKS:
                one = measure_there(task, name, package, self.home)
                store(task, one, self.home)
                rates.append(f"{one.rate:,.0f} {task}")
        except (KeepfedError, OSError) as error:
            return f"{name}: " + sentence(error)
        return f"{name}: {' and '.join(rates)} samples per second. Run the comparison to see more."

    def _say(self, lines: list[str]) -> None:
        self.said.value = card("plain", "Libraries", *lines) if lines else ""


def _label(name: str, peer: Peer) -> str:
    package = peer.needs
    assert package is not None
    return f"{name} ({package.name} {package.version}, {package.megabytes:,} MB)"
