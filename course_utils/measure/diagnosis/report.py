"""Draw a diagnosis as one page: verdict, change, three bars, evidence, timeline."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from course_utils.measure.diagnosis.findings import ms
from course_utils.measure.picture import LOOKS, Picture, as_svg, as_text

if TYPE_CHECKING:
    from course_utils.measure.diagnosis.diagnose import Diagnosis

LETTERS = 40  # length of the longest bar made of text

# JupyterLab would align tables to the right. Nothing sets a background, and the greys and colours
# have 3:1 or more on white and on #111.
_STYLE = """
.cd{max-width:960px;line-height:1.45}.cd h4{margin:0 0 .3em;font-size:1.15em}
.cd p{margin:.2em 0}.cd td,.cd th{text-align:left!important;padding:1px 12px 1px 0;
vertical-align:top;font-weight:normal;background:none}.cd tr{background:none}
.cd table{border-collapse:collapse;margin:.5em 0}.cd .bar{display:block;height:14px;min-width:2px;
box-sizing:border-box;border:1px solid #808080;print-color-adjust:exact}.cd .wide{width:24em}
.cd .soft{opacity:.75}.cd details{margin:.5em 0}
"""


def text(diagnosis: Diagnosis) -> str:
    """Return the page as lines of text."""
    longest = max(seconds for _, seconds, _ in _bars(diagnosis)) or 1
    bars = [
        f"  {name:<13} {'#' * max(1, round(LETTERS * seconds / longest))} {ms(seconds)} a batch"
        for name, seconds, _ in _bars(diagnosis)
    ]
    width = max(map(len, diagnosis.evidence))
    evidence = [f"  {name:<{width}}  {figure}" for name, figure in diagnosis.evidence.items()]
    return "\n".join(
        [
            diagnosis.verdict,
            f"Change: {diagnosis.change}.",
            _gain(diagnosis),
            _headspace(diagnosis),
            "",
            *bars,
            "",
            "Evidence",
            *evidence,
            "",
            as_text(Picture([diagnosis.trace])),
        ]
    )


def page(diagnosis: Diagnosis) -> str:
    """Return the page as HTML, which follows the colours around it."""
    longest = max(seconds for _, seconds, _ in _bars(diagnosis)) or 1
    bars = "".join(
        f'<tr><th>{name}</th><td class="wide"><span class="bar" style="width:'
        f'{seconds / longest:.1%};background:{colour}"></span></td><td>{ms(seconds)} a batch</td>'
        "</tr>"
        for name, seconds, colour in _bars(diagnosis)
    )
    rows = "".join(
        f'<tr><th class="soft">{escape(name)}</th><td>{escape(figure)}</td></tr>'
        for name, figure in diagnosis.evidence.items()
    )
    return (
        f'<style>{_STYLE}</style><div class="cd"><h4>{escape(diagnosis.verdict)}</h4>'
        f"<p>Change: <b>{escape(diagnosis.change)}</b></p><p>{_gain(diagnosis)}</p>"
        f"<p>{_headspace(diagnosis)}</p><table>{bars}</table>"
        f'<details open=""><summary>Evidence</summary><table>{rows}</table></details>'
        f"{as_svg(Picture([diagnosis.trace]))}</div>"
    )


def _bars(diagnosis: Diagnosis) -> list[tuple[str, float, str]]:
    return [
        ("loader alone", diagnosis.loader_s, LOOKS["read"].colour),
        ("step alone", diagnosis.step_s, LOOKS["compute"].colour),
        ("together", diagnosis.together_s, LOOKS["wait"].colour),
    ]


def _gain(diagnosis: Diagnosis) -> str:
    if diagnosis.cause == "GPU-bound":
        return "Predicted gain: none; the loader is not what training waits for."
    if diagnosis.cause == "memory":
        return "Predicted gain: not speed, but a run that does not end for want of memory."
    most = "at most " if diagnosis.at_most else ""
    return f"Predicted gain: training {most}{diagnosis.gain:.2g} times as fast."


def _headspace(diagnosis: Diagnosis) -> str:
    return (
        f"Headspace: with an infinitely fast loader training would be {diagnosis.headspace:.2g} "
        "times as fast."
    )
