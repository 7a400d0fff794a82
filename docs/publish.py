"""Write the address of the project into all texts that need one, or remove it from them.

    python -m docs.publish example.org/team/course   # make publish ADDRESS=example.org/team/course
    python -m docs.publish ""                        # the texts for people who have the folder

`[tool.course]` in pyproject.toml holds the address. `publish.toml` lists the texts, and the
notebooks, the book and the slides are built with it. No other file may guess an address.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["text"]
BUILDS = ("notebooks.build", "slides.instructor.collect")
_ADDRESS = re.compile(r"[\w.-]+\.[a-z]+(?:/[\w.~-]+){2,}")


@dataclass(frozen=True)
class Address:
    """Where strangers find the project. All addresses are empty if nobody has published it."""

    repository: str = ""
    book: str = ""  # the book online
    published: bool = False  # the package index has keepfed, and it is ours

    @property
    def on_github(self) -> str:
        """Owner and name on GitHub, or ""."""
        return self.repository.partition("https://github.com/")[2]

    def colab(self, notebook: str) -> str:
        """Return the address that opens a notebook in Colab, or "": Colab opens only GitHub."""
        at = f"https://colab.research.google.com/github/{self.on_github}/blob/main/notebooks"
        return f"{at}/{notebook}.ipynb" if self.on_github else ""

    def keepfed(self) -> str:
        """Return what pip installs for a training, for a command line."""
        source = f'"keepfed @ git+{self.repository}#subdirectory=keepfed"'
        return "keepfed" if self.published else source

    def course(self, extra: str = "course") -> str:
        """Return what pip installs for the course, for a command line."""
        return f'{self.keepfed()} "fast-data-loaders[{extra}] @ git+{self.repository}"'

    def fields(self) -> dict[str, str]:
        """Return the fields of publish.toml."""
        colab = self.colab("00_start_here")
        links = {"Read it now": self.book, "Run notebook 00 in Colab": colab}
        links = {text: link for text, link in links.items() if link} or {"Source": self.repository}
        urls = {"Repository": self.repository, "Documentation": self.book}
        if self.on_github:
            urls["Changelog"] = f"{self.repository}/blob/main/CHANGELOG.md"
        cite = {"repository-code": self.repository, "url": self.book}
        return {
            "repository": self.repository,
            "name": self.repository.rpartition("/")[2],
            "links": " · ".join(f"**[{text}]({link})**" for text, link in links.items()),
            "keepfed": self.keepfed(),
            "course": self.course(),
            "image": f"ghcr.io/{self.on_github}".lower() if self.on_github else "fast-data-loaders",
            "urls": "\n".join(f'{name} = "{link}"' for name, link in urls.items() if link),
            "cite": "\n".join(f"{name}: {link}" for name, link in cite.items() if link),
        }

    def rendered(self, text: dict[str, str]) -> str:
        """Return a text of publish.toml with this address."""
        return text["with"].format(**self.fields()) if self.repository else text["without"]


def address() -> Address:
    """Return the address that pyproject.toml names."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))
    return Address(**project["tool"]["course"])


def chosen(name: str, book: str = "", *, published: bool = False) -> Address:
    """Return the address of a repository, such as example.org/team/course.

    On GitHub, the book is where the workflow `book.yml` puts it.

    Raises:
        ValueError: If `name` is not the address of a repository.
    """
    name = name.removeprefix("https://").rstrip("/").removesuffix(".git")
    if not name:
        return Address()
    if not _ADDRESS.fullmatch(name):
        raise ValueError(f"{name!r} is not an address. Write it like example.org/team/course.")
    host, *path = name.split("/")
    if host == "github.com" and not book:
        book = f"https://{path[0].lower()}.github.io/{path[1]}"
    return Address(f"https://{name}", book, published)


def edited(old: Address, new: Address, folder: Path = REPO) -> dict[Path, str]:
    """Return the new text of each file of the project in `folder`.

    Raises:
        ValueError: If a file lacks a text of publish.toml.
    """
    files: dict[Path, str] = {}
    for text in TEXTS:
        path = folder / text["file"]
        before = files.get(path) or path.read_text("utf-8")
        if before.count(old.rendered(text)) != 1:
            raise ValueError(
                f"{text['file']} must have this text once:\n{old.rendered(text)}\nAdapt the file "
                "or docs/publish.toml, and run this again."
            )
        files[path] = before.replace(old.rendered(text), new.rendered(text))
    pyproject = folder / "pyproject.toml"
    for name, value in asdict(new).items():
        said = f'"{value}"' if isinstance(value, str) else str(value).lower()
        setting = re.compile(rf"(?<=^{name} = )(?:\"\S*\"|true|false)", re.MULTILINE)
        files[pyproject] = setting.sub(said, files[pyproject], count=1)
    return files


def main(argv: Sequence[str] | None = None) -> int:
    """Edit the texts, build the files that depend on them, and return the exit status."""
    parser = argparse.ArgumentParser(description="Write the address of the project into texts.")
    parser.add_argument("address", help="such as example.org/team/course; empty: remove it")
    parser.add_argument("--book", default="", help="URL of the book, if not on GitHub")
    parser.add_argument("--published", action="store_true", help="our keepfed is on the index")
    args = parser.parse_args(argv)
    try:
        new = chosen(args.address, args.book, published=args.published)
        files = edited(address(), new)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    for path, text in files.items():
        path.write_text(text, "utf-8", newline="\n")
    for module in BUILDS:
        subprocess.run([sys.executable, "-m", module], cwd=REPO, check=True)
    print(f"{new.repository or 'No address'}: {len(files)} files. Next: make slides book")
    return 0


if __name__ == "__main__":
    sys.exit(main())
