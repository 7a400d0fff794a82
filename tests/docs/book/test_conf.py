import pytest

from docs.book import conf
from docs.publish import Address


def test_lines_of_code_know_the_column_where_they_begin() -> None:
    code = '<span class="k">def</span> f():\n    <span class="k">return</span> 1\n\n'
    marked = conf._CODE.sub(conf._lines, f'<div class="highlight"><pre><span></span>{code}</pre>')
    assert marked.count('<span class="line" style="--in:') == 3
    assert '--in:4">    <span class="k">return' in marked


def test_footer_has_only_addresses_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    for repository in "", "https://example.org/b/c":
        monkeypatch.setattr(conf, "address", lambda at=repository: Address(at))
        text = conf._footer("00_start_here")
        assert 'href="notebooks/00_start_here.ipynb" download' in text
        assert f"{conf.version}, built on " in text
        assert text.count("http") == bool(repository)
