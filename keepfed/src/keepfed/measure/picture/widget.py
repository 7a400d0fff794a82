"""Show a picture as a notebook widget, so that Python can read and set its controls."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from keepfed.measure.picture.model import State
from keepfed.measure.picture.script import module_source


class PictureWidget(anywidget.AnyWidget):
    """A picture whose state a notebook synchronizes with Python."""

    _ipython_display_ = None  # with this method, ipywidgets 7 would omit the image
    _esm = module_source()
    payload = traitlets.Bytes().tag(sync=True)  # all pictures, packed
    extra = traitlets.Bytes().tag(sync=True)  # pictures that `put` added later
    state = traitlets.Dict().tag(sync=True)

    def complete_state(self, wanted: State) -> dict[str, Any]:
        """Return `wanted` with an option for every control."""
        raise NotImplementedError

    @traitlets.validate("state")
    def _checked(self, proposal: Any) -> dict[str, Any]:
        return self.complete_state(proposal["value"])
