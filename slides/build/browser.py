"""Open a built deck in Chromium without a network, to print, photograph or measure it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, Route, TimeoutError, sync_playwright

WIDTH, HEIGHT = 1280, 720
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
]


@contextmanager
def browser() -> Iterator[BrowserContext]:
    """Yield an offline Chromium window of the size of a slide.

    Raises:
        FileNotFoundError: If Chromium is not installed.
    """
    executable = next(filter(None, map(shutil.which, _NAMES)), None)
    if executable is None:
        raise FileNotFoundError(
            "Only HTML was written, because Chromium was not found. "
            "Install it. On Debian or Ubuntu: apt install chromium."
        )
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        context = chromium.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce", offline=True
        )
        yield context
        chromium.close()


def open_deck(
    context: BrowserContext, file: Path, query: str = "", *, to_print: bool = False
) -> tuple[Page, list[str]]:
    """Open a deck. Return its page and a list of its requests to other files."""
    asked: list[str] = []

    def guard(route: Route) -> None:
        if route.request.url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            asked.append(route.request.url)
            route.abort()

    page = context.new_page()
    page.emulate_media(media="print" if to_print else "screen")
    page.on("pageerror", lambda error: asked.append(str(error)))
    page.route("**/*", guard)
    page.goto(f"{file.resolve().as_uri()}{query}")
    try:
        page.wait_for_selector("html[data-ready]", state="attached")
    except TimeoutError as error:
        raise RuntimeError(f"{file.name} did not start. Errors and requests: {asked}") from error
    return page, asked
