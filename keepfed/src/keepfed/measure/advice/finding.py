"""The finding about a loop, and its sentences for text, HTML and JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from keepfed.formatting import factor
from keepfed.measure.advice.change import Change
from keepfed.measure.advice.rules import Cause
from keepfed.measure.advice.thresholds import NO_GAIN
from keepfed.measure.stacks import HotLine


@dataclass(frozen=True, kw_only=True)
class LoopFinding:
    """What a loop waits for, and the one change to make."""

    id: str  # row of the table of findings
    cause: Cause
    measured: str  # one sentence with the figures of the cause
    lines: tuple[HotLine, ...] = ()  # lines of code that take most of the time of the cause
    change: str  # in words, without a full stop
    how: Change | None = None  # the change, if it needs no code of the dataset or the step
    gain: float | None = None  # predicted speed-up; None: the change is not for speed, or unknown
    at_most: bool = False  # whether the gain is an upper bound, without the cause
    entry: str = ""  # entry of the field guide

    @property
    def sentences(self) -> list[str]:
        """The finding as text: what was measured, the lines, the change, and its gain."""
        more = f" See `keepfed why {self.entry}`." if self.entry else ""
        sentences = [self.measured, *map(str, self.lines), f"Change: {self.change}.{more}"]
        if self.gain is None:
            return sentences
        faster = "negligible in this loop and on this machine"
        if self.gain >= NO_GAIN:
            loop = "epochs after the first" if self.cause == "start-up" else "training"
            faster = f"{loop} {'at most ' * self.at_most}{factor(self.gain)} times as fast"
        return [*sentences, f"Predicted gain: {faster}."]

    @property
    def facts(self) -> dict[str, Any]:
        """The finding as JSON."""
        return asdict(self) | {"lines": list(map(str, self.lines))}


def paragraphs(sentences: Iterable[str]) -> str:
    """Return sentences as HTML, with code between backticks."""
    text = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return re.sub("`([^`]+)`", r"<code>\1</code>", text)
