from dataclasses import replace

import pytest

from docs.book import conf
from docs.publish import Address


def test_lines_of_code_know_the_column_where_they_begin() -> None:
    code = '<span class="k">def</span> f():\n    <span class="k">return</span> 1\n\n'
    body = f'<div class="highlight"><pre><span></span>{code}</pre></div>'
    marked = conf._CODE.sub(conf._lines, body)
    assert '<span class="line" style="--in:4">    <span class="k">return' in marked
    assert conf.re.sub(r'<span class="line"[^>]*>|(?<=\n)</span>', "", marked) == body


def test_footer_has_licences_and_only_addresses_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "address", Address)
    text = conf._footer("00_start_here")
    assert f"{conf.version}, built on " in text
    assert 'href="notebooks/00_start_here.ipynb" download' in text
    assert "CC BY 4.0" in text
    assert "http" not in text
    monkeypatch.setattr(conf, "address", lambda: replace(Address(), repository="https://a.org/b/c"))
    assert 'href="https://a.org/b/c"' in conf._footer("index")
