"""Show all pictures on one page, in light, dark and grey, on a desktop and on a phone.

    python -m docs.gallery            # slides, docs, and the notebooks that the book has run
    python -m docs.gallery 02 06 07   # run these notebooks too, with the small data

The page is build/gallery/index.html. `make slides` and `make book` create what it shows.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from html import escape

from course_utils.paths import REPO
from docs.book.execute import KEPT, run_changed
from keepfed.files import replace_file
from keepfed.formatting import plural
from keepfed.palette import DARK, LIGHT

OUT = REPO / "build" / "gallery" / "index.html"
FIGURES = re.compile(r"<figure.*?</figure>", re.DOTALL)
SCRIPTS = re.compile(r"<script.*?</script>", re.DOTALL)
STYLE = f"""<style>body{{margin:1rem;font:15px/1.4 system-ui,sans-serif}}
.panes{{display:flex;flex-wrap:wrap;gap:8px;align-items:start}}
.desktop{{width:960px;zoom:.6}}.phone{{width:358px;zoom:.6}}
.light{{{LIGHT.css()}}}.dark{{{DARK.css()}}}.grey{{{LIGHT.css()};filter:grayscale(1)}}
.panes>div{{padding:16px;overflow:auto;border:1px solid gray;color:var(--fg);
background:var(--bg)}}</style>"""
# A shadow root separates the ids of each copy of a picture.
SCRIPT = """<script>for (const box of document.querySelectorAll(".panes")) {
  const picture = box.querySelector("template");
  for (const width of ["desktop", "phone"]) for (const theme of ["light", "dark", "grey"]) {
    const pane = document.createElement("div"), inner = document.createElement("div");
    pane.className = `${width} ${theme}`;
    inner.dataset.jpThemeLight = theme !== "dark";
    inner.innerHTML = `<style>svg { max-width: 100%; height: auto }
      :host(.desktop) .narrow, :host(.phone) .wide { display: none }</style>`;
    inner.append(picture.content.cloneNode(true));
    pane.attachShadow({ mode: "open" }).append(inner);
    box.append(pane);
  }
}</script>"""


def main(numbers: Sequence[str]) -> int:
    """Write the page, with the notebooks of these numbers."""
    solutions = REPO / "notebooks" / "solutions"
    for refused in run_changed(next(solutions.glob(f"{n}_*.ipynb")) for n in numbers):
        print(refused)
    parts, count = [STYLE], 0
    for source, pictures in filter(all, _sources()):
        parts.append(f"<h2>{escape(source)}: {plural(len(pictures), 'picture')}</h2>")
        parts += [f'<div class="panes"><template>{one}</template></div>' for one in pictures]
        count += len(pictures)
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Gallery</title>'
    OUT.parent.mkdir(parents=True, exist_ok=True)
    replace_file(OUT, "\n".join([head, *parts, SCRIPT]))
    print(f"{OUT}: {plural(count, 'picture')}")
    return 0


def _sources() -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each source, and its pictures as HTML."""
    for kept in sorted(KEPT.glob("*.json")):
        cells = json.loads(kept.read_text("utf-8"))
        shown = [_picture(output.get("data", {})) for cell in cells for output in cell]
        yield f"Notebook {kept.name.partition('.')[0]}", list(filter(None, shown))
    for deck in sorted((REPO / "slides" / "built").glob("*.html")):
        yield f"Slides {deck.stem}", FIGURES.findall(deck.read_text("utf-8"))
    drawings = sorted((REPO / "docs").glob("*.svg"))
    yield "Book and docs", [path.read_text("utf-8") for path in drawings]


def _picture(data: dict[str, str | list[str]]) -> str:
    """Return an output as HTML if it contains a picture, or an empty string."""
    html = "".join(data.get("text/html", ""))
    is_picture = "<svg" in html or "print-color-adjust" in html
    return SCRIPTS.sub("", html) if is_picture else ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
