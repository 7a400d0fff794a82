"""Base classes for the requests of the wall."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from course_utils.token_server import TokenHandler
from keepfed.palette import DARK, LIGHT

_PAGES = Path(__file__).with_name("pages")


class WallHandler(TokenHandler):
    """Request handler that accepts the token of the class and the token of the desk."""

    called = "wall"
    wrong_token = 401
    sentences: ClassVar[Mapping[int, str]] = {
        400: "The request is not valid. Fix the address or the headers.",
        404: "There is no such page. The wall is at /, the leaderboard is at /board.",
        405: "This method is not allowed. The wall is at /, the leaderboard is at /board.",
        500: "The server failed. See the output of `course wall`.",
    }

    only_desk = False

    def tokens(self) -> list[str]:
        """Return the tokens that this handler accepts."""
        desk: str = self.settings["desk"]
        return [desk] if self.only_desk else [self.settings["token"], desk]


class PageHandler(WallHandler):
    """Request handler for a page. It shows untrusted texts, so only its own script may run."""

    def initialize(self, page: str) -> None:
        """Take the arguments of the route."""
        self.page, self.only_desk = page, page == "desk"

    def get(self) -> None:
        """Send the page with a new nonce, and with the styles and functions of all pages."""
        nonce = secrets.token_urlsafe(16)
        allowed = f"script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'"
        more = "base-uri 'none'; form-action 'none'"
        if self.page != "wall":  # a slide may show the wall in a frame
            more += "; frame-ancestors 'none'"
        self.set_header("Content-Security-Policy", f"default-src 'none'; {allowed}; {more}")
        self.set_header("Cache-Control", "no-store")
        text = (_PAGES / f"{self.page}.html").read_text("utf-8").replace("NONCE", nonce)
        for name in ("shared.css", "shared.js"):
            text = text.replace(f"/* {name} */", (_PAGES / name).read_text("utf-8"))
        self.write(text.replace("LIGHT;", f"{LIGHT.css()};").replace("DARK;", f"{DARK.css()};"))
