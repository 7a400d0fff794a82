"""Build the book, one folder of pages that need no server and no network: `make book`.

    python -m docs.book.build            # run what has changed, build, look at every link
    python -m docs.book.build --afresh   # build every page anew; what notebooks showed is kept

The notebooks are run once; see docs/book/execute.py.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from sphinx.cmd.build import build_main

from docs.book.assemble import BOOK, assembled
from docs.book.links import findings

SOURCE, BUILT = BOOK / "assembled", BOOK / "built"


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, and return the exit status."""
    parser = argparse.ArgumentParser(description="Build the book from the notebooks.")
    parser.add_argument("--afresh", action="store_true", help="build every page anew")
    if parser.parse_args(arguments).afresh:
        for folder in SOURCE, BUILT:
            shutil.rmtree(folder, ignore_errors=True)
    lay_out(dict(assembled()), SOURCE / "source")
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
    """Write files into a folder and remove all others; what has not changed keeps its time."""
    for path in [*folder.rglob("*")]:
        source = path.relative_to(folder)
        if path.is_file() and source.as_posix() not in texts:
            path.unlink()
            (BUILT / source).with_suffix(".html").unlink(missing_ok=True)
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
