import re
from pathlib import Path

import pytest

from course_utils.errors import CourseError
from notebooks.stories.snippets import compare_snippets, numbered_shards
from notebooks.stories.snippets.pipelines import Snippet
from notebooks.stories.snippets.snippets import SNIPPETS, Pairs, outcome, run_snippet

HERE = [name for name, snippet in SNIPPETS.items() if not snippet.needs]
ALL_ONCE = "48 served, 48 distinct, of 48"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return numbered_shards(tmp_path_factory.mktemp("shards") / "numbered")


@pytest.fixture(scope="module")
def pairs(urls: list[str]) -> Pairs:
    return compare_snippets(urls)


def test_all_snippets_are_compared(pairs: Pairs) -> None:
    assert [pair.snippet.name for pair in pairs] == list(SNIPPETS)


@pytest.mark.parametrize("name", HERE)
def test_as_printed_it_fails_as_stated(name: str, pairs: Pairs) -> None:
    before = pairs[list(SNIPPETS).index(name)].before

    assert re.search(SNIPPETS[name].error, before), before


@pytest.mark.parametrize("name", HERE)
def test_mended_it_serves_every_sample_once(name: str, pairs: Pairs) -> None:
    after = pairs[list(SNIPPETS).index(name)].after

    assert after.endswith(ALL_ONCE)


def test_a_buffer_before_the_decoder_holds_no_image(pairs: Pairs) -> None:
    after = pairs[list(SNIPPETS).index("buffer")].after

    assert "decoded before the first sample came: 1, " in after


def test_a_broken_shard_is_an_error_where_the_handler_made_an_epoch_of_it(pairs: Pairs) -> None:
    pair = pairs[list(SNIPPETS).index("handler")]
    served = re.search(r"(\d+) served", pair.before)

    assert served is not None
    assert 40 < int(served[1]) < 48
    assert "cut.tar is cut off or corrupted" in pair.after


def test_a_package_that_is_not_there_is_the_reason(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (pair,) = compare_snippets(urls, "padding")

    assert pair.before == pair.after == "not run: it needs transformers, which this course does not"


def test_each_is_shown_with_both_codes(pairs: Pairs) -> None:
    page = pairs._repr_html_()

    assert page.count("<details>") == 2 * len(SNIPPETS)
    assert all(snippet.name in repr(pairs) for snippet in SNIPPETS.values())


def test_a_snippet_of_ones_own_ends_as_it_ends(urls: list[str]) -> None:
    demo = run_snippet("served = [1, 1]\nprint(len(urls))", urls)

    assert demo.output == "6\n2 served, 1 distinct, of 48"


def test_an_unknown_name_is_refused_with_the_known_ones(urls: list[str]) -> None:
    with pytest.raises(CourseError, match=r"no snippet 'caches'; take one of: address, sizes"):
        compare_snippets(urls, "caches")


def test_what_a_snippet_sets_is_undone(
    urls: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    said = outcome(
        "import os\nos.environ['WORLD_SIZE'] = '2'\nprint(os.environ['WORLD_SIZE'])", urls
    )

    assert said == "2"
    assert outcome("import os\nprint(os.environ.get('WORLD_SIZE'))", urls) == "None"


def test_a_snippet_that_ends_the_process_is_an_error(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = "import os, sys\nsys.__stdout__.flush()\nos._exit(0)"
    snippet = Snippet(name="ends", source="", broken="print(1)", error="", mended=ends, why="")
    monkeypatch.setitem(SNIPPETS, "ends", snippet)

    with pytest.raises(CourseError, match="The snippets did not come to their end; run again"):
        compare_snippets(urls, "ends")


@pytest.mark.parametrize("code", ["broken", "mended"])
def test_a_broken_connection_is_shown_where_a_path_has_a_drive_too(
    code: str, urls: list[str]
) -> None:
    as_there = [f"file:{Path(url).as_posix()}" for url in urls]
    said = outcome(getattr(SNIPPETS["handler"], code), as_there)

    assert re.search(r"4\d served, 4\d distinct", said)
