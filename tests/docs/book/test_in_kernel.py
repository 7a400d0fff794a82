from pathlib import Path
from types import SimpleNamespace

import ipywidgets as widgets
import pytest
from IPython.core.formatters import DisplayFormatter

from course_utils.teaching.notebook import predict, reveal
from docs.book.in_kernel import FORM, load_ipython_extension
from keepfed.measure.picture import Timeline
from tests.keepfed.measure.handmade import naive


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


def test_a_prediction_is_a_question_with_its_unit_or_its_choices(shown) -> None:
    html = shown(predict("07a", "How busy?", unit="%"))
    assert html.startswith('<div class="asked" data-key="07a" data-unit="%">')
    assert 'How busy?</span> <span class="unit">(%)</span>' in html
    choices = (
        '<ul><li data-choice="a &amp; b">a &amp; b</li><li data-choice="`x`"><code>x</code></li>'
    )
    assert choices in shown(predict("07b", "Which?", choices=["a & b", "`x`"]))


def test_a_measurement_stands_alone_and_a_form_is_told_in_a_sentence(shown) -> None:
    predict("07c", "How many?", unit="times")
    html, _, comparison = shown(reveal("07c", 3)).partition("<template>")
    assert html.startswith('<div class="revealed" data-key="07c" data-measured="3.0">')
    assert html.endswith("<b>Measured: 3 times.</b></div>")
    assert "How many?" in comparison
    assert FORM in shown(widgets.VBox([widgets.Button()]))
