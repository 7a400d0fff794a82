"""One setting makes all texts that name an address, and can be taken back."""

import shutil
from pathlib import Path

from docs.publish import REPO, TEXTS, Address, address, chosen, edited

EXAMPLES = [
    Address(),
    chosen("example.org/x/y"),
    chosen("https://github.com/Ada/Course.git"),
    chosen("gitlab.example.org/a/b/c", "https://b.example.org", published=True),
]


def test_every_text_gets_the_address_and_loses_it_again(tmp_path: Path) -> None:
    copies = {tmp_path / text["file"]: REPO / text["file"] for text in TEXTS}
    for copy, path in copies.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    old = address()
    for new in [*EXAMPLES, address()]:
        files = edited(old, new, tmp_path)
        assert files.keys() == copies.keys()
        for path, text in files.items():
            path.write_text(text, "utf-8", newline="\n")
            if new.repository and path.name in ("README.md", "frame.md", "pyproject.toml"):
                assert new.keepfed() in text or new.repository in text
        old = new
    assert [copy.read_bytes() for copy in copies] == [path.read_bytes() for path in copies.values()]


def test_github_gives_addresses_that_others_do_not_have() -> None:
    _, elsewhere, on_github, published = EXAMPLES
    assert (elsewhere.book, elsewhere.colab("00")) == ("", "")
    assert elsewhere.course() == (
        '"keepfed @ git+https://example.org/x/y#subdirectory=keepfed" '
        '"fast-data-loaders[course] @ git+https://example.org/x/y"'
    )
    assert on_github.book == "https://ada.github.io/Course"
    assert chosen("github.com/Ada/Course", "https://b.example.org").book == "https://b.example.org"
    assert on_github.colab("00").endswith("/github/Ada/Course/blob/main/notebooks/00.ipynb")
    assert on_github.fields()["image"] == "ghcr.io/ada/course"
    assert published.keepfed() == "keepfed"
