"""Cards of checks, reveals and demonstrations."""

import re
from itertools import product

from course_utils.teaching.notebook import Bar, bars, card
from course_utils.teaching.notebook.cards import _EDGE


def _luminance(colour: str) -> float:
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.03928 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_edge_is_visible_on_any_page_and_without_colour() -> None:
    for edge, page in product(_EDGE.values(), ("#ffffff", "#111111")):
        colour = re.findall("#[0-9a-f]{6}", edge)[0]
        brighter, darker = sorted((_luminance(colour), _luminance(page)), reverse=True)
        assert (brighter + 0.05) / (darker + 0.05) >= 3
    assert len({_EDGE[tone].split()[1] for tone in ("good", "bad", "open")}) == 3


def test_card_escapes_text_and_marks_code() -> None:
    html = card("good", "Use `<b>`", "a < b", body="<pre>x</pre>")
    assert 'role="status"' in html
    assert "<b>Use <code>&lt;b&gt;</code></b>" in html
    assert "a &lt; b" in html
    assert "<pre>x</pre>" in html


def test_bars_share_one_scale_and_a_guess_is_hatched() -> None:
    first, second = bars([Bar("a", 1, "1", guessed=True), Bar("b", 4, "4")]).split("b</span>")
    assert "width:25.0%" in first
    assert "gradient" in first
    assert "width:100.0%" in second
    assert "gradient" not in second
    assert "width:0.0%" in bars([Bar("a", 0, "0")])
