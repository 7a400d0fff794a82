"""Follow all external links of README, notebooks, decks and book, and name those that are broken.

    python -m docs.links           # make links: exit 1 if a link is broken
    python -m docs.links --list    # only list the links and the files that have them

A page that refuses programs, or does not answer in time, is named, but is not an error.
"""

from __future__ import annotations

import argparse
import re
import sys
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from docs.publish import REPO
from keepfed.field_guide import entries

TEXTS = (
    *("*.md", "docs/**/*.md", "deploy/*.md", "keepfed/*.md", "notebooks/source/*.py"),
    *("slides/*.md", "slides/instructor/*.md"),
)
LIMIT_S = 20.0
_LINK = re.compile(r"https?://[\w-]+\.[\w.-]*[a-z](?:/(?:[^\s()<>\[\]`\"'{}\\|]|\([^\s()]*\))*)?")
_GONE = (404, 410)


def links() -> dict[str, list[str]]:
    """Return the external links, and the files that have each of them."""
    found = defaultdict(list)
    for path in (path for pattern in TEXTS for path in sorted(REPO.glob(pattern))):
        name = path.relative_to(REPO)
        if not {"built", "assembled"} & set(name.parts):  # the book
            for link in dict.fromkeys(_LINK.findall(path.read_text("utf-8"))):
                found[link.rstrip(".,;:*")].append(name.as_posix())
    for entry in entries().values():
        for repository, _, number in (thread.partition("#") for thread in entry.threads):
            link = f"https://github.com/{repository}/issues/{number}"
            found[link].append(f"keepfed/src/keepfed/field_guide/{entry.name}.toml")
    return dict(sorted(found.items()))


def problem(link: str) -> tuple[bool, str]:
    """Return whether a link is broken, and what its server said, which is "" if all is well."""
    request = urllib.request.Request(link, headers={"User-Agent": "Mozilla/5.0 (link check)"})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S):
            return False, ""
    except urllib.error.HTTPError as error:
        return error.code in _GONE, f"{error.code} {error.reason}"
    except OSError as error:  # no such host, no answer, a broken connection
        return False, str(getattr(error, "reason", error))


def main(argv: Sequence[str] | None = None) -> int:
    """List or follow the links, and return the exit status."""
    parser = argparse.ArgumentParser(description="Follow the external links of all texts.")
    parser.add_argument("--list", action="store_true", help="follow none")
    found = links()
    if parser.parse_args(argv).list:
        print(*(f"{link}  {', '.join(files)}" for link, files in found.items()), sep="\n")
        return 0
    with ThreadPoolExecutor(8) as threads:
        problems = dict(zip(found, threads.map(problem, found), strict=True))
    for link, (broken, said) in problems.items():
        if said:
            print(f"{'BROKEN' if broken else 'unknown'}: {link} ({said}), in {found[link][0]}")
    gone = sum(broken for broken, _ in problems.values())
    unknown = sum(bool(said) for _, said in problems.values()) - gone
    print(f"{len(found)} links: {gone} are broken, and {unknown} could not be checked.")
    return 1 if gone or unknown == len(found) else 0


if __name__ == "__main__":
    sys.exit(main())
