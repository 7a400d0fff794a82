import re

from course_utils.paths import REPO
from docs.book.assemble import BOOK, colab_badge, index
from notebooks.build import HERE, ON_COLAB
from tests.colab.run import NOTEBOOKS as COLAB_NOTEBOOKS

FRAME = (BOOK / "index.md").read_text("utf-8")


def test_the_first_page_says_what_the_readme_says() -> None:
    readme = (
        "# Title\n\n**[Read it now](https://b)** · **[Colab](https://c)**\n\n## Start\n\nmake\n\n"
        "## Notebooks\n\n[00](notebooks/00_x.ipynb) [b](docs) [c](docs/commands.md)\n"
    )
    frame = "{{ README }}\n\n{{ Notebooks }}\n"
    assert index(frame, readme) == (
        "# Title\n\n**[Colab](https://c)**\n\n[00](00_x.ipynb) b [c](commands.md)\n"
    )
    assert "{{" not in index(FRAME, (REPO / "README.md").read_text("utf-8"))


def test_every_notebook_is_in_the_contents() -> None:
    assert [path.stem for path in sorted(HERE.glob("*.ipynb"))] == re.findall(
        r"^((?:\d\d|[A-Z])_\w+)$", FRAME, re.MULTILINE
    )


def test_badge_opens_the_notebook_in_colab_where_it_was_tested() -> None:
    readme, urls = (REPO / "README.md").read_text("utf-8"), re.compile(r'https://colab[^)"]*')
    assert urls.findall(colab_badge("00_start_here")) == urls.findall(readme)
    assert set(ON_COLAB) == set(COLAB_NOTEBOOKS)
