"""How Sphinx makes the book of what `docs.book.assemble` has laid out."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxTranslator

from keepfed import __version__
from keepfed.measure.picture import page_script
from slides.build.maths import formula

_HEADING = re.compile(r"(Args|Returns|Yields|Raises|Attributes):")  # Google style

project = "Fast Data Loaders"
release = version = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["**/.ipynb_checkpoints"]
suppress_warnings = ["autosectionlabel.*"]

nb_execution_mode = "off"  # they were run before: docs/book/execute.py
nb_ipywidgets_js: dict[str, Any] = {}  # it would come from another machine
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "text/html", 0)]
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
highlight_language = "none"
default_role = "code"  # what stands in single backticks in our docstrings
add_module_names = False

html_theme = "sphinx_book_theme"
html_title = "Fast Data Loaders"
html_static_path = ["static", "assembled/source/static"]
html_css_files = ["book.css"]
html_math_renderer = "mathtext"
html_copy_source = False
html_show_search_summary = False  # it would fetch pages, which a browser refuses for files
html_show_sphinx = False
html_context = {
    "default_mode": "auto",
    "changed": sha256(f"{Path(__file__).read_text('utf-8')}{page_script()}".encode()).hexdigest(),
}  # which Sphinx compares with that of the last time: then it writes all pages anew
html_use_index = False
html_theme_options = {
    "footer_content_items": [],
    "navbar_persistent": [],  # the search stands in the sidebar
    "use_download_button": False,
    "use_fullscreen_button": False,
    "home_page_in_toc": True,
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def setup(app: Sphinx) -> None:
    """Draw formulas without a script, and start the timelines of a page once."""
    app.add_html_math_renderer("mathtext", (_inline, None), (_display, None))
    app.connect("autodoc-process-docstring", _mark_code, priority=100)  # before napoleon
    app.connect("html-page-context", _add_scripts)


def _inline(translator: SphinxTranslator, node: nodes.math) -> None:
    translator.body.append(formula(node.astext()))
    raise nodes.SkipNode


def _display(translator: SphinxTranslator, node: nodes.math_block) -> None:
    translator.body.append(f'<p class="display">{formula(node.astext(), display=True)}</p>')
    raise nodes.SkipNode


def _mark_code(_app: Sphinx, _what: str, _name: str, _of: Any, _how: Any, lines: list[str]) -> None:
    """Mark as code what is indented below a paragraph, as our docstrings have it."""
    made: list[str] = []
    in_prose, before = True, ""
    for line in lines:
        if line.startswith("    ") and in_prose and not before.strip():
            made += [".. code-block:: python", ""]
            in_prose = False
        elif line and not line[0].isspace():
            in_prose = not _HEADING.fullmatch(line)
        made.append(line)
        before = line
    lines[:] = made


def _add_scripts(
    app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: nodes.document | None
) -> None:
    """Let a page bring only the scripts that it needs."""
    if "course-timeline" in context.get("body", ""):
        app.add_js_file(None, body=page_script(), type="module")
    if 'class="asked"' in context.get("body", ""):
        app.add_js_file("guess.js", loading_method="defer")
    if 'class="look-up"' in context.get("body", ""):
        for order, file in enumerate(("field_guide.js", "look_up.js")):
            app.add_js_file(file, priority=900 + order, loading_method="defer")
