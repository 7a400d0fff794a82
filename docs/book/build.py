"""Build the book, a folder of pages that need no server and no network: `make book`.

`make book ONLY="02 09"` runs only these notebooks; the other pages show their latest run, or none.
Outputs of notebooks are cached, see docs/book/execute.py. Every page is written again each time,
because Sphinx adds only the pages that it writes to the search index.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from course_utils.teaching.notebook.start import DATA_SETS, data_path
from docs.book.assemble import BOOK, assembled
from docs.book.execute import run_changed
from docs.book.links import findings
from notebooks.build import HERE, number

SOURCE, BUILT = BOOK / "assembled", BOOK / "built"
AGAIN = "Close other programs and build again: all other notebooks have run."


def main() -> int:
    """Run changed notebooks, build the pages and check all links; return the exit status."""
    solutions = {number(path): path for path in sorted((HERE / "solutions").glob("*.ipynb"))}
    only = os.environ.get("ONLY", "").split() or [*solutions]
    if unknown := [name for name in only if name not in solutions]:
        print(f"There is no notebook {unknown[0]}. Choose from: {', '.join(solutions)}.")
        return 2
    for data_set in DATA_SETS:  # now, because a page would show how long that took
        data_path(data_set, "S")
    if refused := list(run_changed(solutions[name] for name in only)):
        print(*refused, f"{BUILT} was not changed. {AGAIN}", sep="\n", file=sys.stderr)
        return 1
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
