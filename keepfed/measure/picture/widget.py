"""Show a picture as a widget of a notebook: Python reads and sets what its controls show."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from keepfed.measure.picture.model import State
from keepfed.measure.picture.script import module_source


class PictureWidget(anywidget.AnyWidget):
    """A picture that a notebook keeps in step with Python."""

    _ipython_display_ = None  # ipywidgets 7 has it, which would show the widget without its image
    _esm = module_source()
    payload = traitlets.Bytes().tag(sync=True)  # every picture, packed
    extra = traitlets.Bytes().tag(sync=True)  # pictures that `put` added later
    state = traitlets.Dict().tag(sync=True)

    def complete_state(self, wanted: State) -> dict[str, Any]:
        """Return the whole state that `wanted` asks for."""
        raise NotImplementedError

    @traitlets.validate("state")
    def _checked(self, proposal: Any) -> dict[str, Any]:
        return self.complete_state(proposal["value"])
