"""Show a picture as HTML, where anywidget is not installed: Python does not see its controls."""

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
        """What the controls show at first."""
        return self._state

    @state.setter
    def state(self, wanted: State) -> None:
        self._state = self.complete_state(wanted)

    def complete_state(self, wanted: State) -> dict[str, Any]:
        """Return the whole state that `wanted` asks for."""
        raise NotImplementedError

    def to_fragment(self) -> str:
        """Return the picture as HTML with its script."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"text/html": self.to_fragment()}, {}
