"""The ES module that draws timelines, and the HTML of a page that uses it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from keepfed.measure.picture import model
from keepfed.measure.spans import STAGES
from keepfed.palette import DARK, LIGHT

PARTS = ("model", "draw", "controls", "view")


@cache
def module_source() -> str:
    """Return the source of the ES module: constants, style and the hand-written parts."""
    here = Path(__file__).with_name("timeline.js")
    themes = f".tl{{{LIGHT.css()}}} .tl.dark{{{DARK.css()}}}\n"
    constants = {
        "CSS": themes + here.with_suffix(".css").read_text("utf-8"),
        "STAGES": STAGES,
        "LOOKS": model.looks(),
        "PAGES": {"light": LIGHT._asdict(), "dark": DARK._asdict()},
        "TILE": model.TILE,
    }
    head = [f"const {name} = {json.dumps(value)};" for name, value in constants.items()]
    files = [here.with_name(f"timeline_{part}.js") for part in PARTS]
    return "\n".join([*head, *(f.read_text("utf-8") for f in [*files, here])])


def page_script() -> str:
    """Return the code of one module script that starts every timeline of a page."""
    return f"{module_source()}\nmountAll();".replace("</script", "<\\/script")


def as_fragment(svg: str, state: Mapping[str, str | int], **packed: bytes) -> str:
    """Return the HTML of a timeline, which shows `svg` until the page runs `page_script()`.

    Args:
        svg: Static picture of `state`.
        state: Initial option of each control.
        packed: Bytes of `payload`, and optionally of `extra`, from `model.pack`.
    """
    data = {name: base64.b64encode(packed[name]).decode() for name in packed}
    stored = json.dumps({**data, "state": state}).replace("</", "<\\/")
    return (
        f'<div><script type="application/json" class="course-timeline">{stored}</script>{svg}</div>'
    )
