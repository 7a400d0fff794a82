import re

import pytest

from course_utils.errors import CourseError
from course_utils.teaching.notebook import Demo
from notebooks.stories import snippets
from notebooks.stories.snippets import (
    SNIPPETS,
    Pairs,
    compare_snippets,
    numbered_shards,
    outcome,
)

HERE = {
    "script": r"RuntimeError: Dataset scripts are no longer supported, but found c4.py",
    "columns": r"TypeError: .*with_format\(\) got an unexpected keyword argument 'columns'",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return numbered_shards(tmp_path_factory.mktemp("shards") / "numbered")


@pytest.fixture(scope="module")
def pairs(urls: list[str]) -> Pairs:
    return compare_snippets(urls)


def test_all_snippets_are_compared_and_shown_with_both_codes(pairs: Pairs) -> None:
    page = pairs._repr_html_()
    assert [pair.snippet.name for pair in pairs] == list(SNIPPETS)
    assert page.count("<details>") == 2 * len(SNIPPETS)
    assert all(name in repr(pairs) for name in SNIPPETS)


@pytest.mark.parametrize("name", HERE)
def test_it_fails_as_printed_and_serves_every_sample_once_mended(name: str, pairs: Pairs) -> None:
    pair = pairs[list(SNIPPETS).index(name)]
    assert re.search(HERE[name], pair.before), pair
    assert pair.after.endswith("48 served, 48 distinct, of 48"), pair


def test_a_package_that_is_not_there_is_the_reason(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (pair,) = compare_snippets(urls, "padding")
    assert pair.before == pair.after == "not run: it needs transformers, which this course does not"


def test_an_unknown_name_is_refused_with_the_known_ones(urls: list[str]) -> None:
    with pytest.raises(CourseError, match=r"no snippet 'caches'; take one of: script, columns"):
        compare_snippets(urls, "caches")


def test_what_a_snippet_prints_is_returned_and_what_it_sets_is_undone(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    served = "import os\nos.environ['WORLD_SIZE'] = '2'\nprint(len(urls))\nserved = [1, 1]"
    assert outcome(served, urls) == "6\n2 served, 1 distinct, of 48"
    assert outcome("import os\nprint(os.environ.get('WORLD_SIZE'))", urls) == "None"


def test_snippets_that_do_not_come_to_their_end_are_an_error(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    only_one = Demo("It ended", 0, seconds=1.0, peak_mb=1.0, output="said once")
    monkeypatch.setattr(snippets, "run_demo", lambda program, seconds: only_one)
    with pytest.raises(CourseError, match="The snippets did not come to their end; run again"):
        compare_snippets(urls, "script")
