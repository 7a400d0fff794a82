"""Save an executed notebook as one HTML file: `course page 00`.

The timelines in it still toggle, because JupyterLab stores everything that they can show in the
notebook. The page loads nothing from the network and needs no kernel.
"""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_utils.errors import CourseError
from keepfed.measure.picture import as_fragment, page_script

if TYPE_CHECKING:
    from nbformat import NotebookNode

_VIEW, _STATE = (f"application/vnd.jupyter.widget-{part}+json" for part in ("view", "state"))
_SVG = "image/svg+xml"
_STYLE = """<style>body{max-width:66em;margin:1em auto;padding:0 1em}img,svg{max-width:100%}
.jp-InputArea-editor{overflow-x:auto}.jp-OutputArea-output pre{word-break:normal;
overflow-wrap:anywhere}</style>"""
# The template without the scripts that it would load from other machines.
_TEMPLATE = """{% extends 'lab/index.html.j2' %}
{% block html_head_js %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
"""


def find_notebook(wanted: str, work: Path) -> Path:
    """Return the notebook at the path `wanted`, or the one with that number in `work`.

    Raises:
        CourseError: If there is no such notebook.
    """
    if Path(wanted).is_file():
        return Path(wanted)
    number = wanted.zfill(2) if wanted.isdigit() else wanted.upper()
    found = sorted(work.glob(f"{number}_*.ipynb"), key=lambda path: len(path.name))
    if not found:
        raise CourseError(
            f"There is no notebook {wanted} in {work}. Open it with `course lab` first, or give "
            "the path of a notebook."
        )
    return found[0]


def as_page(notebook: Path) -> tuple[str, int]:
    """Return `notebook` as one HTML page, and the number of its timelines that toggle.

    Raises:
        CourseError: If the file is not a notebook, or has not been run.
    """
    import nbformat
    from nbconvert import HTMLExporter

    try:
        content = nbformat.reads(notebook.read_text("utf-8"), as_version=4)  # type: ignore[no-untyped-call]
    except (ValueError, KeyError, nbformat.ValidationError) as error:
        raise CourseError(
            f"{notebook} is not a notebook. Give the path of a .ipynb file."
        ) from error
    if not any(cell.get("execution_count") for cell in content.cells):
        raise CourseError(
            f"{notebook} has not been run. Run it in JupyterLab (Run > Run All Cells), save it, "
            "and try again."
        )
    outputs = [out for cell in content.cells for out in cell.get("outputs", ())]
    widgets = content.metadata.pop("widgets", {}).get(_STATE, {}).get("state", {})
    live = sum(_without_kernel(out, widgets) for out in outputs if _VIEW in out.get("data", {}))
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        raw_template=_TEMPLATE,
        embed_images=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    resources = {"metadata": {"name": notebook.stem, "path": str(notebook.parent)}}
    page, _ = exporter.from_notebook_node(content, resources)
    head, end, rest = page.rpartition("</body>")
    script = f'<script type="module">{page_script()}</script>' if live else ""
    return f"{head.replace('</head>', f'{_STYLE}</head>', 1)}{script}{end}{rest}", live


def _without_kernel(output: NotebookNode, widgets: dict[str, Any]) -> bool:
    """Replace the widget of an output by what needs no kernel; return whether that toggles."""
    data = output.data
    stored = widgets.get(data.pop(_VIEW)["model_id"], {})
    packed = {
        buffer["path"][0]: b64decode(buffer["data"])
        for buffer in stored.get("buffers", ())
        if buffer["path"] in (["payload"], ["extra"])
    }
    if _SVG in data:
        svg = data.pop(_SVG)
        live = "payload" in packed
        data["text/html"] = as_fragment(svg, stored["state"]["state"], **packed) if live else svg
        return live
    return False
