"""Render Markdown, formulas and code as HTML, so that a page needs no library."""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from slides.build.maths import formula

SLIDES = Path(__file__).resolve().parents[1]
_STEPS = re.compile(r"\{([\d,|-]+)\}")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def render(text: str) -> str:
    """Render Markdown as HTML. Bullets that begin with `+` appear one at a time."""
    return str(_MARKDOWN.render(_COMMENT.sub("", text)))


def _fence(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    language, _, rest = tokens[index].info.partition(" ")
    lines = highlight(
        tokens[index].content, get_lexer_by_name(language or "text"), HtmlFormatter(nowrap=True)
    ).rstrip("\n")
    html = "".join(f'<span class="line">{line}\n</span>' for line in lines.split("\n"))
    steps = _STEPS.search(rest)
    if not steps:
        return f'<pre class="code"><code>{html}</code></pre>'
    further = '<span class="fragment step"></span>' * steps[1].count("|")
    return f'<pre class="code" data-steps="{steps[1]}"><code>{html}</code>{further}</pre>'


def _bullet(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    return '<li class="fragment">' if tokens[index].markup == "+" else "<li>"


def _image(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    path = SLIDES / str(token.attrs["src"])
    kind = mimetypes.guess_type(path.name)[0]
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{escape(token.content)}" src="data:{kind};base64,{data}">'


def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    markdown.use(
        dollarmath_plugin,
        double_inline=True,
        renderer=lambda tex, options: formula(tex, display=options["display_mode"]),
    )
    for name, rule in ("fence", _fence), ("list_item_open", _bullet), ("image", _image):
        markdown.add_render_rule(name, rule)
    return markdown


_MARKDOWN = _markdown()
