import re

from docs.book.assemble import BOOK
from notebooks.build import HERE, number, sources

TEXT = (BOOK / "glossary.md").read_text("utf-8")
TERMS = re.findall(r"\n\n([^\n ][^\n]*)\n  ", TEXT.partition(":sorted:")[2])


def test_each_word_stands_there_once_and_names_its_notebook() -> None:
    assert len(TERMS) == len(set(TERMS))
    assert sorted(TERMS, key=str.lower) == TERMS
    numbers = {number(path) for path in sources(HERE / "source")}
    for entry in re.split(r"\n\n(?=\S)", TEXT.partition(":sorted:")[2].strip("`\n")):
        assert set(re.findall(r"\[(\w+)\]", entry)) & numbers, entry
