"""Cards of checks, reveals and demonstrations."""

from course_utils.teaching.notebook import card


def test_card_escapes_text_and_marks_code() -> None:
    html = card("good", "Use `<b>`", "a < b", body="<pre>x</pre>")
    assert 'role="status"' in html
    assert "<b>Use <code>&lt;b&gt;</code></b>" in html
    assert "a &lt; b" in html
    assert "<pre>x</pre>" in html
