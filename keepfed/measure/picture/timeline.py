"""Show traces as an interactive picture: in a notebook, in a static page, on a slide.

One hand-written ES module draws everywhere. It holds all pictures that its controls can ask for, so
switching needs no kernel; Python only learns the new `state`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from keepfed.measure.picture.model import Control, Picture, State, end_of_step_ms, key, pack
from keepfed.measure.picture.script import as_fragment, page_script
from keepfed.measure.picture.static import as_svg, as_text
from keepfed.measure.spans import SpanLog

if TYPE_CHECKING or find_spec("anywidget") is not None:
    from keepfed.measure.picture.widget import PictureWidget as TimelineBase
else:
    from keepfed.measure.picture.page import PicturePage as TimelineBase


class TimelineGrid(TimelineBase):
    """Pictures of traces, one for each state of some controls."""

    ticks = 10_000  # into which the longest trace is divided: many pictures have to be small

    def __init__(
        self,
        controls: Sequence[Control],
        pictures: Mapping[str, Picture],
        *,
        state: State | None = None,
    ):
        """Show `pictures`, named by `key` of their state; start with the first of every option."""
        self.controls, self.pictures = list(controls), dict(pictures)
        self._added: dict[str, Picture] = {}
        first = {control.name: control.options[0] for control in controls}
        packed = pack(self.controls, self.pictures, self.ticks)
        super().__init__(payload=packed, state={**first, **(state or {})})

    def complete_state(self, wanted: State) -> dict[str, Any]:
        """Complete a state by what is shown now; refuse what no control offers."""
        state = {**self.state, **wanted}
        options = {control.name: control.options for control in self.controls}
        for name, value in state.items():
            if value not in options.get(name, ()):
                offered = ", ".join(map(str, options.get(name, options)))
                raise ValueError(f"{name}={value} is not offered; choose from: {offered}.")
        return state

    @property
    def picture(self) -> Picture:
        """What is shown now."""
        return self.pictures[key(self.controls, self.state)]

    def put(self, state: State, picture: Picture) -> None:
        """Show `picture` in `state` from now on, e.g. a measurement beside the prediction."""
        name = key(self.controls, state)
        self.pictures[name] = self._added[name] = picture
        self.extra = pack(self.controls, self._added, Timeline.ticks)

    def to_fragment(self, *, module: bool = True) -> str:
        """Return HTML that works without a kernel, and shows an SVG where no script runs.

        Without `module` it brings no script: the page runs `page_script()` once.
        """
        packed = pack(self.controls, self.pictures, self.ticks)
        fragment = as_fragment(as_svg(self.picture), self.state, payload=packed)
        return f'{fragment}<script type="module">{page_script()}</script>' if module else fragment

    def to_html(self, title: str = "Timeline", *, above: str = "", below: str = "") -> str:
        """Return a whole page in one file, which asks no other machine for anything.

        `above` and `below` are HTML around the picture.
        """
        head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
        look = '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        style = "<style>body{margin:2vw}@media(prefers-color-scheme:dark){body{background:#111}}"
        return (
            f'<!doctype html><html lang="en"><head>{head}{look}{style}</style></head>'
            f"<body>{above}{self.to_fragment()}{below}</body></html>"
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the widget, and an image for sites and programs that show no widget."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is not None:
            bundle[0]["text/plain"] = as_text(self.picture)
            bundle[0]["image/svg+xml"] = as_svg(self.picture)
        return bundle


class Timeline(TimelineGrid):
    """One trace, or several to switch between on the same time axis."""

    ticks = 10_000_000  # a recorded trace keeps its microseconds

    def __init__(self, traces: SpanLog | Mapping[str, SpanLog], *, steps: int | None = None):
        """Show a trace, or several by the name that the learner reads: first all together.

        A single trace opens on its first `steps` steps, or on the whole run.
        """
        if isinstance(traces, SpanLog):
            until_ms = end_of_step_ms(traces, steps) if steps else None
            super().__init__([], {"": Picture([traces], until_ms=until_ms)})
            return
        pictures = {name: Picture([trace], [name]) for name, trace in traces.items()}
        if len(traces) > 1:
            together = "all together" if len(traces) > 2 else " and ".join(traces)
            pictures[together] = Picture([*traces.values()], [*traces])
        control = Control("show", "Show", list(pictures))
        named = {key([control], {"show": name}): picture for name, picture in pictures.items()}
        super().__init__([control], named, state={"show": list(pictures)[-1]})
