from pathlib import Path
from types import SimpleNamespace

import ipywidgets as widgets
import pytest
from IPython.core.formatters import DisplayFormatter

from docs.book.in_kernel import FORM, load_ipython_extension
from keepfed.measure.picture import Timeline
from tests.measure.handmade import naive


@pytest.fixture
def shown(scratch: Path):
    shell = SimpleNamespace(display_formatter=DisplayFormatter())
    load_ipython_extension(shell)
    return lambda thing: shell.display_formatter.format(thing)[0]["text/html"]


def test_a_timeline_brings_its_data_and_leaves_the_script_to_its_page(shown) -> None:
    html = shown(Timeline(naive()))
    assert 'class="course-timeline"' in html
    assert "<svg" in html
    assert 'type="module"' not in html


def test_a_form_is_told_in_a_sentence(shown) -> None:
    assert FORM in shown(widgets.VBox([widgets.Button()]))
