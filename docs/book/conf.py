"""Configuration of Sphinx for the files that `docs.book.assemble` creates."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxTranslator

from course_utils import __version__
from course_utils.plots import TYPEFACE
from docs.publish import REPO, address
from keepfed.measure.picture import page_script
from slides.build.maths import formula

_CODE = re.compile(r'(?<=<div class="highlight"><pre><span></span>).*?(?=</pre>)', re.DOTALL)
_LINE = re.compile(r"(?:<[^>]*>)*( *)(?:.*\n|.+)")
_LICENCES = "Code: MIT. Texts and pictures: CC BY 4.0. Typeface: Inter, OFL 1.1."
_HEADING = re.compile(r"(Args|Returns|Yields|Raises|Attributes):")  # Google style

project = "Fast Data Loaders"
release = version = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["**/.ipynb_checkpoints", "extra"]
suppress_warnings = ["autosectionlabel.*"]

nb_execution_mode = "off"  # docs/book/execute.py has run them
nb_ipywidgets_js: dict[str, Any] = {}  # the scripts would be loaded from the network
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "text/html", 0)]
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
highlight_language = "none"
default_role = "code"  # our docstrings mark code with single backticks
add_module_names = False

html_theme = "sphinx_book_theme"
html_title = "Fast Data Loaders"
html_static_path = ["static", "assembled/source/static", str(TYPEFACE)]
html_extra_path = ["assembled/source/extra"]
html_css_files = ["inter.css", "book.css"]
html_math_renderer = "mathtext"
html_copy_source = False
html_show_search_summary = False  # browsers do not let pages on disk load other pages
html_show_sphinx = False
html_context = {"default_mode": "auto"}
html_use_index = False
html_theme_options = {
    "footer_content_items": ["extra-footer"],
    "navbar_persistent": [],  # the search field is in the sidebar
    "use_download_button": False,
    "use_fullscreen_button": False,
    "home_page_in_toc": True,
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def setup(app: Sphinx) -> None:
    """Draw formulas without a script, and add the scripts that a page needs."""
    app.add_html_math_renderer("mathtext", (_inline, None), (_display, None))
    app.connect("autodoc-process-docstring", _mark_code, priority=100)  # before napoleon
    app.connect("html-page-context", _finish)


def _inline(translator: SphinxTranslator, node: nodes.math) -> None:
    translator.body.append(formula(node.astext()))
    raise nodes.SkipNode


def _display(translator: SphinxTranslator, node: nodes.math_block) -> None:
    translator.body.append(f'<p class="display">{formula(node.astext(), display=True)}</p>')
    raise nodes.SkipNode


def _mark_code(_app: Sphinx, _what: str, _name: str, _of: Any, _how: Any, lines: list[str]) -> None:
    """Mark indented text below a paragraph as code."""
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


def _finish(
    app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: nodes.document | None
) -> None:
    """Mark lines of code, and add the footer of a page and only the scripts that it needs."""
    context["theme_extra_footer"] = _footer(page)
    context["body"] = _CODE.sub(_lines, context.get("body", ""))
    if "course-timeline" in context.get("body", ""):
        app.add_js_file(None, body=page_script(), type="module")
    if 'class="asked"' in context.get("body", ""):
        app.add_js_file("guess.js", loading_method="defer")
    if "data-exercise=" in context.get("body", ""):
        app.add_js_file("exercise.js", priority=900, loading_method="defer")
    if 'class="look-up"' in context.get("body", ""):
        for order, file in enumerate(("field_guide.js", "look_up.js")):
            app.add_js_file(file, priority=900 + order, loading_method="defer")


def _lines(code: re.Match[str]) -> str:
    """Return highlighted code with its lines marked, so that book.css can indent wrapped ones."""
    marked = r'<span class="line" style="--in:{}">{}</span>'
    return _LINE.sub(lambda line: marked.format(len(line[1]), line[0]), code[0])


def _footer(page: str) -> str:
    """Return version, date and licenses, and links to the notebook and to the repository."""
    parts = [f"{project} {version}, built on {date.today():%d %B %Y}. {_LICENCES}"]
    notebook = f"notebooks/{page}.ipynb"
    if (REPO / notebook).exists():
        parts.append(f'<a href="{notebook}" download>Download this notebook</a>')
    if source := address().repository:
        parts.append(f'<a href="{source}">Source</a>')
    if address().on_github:
        parts.append(f'<a href="{source}/issues">Report an error</a>')
    return f"<p>{' · '.join(parts)}</p>"
