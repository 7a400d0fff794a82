"""Show traces as an interactive picture in a notebook, in a static page or on a slide.

One hand-written ES module draws all of them. It contains the picture of every state, so switching
needs no kernel. Python only receives the new `state`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from keepfed.measure.picture.model import Control, Picture, State, key, pack
from keepfed.measure.picture.script import as_fragment, page_script
from keepfed.measure.picture.static import as_svg, as_text
from keepfed.measure.spans import SpanLog
from keepfed.palette import DARK

if TYPE_CHECKING or find_spec("anywidget") is not None:
    from keepfed.measure.picture.widget import PictureWidget as TimelineBase
else:
    from keepfed.measure.picture.page import PicturePage as TimelineBase


class TimelineGrid(TimelineBase):
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
        packed = pack(self.controls, self.pictures, self.ticks)
        fragment = as_fragment(as_svg(self.picture), self.state, payload=packed)
        return f'{fragment}<script type="module">{page_script()}</script>' if module else fragment

    def to_html(self, title: str = "Timeline", *, above: str = "", below: str = "") -> str:
        """Return a complete HTML page that works offline.

        Args:
            title: Title of the page.
            above: HTML above the picture.
            below: HTML below the picture.
        """
        head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
        look = '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        dark = f"@media(prefers-color-scheme:dark){{body{{background:{DARK.bg}}}}}"
        style = f"<style>body{{margin:2vw}}{dark}"
        return (
            f'<!doctype html><html lang="en"><head>{head}{look}{style}</style></head>'
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
