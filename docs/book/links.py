"""Check the built pages: every link has a target, and no page loads a file from the network."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class _Page(HTMLParser):
    """The ids of a page, the files that it loads, and the targets of its links."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: set[str] = set()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the ids and the targets of a tag."""
        given = {name: value for name, value in attrs if value}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.leads.append(given["href"])
        elif _LOADED.get(tag) in given:
            self.loads.append(given[_LOADED[tag]])


def findings(folder: Path) -> Iterator[str]:
    """Yield a sentence for each broken link, and for each file loaded from the network."""
    pages = {path: _Page(path.read_text("utf-8")) for path in _pages(folder)}
    for path, page in pages.items():
        name = path.relative_to(folder).as_posix()
        for link in page.loads:
            if urlsplit(link).netloc:
                yield f"{name} loads {link} from the network."
        for link in page.leads + page.loads:
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if parts.scheme or parts.netloc:
                continue
            if not target.exists():
                yield f"{name} links to {link}, which does not exist."
            elif (
                target in pages
                and parts.fragment
                and unquote(parts.fragment) not in pages[target].ids
            ):
                yield f"{name} links to {link}, but that page has no such heading."


def _pages(folder: Path) -> list[Path]:
    """Return the pages, without the files of the theme."""
    return [path for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts]
