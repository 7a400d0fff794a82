"""Show traces as an interactive picture in a notebook, in a static page or on a slide.

One hand-written ES module draws all of them. It contains the picture of every state, so switching
needs no kernel. Python only receives the new `state`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from keepfed.measure.picture.model import TILE, WAITING, Control, Picture, State, key, looks, pack
from keepfed.measure.picture.static import as_svg, as_text
from keepfed.measure.spans import STAGES, SpanLog
from keepfed.palette import DARK, LIGHT


@cache
def module_source() -> str:
    """Return the source of the ES module: constants, style and the hand-written parts."""
    style, *parts = (
        Path(__file__).with_name(f"timeline{part}").read_text("utf-8")
        for part in (".css", "_model.js", "_draw.js", "_view.js", ".js")
    )
    constants = {
        "CSS": f".tl{{{LIGHT.css()}}} .tl.dark{{{DARK.css()}}}\n{style}",
        "STAGES": STAGES,
        "LOOKS": looks(),
        "PAGES": {"light": LIGHT._asdict(), "dark": DARK._asdict()},
        "TILE": TILE,
        "WAITING": WAITING,
    }
    return "\n".join([*(f"const {k} = {json.dumps(v)};" for k, v in constants.items()), *parts])


def page_script() -> str:
    """Return the code of one module script that starts every timeline of a page."""
    return f"{module_source()}\nmountAll();".replace("</script", "<\\/script")


if TYPE_CHECKING or find_spec("anywidget") is not None:
    import anywidget
    import traitlets

    class _Base(anywidget.AnyWidget):
        """A widget, whose state the notebook synchronizes with Python."""

        _ipython_display_ = None  # with this method, ipywidgets 7 would omit the image
        _esm = module_source()
        payload = traitlets.Bytes().tag(sync=True)  # all pictures, packed
        extra = traitlets.Bytes().tag(sync=True)  # pictures that `put` added later
        state = traitlets.Dict().tag(sync=True)
        complete_state: Callable[[State], dict[str, Any]]

        @traitlets.validate("state")
        def _checked(self, proposal: Any) -> dict[str, Any]:
            return self.complete_state(proposal["value"])

else:

    class _Base:
        """HTML that works without a kernel. Python does not receive changes of the controls."""

        state: ClassVar = {}

        def __init__(self, *, payload, state):
            self.payload, self.state = payload, state

        def __setattr__(self, name, value):
            super().__setattr__(name, self.complete_state(value) if name == "state" else value)

        def _repr_mimebundle_(self, **options):
            return {"text/html": self.to_fragment()}, {}


class TimelineGrid(_Base):
    """Pictures of traces, one for each state of some controls."""

    ticks = 10_000  # ticks in the longest trace; few, because a grid stores many pictures

    def __init__(
        self,
        controls: Sequence[Control],
        pictures: Mapping[str, Picture],
        *,
        state: State | None = None,
    ):
        """Create a timeline with switches.

        Args:
            controls: Switches above the picture.
            pictures: Pictures by the `key` of their state.
            state: Options to show first. By default, this is the first option of each control.
        """
        self.controls, self.pictures = list(controls), dict(pictures)
        self._added: dict[str, Picture] = {}
        first = {control.name: control.options[0] for control in controls}
        packed = pack(self.controls, self.pictures, self.ticks)
        super().__init__(payload=packed, state={**first, **(state or {})})

    def complete_state(self, wanted: State) -> dict[str, Any]:
        """Return `wanted`, completed with the current state.

        Raises:
            ValueError: If no control offers an option.
        """
        state = {**self.state, **wanted}
        options = {control.name: control.options for control in self.controls}
        for name, value in state.items():
            if value not in options.get(name, ()):
                offered = ", ".join(map(str, options.get(name, options)))
                raise ValueError(f"{name}={value} is not available. Choose from: {offered}.")
        return state

    @property
    def picture(self) -> Picture:
        """Current picture."""
        return self.pictures[key(self.controls, self.state)]

    def put(self, state: State, picture: Picture) -> None:
        """Replace the picture of `state`, for example to add a measurement to a prediction."""
        name = key(self.controls, state)
        self.pictures[name] = self._added[name] = picture
        self.extra = pack(self.controls, self._added, Timeline.ticks)

    def to_fragment(self, *, module: bool = True) -> str:
        """Return HTML that works without a kernel, with a static SVG for pages without scripts.

        Args:
            module: Whether to include the script. Otherwise the page must run `page_script()`.
        """
        packed = b64encode(pack(self.controls, self.pictures, self.ticks)).decode()
        stored = json.dumps({"payload": packed, "state": self.state}).replace("</", "<\\/")
        script = f'<script type="module">{page_script()}</script>' if module else ""
        return (
            f'<div><script type="application/json" class="course-timeline">{stored}</script>'
            f"{as_svg(self.picture)}</div>{script}"
        )

    def to_html(self, title: str = "Timeline", *, above: str = "", below: str = "") -> str:
        """Return a complete HTML page that works offline.

        Args:
            title: Title of the page.
            above: HTML above the picture.
            below: HTML below the picture.
        """
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f'<title>{escape(title)}</title><meta name="viewport" content="width=device-width">'
            '<link rel="icon" href="data:,"><style>body{margin:2vw}'
            f"@media(prefers-color-scheme:dark){{body{{background:{DARK.bg}}}}}</style></head>"
            f"<body>{above}{self.to_fragment()}{below}</body></html>"
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the widget, and an image for programs that cannot show widgets."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is not None:
            bundle[0]["text/plain"] = as_text(self.picture)
            bundle[0]["image/svg+xml"] = as_svg(self.picture)
        return bundle


class Timeline(TimelineGrid):
    """Timeline of one trace, or of several traces on the same time axis with a switch."""

    ticks = 10_000_000  # ticks in the longest trace; enough to keep microseconds

    def __init__(self, traces: SpanLog | Mapping[str, SpanLog], *, steps: int | None = None):
        """Create a timeline that first shows all traces together.

        Args:
            traces: One trace, or several traces by name.
            steps: Number of steps in the first view of a single trace. By default, all steps.
        """
        if isinstance(traces, SpanLog):
            super().__init__([], {"": Picture([traces], steps=steps)})
            return
        pictures = {name: Picture([trace], [name]) for name, trace in traces.items()}
        if len(traces) > 1:
            together = "all together" if len(traces) > 2 else " and ".join(traces)
            pictures[together] = Picture([*traces.values()], [*traces])
        control = Control("show", "Show", list(pictures))
        named = {key([control], {"show": name}): picture for name, picture in pictures.items()}
        super().__init__([control], named, state={"show": list(pictures)[-1]})
