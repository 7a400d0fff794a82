import re

import pytest

from course_utils.stories.snippets import SNIPPETS, compare_snippets, numbered_shards

HERE = {
    "labels": r"torch.Size\(\[1, 16\]\)",
    "images": r"TypeError: pic should be PIL Image or ndarray",
    "cached": r"ValueError: cache directory cache does not exist",
    "script": r"RuntimeError: Dataset scripts are no longer supported, but found c4.py",
    "columns": r"TypeError: .*with_format\(\) got an unexpected keyword argument 'columns'",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return numbered_shards(tmp_path_factory.mktemp("shards") / "numbered")


def test_only_the_fixed_snippet_serves_all(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    pairs = compare_snippets(urls, *SNIPPETS)
    for pair in pairs:
        if pair.snippet.needs:
            said = f"not run here: the course does not install {pair.snippet.needs}"
            assert pair.before == pair.after == said
        else:
            assert re.search(HERE[pair.snippet.name], pair.before), pair
            assert pair.after.endswith("48 served, 48 distinct, of 48"), pair
    page = pairs._repr_html_()
    assert page.count("<details>") == 2 * len(SNIPPETS)
    assert all(name in page for name in SNIPPETS)
