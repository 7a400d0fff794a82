"""Build the slides: `python -m slides.build [DECK ...] [--no-pdf] [--check]`.

A deck `slides/NAME.md` becomes `slides/built/NAME.html` and `NAME.pdf`. The deck
`openings` is written by `slides.instructor.openings`.
"""

import argparse
import sys
from collections.abc import Sequence

from slides.build.browser import browser
from slides.build.check import measured
from slides.build.markdown import DeckError, read_deck
from slides.build.page import page
from slides.build.pdf import print_pdf
from slides.build.rich_text import SLIDES
from slides.build.sources import findings, read_all_claims
from slides.instructor import openings

OPENINGS = "openings"


def decks() -> list[str]:
    """Return the names of all decks."""
    return sorted(
        path.stem for path in SLIDES.glob("*.md") if path.read_text("utf-8").startswith("---\n")
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the decks. Return 1 if a check finds a fault."""
    parser = argparse.ArgumentParser(prog="python -m slides.build", description=__doc__)
    parser.add_argument("decks", nargs="*", metavar="DECK", help="name, such as why_data")
    for part in "title", "name", "place":
        parser.add_argument(f"--{part}", metavar="TEXT", help=f"{part} on the first slide")
    parser.add_argument("--no-pdf", action="store_true", help="write HTML only")
    parser.add_argument("--check", action="store_true", help="measure every slide in Chromium")
    options = parser.parse_args(arguments)
    claims = read_all_claims()
    built, found = [], []
    for name in options.decks or [*decks(), OPENINGS]:
        file = SLIDES / "built" / f"{name}.html"
        file.parent.mkdir(exist_ok=True)
        source = SLIDES / f"{name}.md"
        if name == OPENINGS:
            source = file.with_suffix(".md")
            source.write_text(openings.deck(), "utf-8")
        try:
            head = {part: getattr(options, part) for part in ("title", "name", "place")}
            deck = read_deck(source, **head)
            file.write_text(page(deck, claims), "utf-8")
        except (DeckError, FileNotFoundError) as error:
            found.append(str(error))
            continue
        if name != OPENINGS:  # lint checks the numbers and the length of a notebook
            found += findings(deck, claims)
        built.append(file)
        print(f"{file.relative_to(SLIDES.parent)}: {len(deck.slides)} slides")
    if built and (options.check or not options.no_pdf):
        try:
            with browser() as context:
                for file in built:
                    if not options.no_pdf:
                        print(print_pdf(context, file).relative_to(SLIDES.parent))
                    if options.check:
                        found += measured(context, file)
        except FileNotFoundError as error:  # the HTML is complete
            found.append(str(error))
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
