import re

from course_utils.paths import REPO
from docs.book.assemble import BOOK, colab_badge
from notebooks.build import HERE, ON_COLAB
from tests.colab.run import NOTEBOOKS as COLAB_NOTEBOOKS

FRAME = (BOOK / "index.md").read_text("utf-8")


def test_every_notebook_is_in_the_contents() -> None:
    contents = re.findall(r"^((?:\d\d|[A-Z])_\w+)$", FRAME, re.MULTILINE)
    assert [path.stem for path in sorted(HERE.glob("*.ipynb"))] == contents


def test_badge_opens_the_notebook_in_colab_where_it_was_tested() -> None:
    readme, urls = (REPO / "README.md").read_text("utf-8"), re.compile(r'https://colab[^)"]*')
    assert urls.findall(colab_badge("00_start_here")) == urls.findall(readme)
    assert set(ON_COLAB) == set(COLAB_NOTEBOOKS)
