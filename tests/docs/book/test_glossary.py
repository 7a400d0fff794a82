"""The glossary has the words of the notebooks, and each leads to where it is introduced."""

import re

from course_utils.teaching.explorer import STRATEGIES
from docs.book.assemble import BOOK
from keepfed.measure.spans import STAGES
from notebooks.build import HERE, for_learner, number, read_source, sources

TEXT = (BOOK / "glossary.md").read_text("utf-8")
TERMS = re.findall(r"\n\n([^\n ][^\n]*)\n  ", TEXT.partition(":sorted:")[2])
WORDS = {word.strip() for term in TERMS for word in term.split(",")}
# in bold since they matter, or since they are names in a list
STRESSED = {
    *("access", "and", "certainty", "compared", "computes", "cubes", "flaw", "name", "offline"),
    *("order", "probes", "slabs", "together", "transformer", "turns"),
}
_BOLD = re.compile(r"\*\*(?:[a-z]+\s)?([a-z]{3,})\*\*")  # of two words the last one


def in_bold() -> set[str]:
    learners = (for_learner(read_source(path)) for path in sources(HERE / "source"))
    cells = [cell for learner in learners for cell in learner.cells]
    return {word for cell in cells for word in _BOLD.findall(cell.source)}


def is_known(word: str) -> bool:
    return any(word.startswith(term.split()[-1].rstrip("e")) for term in WORDS)


def test_every_word_that_a_notebook_introduces_is_in_the_glossary() -> None:
    assert {word for word in in_bold() if not is_known(word)} - STRESSED == set()
    assert {*STAGES, *(name for name in STRATEGIES if name != "workers"), "worker"} <= WORDS


def test_each_word_stands_there_once_and_names_its_notebook() -> None:
    assert len(TERMS) == len(set(TERMS))
    assert sorted(TERMS, key=str.lower) == TERMS
    numbers = {number(path) for path in sources(HERE / "source")}
    for entry in re.split(r"\n\n(?=\S)", TEXT.partition(":sorted:")[2].strip("`\n")):
        assert set(re.findall(r"\[(\w+)\]", entry)) & numbers, entry
