"""Cards of checks, reveals and demonstrations."""

from course_utils.teaching.notebook import Bar, bars, card


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
