"""The ES module that draws: constants, style and the hand-written parts."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from keepfed.measure.picture import model
from keepfed.measure.spans import STAGES

PARTS = ("model", "draw", "controls", "view")


@cache
def module_source() -> str:
    """Return the ES module: constants, style and the hand-written parts, in one text."""
    here = Path(__file__).with_name("timeline.js")
    constants = {
        "CSS": here.with_suffix(".css").read_text("utf-8"),
        "STAGES": STAGES,
        "LOOKS": model.looks(),
        "IDLE_DARK": model.IDLE_DARK,
        "TILE": model.TILE,
    }
    head = [f"const {name} = {json.dumps(value)};" for name, value in constants.items()]
    files = [here.with_name(f"timeline_{part}.js") for part in PARTS]
    return "\n".join([*head, *(f.read_text("utf-8") for f in [*files, here])])
