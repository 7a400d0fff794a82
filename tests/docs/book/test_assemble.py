import re

from course_utils.paths import REPO
from docs.book.assemble import BOOK, index
from notebooks.build import HERE

FRAME = (BOOK / "index.md").read_text("utf-8")


def test_the_first_page_says_what_the_readme_says() -> None:
    readme = (
        "# Title\n\nAbout.\n\n## Start\n\nmake\n\n## Notebooks\n\n"
        "[00](notebooks/00_x.ipynb) [b](docs)\n"
    )
    frame = "{{ README }}\n\n{{ Notebooks }}\n"
    assert index(frame, readme) == "# Title\n\nAbout.\n\n[00](00_x.ipynb) b\n"
    assert "{{" not in index(FRAME, (REPO / "README.md").read_text("utf-8"))


def test_every_notebook_is_in_the_contents() -> None:
    assert [path.stem for path in sorted(HERE.glob("*.ipynb"))] == re.findall(
        r"^((?:\d\d|[A-Z])_\w+)$", FRAME, re.MULTILINE
    )
