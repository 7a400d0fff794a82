"""Show a picture as HTML if anywidget is not installed.

Python does not receive changes of the controls.
"""

from __future__ import annotations

from typing import Any

from keepfed.measure.picture.model import State


class PicturePage:
    """A picture that works without a kernel."""

    def __init__(self, *, payload: bytes, state: State):
        self.payload, self.extra = payload, b""
        self._state: dict[str, Any] = {}
        self.state = dict(state)

    @property
    def state(self) -> dict[str, Any]:
        """Initial option of each control."""
        return self._state

    @state.setter
    def state(self, wanted: State) -> None:
        self._state = self.complete_state(wanted)

    def complete_state(self, wanted: State) -> dict[str, Any]:
        """Return `wanted` with an option for every control."""
        raise NotImplementedError

    def to_fragment(self) -> str:
        """Return the picture as HTML, including its script."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"text/html": self.to_fragment()}, {}
