"""Show traces as an interactive picture: in a notebook, in a static page, on a slide.

One hand-written ES module draws everywhere. It holds all pictures that its controls can ask for, so
switching needs no kernel; Python only learns the new `state`.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from course_utils.measure.picture import palette
from course_utils.measure.picture.model import Control, Picture, State, embedded, key, pack, states
from course_utils.measure.picture.static import as_svg, as_text
from course_utils.measure.spans import STAGES, SpanLog

RESOLUTION = 10_000_000  # ticks: a recorded trace keeps its microseconds
PARTS = ("model", "draw", "controls", "view")


def module_source() -> str:
    """Return the ES module: constants, style and the hand-written parts, in one text."""
    here = Path(__file__)
    constants = {
        "CSS": here.with_suffix(".css").read_text("utf-8"),
        "STAGES": STAGES,
        "LOOKS": palette.table(),
        "IDLE_DARK": palette.IDLE_DARK,
        "TILE": palette.TILE,
    }
    head = [f"const {name} = {json.dumps(value)};" for name, value in constants.items()]
    files = [here.with_name(f"timeline_{part}.js") for part in PARTS]
    return "\n".join([*head, *(f.read_text("utf-8") for f in [*files, here.with_suffix(".js")])])


class TimelineGrid(anywidget.AnyWidget):
    """Pictures of traces, one for each state of some controls."""

    _esm = module_source()
    payload = traitlets.Bytes().tag(sync=True)  # every picture, packed
    extra = traitlets.Bytes().tag(sync=True)  # what `put` added later, e.g. measurements
    state = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        controls: Sequence[Control],
        pictures: Mapping[str, Picture],
        *,
        state: State | None = None,
        resolution: int = 10_000,
    ):
        """Show `pictures`, named by `key` of their state; start with the first of every option.

        Raises:
            ValueError: if a state has no picture.
        """
        self.controls, self.pictures = list(controls), dict(pictures)
        self._added: dict[str, Picture] = {}
        self._resolution = resolution
        every = list(states(controls))
        if missing := {key(controls, one) for one in every} - self.pictures.keys():
            raise ValueError(f"{min(missing)} has no picture; give one for every state.")
        packed = pack(self.controls, self.pictures, resolution=resolution)
        super().__init__(payload=packed, state={**every[0], **(state or {})})

    @traitlets.validate("state")
    def _offered(self, proposal: Any) -> dict[str, Any]:
        """Complete a state by what is shown now; refuse what no control offers."""
        state = {**self.state, **proposal["value"]}
        options = {control.name: control.options for control in self.controls}
        for name, value in state.items():
            if value not in options.get(name, ()):
                offered = ", ".join(map(str, options.get(name, options)))
                raise ValueError(f"{name}={value} is not offered; choose from: {offered}.")
        return state

    @property
    def picture(self) -> Picture:
        """What is shown now."""
        name = key(self.controls, self.state)
        return self._added.get(name) or self.pictures[name]

    def put(self, state: State, picture: Picture) -> None:
        """Show `picture` in `state` from now on, e.g. a measurement beside the prediction."""
        self._added[key(self.controls, state)] = picture
        self.extra = pack(self.controls, self._added, resolution=RESOLUTION)

    def svg(self) -> str:
        """Return the picture shown now as SVG: for GitHub, print and screen readers."""
        return as_svg(self.picture)

    def text(self) -> str:
        """Return the picture shown now as lines of text."""
        return as_text(self.picture)

    def to_fragment(self, *, module: bool = True) -> str:
        """Return HTML that works without a kernel; the ES module is needed once per page."""
        every = {**self.pictures, **self._added}
        data = pack(self.controls, every, resolution=self._resolution)
        stored = json.dumps({"payload": embedded(data), "state": self.state}).replace("</", "<\\/")
        script = f'<script type="application/json" class="course-timeline">{stored}</script>'
        start = f"{module_source()}\nmountAll();".replace("</script", "<\\/script")
        code = f'<script type="module">{start}</script>' if module else ""
        return f"<div>{script}{self.svg()}</div>{code}"

    def to_html(self, title: str = "Timeline") -> str:
        """Return a whole page in one file, which asks no other machine for anything."""
        head = f'<meta charset="utf-8"><title>{html.escape(title)}</title>'
        look = '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        style = "<style>body{margin:2vw}@media(prefers-color-scheme:dark){body{background:#111}}"
        return (
            f'<!doctype html><html lang="en"><head>{head}{look}{style}</style></head>'
            f"<body>{self.to_fragment()}</body></html>"
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is not None:
            bundle[0]["text/plain"] = self.text()
            if os.environ.get("COURSE_STATIC"):
                bundle[0]["text/html"] = self.to_fragment()
        return bundle


class Timeline(TimelineGrid):
    """One trace, or several to switch between on the same time axis."""

    def __init__(self, traces: SpanLog | Mapping[str, SpanLog], *, compare: bool = False):
        """Show `traces`; with `compare` start with all of them above each other.

        Args:
            traces: a trace, or traces by the name that the learner reads.
            compare: show the named traces together at first, e.g. predicted and measured.
        """
        if isinstance(traces, SpanLog):
            super().__init__([], {"": Picture([traces])}, resolution=RESOLUTION)
            return
        if not traces:
            raise ValueError("There is nothing to draw; give at least one trace.")
        together = "all together" if len(traces) > 2 else " and ".join(traces)
        pictures = {name: Picture([trace], [name]) for name, trace in traces.items()}
        if len(traces) > 1:
            pictures[together] = Picture(list(traces.values()), list(traces))
        control = Control("show", "Show", list(pictures))
        named = {key([control], {"show": name}): picture for name, picture in pictures.items()}
        first = together if compare else next(iter(traces))
        super().__init__([control], named, state={"show": first}, resolution=RESOLUTION)
