"""The field guide runs: each entry says what it says, and mended it does what it should."""

import pytest

from course_utils.teaching.field_guide import ANY, entries, look_up
from notebooks.stories.field_guide import lacking, show

QUICK = {"sizes", "served_twice", "unpicklable"}
EACH = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.full, id=name)
    for name in entries()
]


def says(text: str, pattern: str) -> bool:
    """Tell whether a text has all parts of a pattern, one after the other."""
    for part in pattern.split(ANY):
        _, found, text = text.partition(part)
        if not found:
            return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH)
def test_an_entry_says_what_it_says_and_mended_it_does_not(name: str) -> None:
    entry = entries()[name]
    if why := lacking(entry):
        pytest.skip(why)
    shown = show(name)
    assert says(shown.before, entry.shows), shown.before
    assert says(shown.after, entry.then), shown.after
    assert not (says(shown.after, entry.shows) and entry.shows != entry.then), shown.after
    if entry.says:
        assert entry in look_up(shown.before)
    assert shown.before.splitlines()[0] in shown._repr_html_()
