import json

from docs.book import guide
from keepfed.field_guide import entries
from notebooks.build import HERE, number

NOTEBOOKS = {number(path): path.stem for path in HERE.glob("*.ipynb")}


def test_the_page_of_an_entry_has_all_that_the_guide_says() -> None:
    for entry in entries().values():
        page = guide.entry_page(entry, NOTEBOOKS)
        assert page.startswith(f"# {entry.title}\n")
        parts = entry.why, *entry.fix, entry.program.rstrip(), entry.prints_fixed
        assert all(part in page for part in (*entry.messages, *parts)), entry.name
        assert f"../{NOTEBOOKS[entry.notebook]}.ipynb" in page


def test_every_entry_is_in_the_contents_once_and_in_what_the_browser_searches() -> None:
    listed = guide.contents()
    _, data = guide.search_data().removesuffix(";\n").split(" = ", 1)
    for name in entries():
        assert listed.count(f"\n{name}\n") == 1
    names = [row["name"] for row in json.loads(data)["rows"] if row["name"]]
    assert names == list(entries())
