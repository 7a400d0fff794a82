"""A notebook shared without a kernel still shows its pictures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from base64 import b64decode
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

CELLS = (
    "import course_utils as cu",
    "cu.simulate(cu.Pipeline(steps=8)).timeline()",
    "cu.predict('90a', 'How busy is the GPU?', unit='%')",
)


@pytest.mark.slow
def test_static_html_shows_timelines_as_images_and_forms_as_text(
    tmp_path: Path,
) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, store_widget_state=False, resources=resources).execute()
    page, _ = HTMLExporter().from_notebook_node(notebook)
    images = [b64decode(one).decode() for one in re.findall(r"svg\+xml;base64,([\w+/=]+)", page)]
    images += re.findall(r"<svg .*?</svg>", page, re.S)
    images = [image for image in images if 'class="ct"' in image]
    assert len(images) == 1
    assert ElementTree.fromstring(images[0]).get("role") == "img"
    assert "Predict: How busy is the GPU?" in page
