"""Build the book, a folder of pages that need no server and no network: `make book`.

Outputs of notebooks are cached, see docs/book/execute.py. Every page is written again each time,
because Sphinx adds only the pages that it writes to the search index.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from docs.book.assemble import BOOK, assembled
from docs.book.links import findings

SOURCE, BUILT = BOOK / "assembled", BOOK / "built"


def main() -> int:
    """Run changed notebooks, build the pages and check all links; return the exit status."""
    lay_out(dict(assembled()), SOURCE / "source")
    shutil.rmtree(BUILT, ignore_errors=True)
    trees = SOURCE / "trees"
    sphinx = ["-q", "-W", "--keep-going", "-c", BOOK, "-d", trees, SOURCE / "source", BUILT]
    if status := build_main([str(argument) for argument in sphinx]):
        return int(status)
    shutil.rmtree(BUILT / ".doctrees", ignore_errors=True)
    wrong = list(findings(BUILT))
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    size = sum(path.stat().st_size for path in BUILT.rglob("*") if path.is_file())
    print(f"{BUILT / 'index.html'}: {size / 1e6:.1f} MB")
    return 1 if wrong else 0


def lay_out(texts: dict[str, str], folder: Path) -> None:
    """Write files into a folder and remove all others. Unchanged files keep their time stamp."""
    for path in [*folder.rglob("*")]:
        if path.is_file() and path.relative_to(folder).as_posix() not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
