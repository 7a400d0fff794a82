"""Print a built deck as PDF: one page per slide and per state of a timeline."""

import re
from pathlib import Path

from playwright.sync_api import BrowserContext

from slides.build.browser import open_deck


def print_pdf(context: BrowserContext, file: Path) -> Path:
    """Write the PDF of `file` to the same folder, and return its path."""
    page, _ = open_deck(context, file, "?view=print", to_print=True)
    page.wait_for_timeout(500)  # redraws what was drawn before its final size
    path = file.with_suffix(".pdf")
    printed = page.pdf(prefer_css_page_size=True, print_background=True)
    page.close()
    path.write_bytes(re.sub(rb"\(D:\d{14}", b"(D:20000101000000", printed))  # same deck, same bytes
    return path
