"""Four snippets of a lecture note, run as they are printed and mended, over small shards made here.

    compare_snippets(numbered_shards(folder), "script", "columns")

They stand in snippets.toml. All run in one process, which is not this one, with limits of time and
memory; more are in docs/field_guide/snippets.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import tempfile
import textwrap
import tomllib
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from html import escape
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from course_utils.errors import CourseError
from course_utils.loading.shards import url_of, write_shards
from course_utils.teaching.notebook import block, card, run_demo

COUNT, PER_SHARD = 48, 8


@dataclass(frozen=True)
class Snippet:
    """One thing wrong in a snippet."""

    name: str
    broken: str
    mended: str
    why: str
    needs: str = ""  # a package that is not part of the course; empty: it runs here


_WRITTEN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
SNIPPETS = {name: Snippet(name, **parts) for name, parts in _WRITTEN.items()}

_PROGRAM = """
import os

# before datasets is imported: else it asks its hub, and writes into the home folder
os.environ.update(HF_HUB_OFFLINE="1", HF_HOME={home!r})

if __name__ == "__main__":
    from notebooks.stories.snippets import outcome

    for code in {codes!r}:
        print(outcome(code, {urls!r}), end={end!r})
"""
_END = "\n=== the end of a snippet ===\n"


@dataclass(frozen=True)
class Pair:
    """What a snippet says as it is printed, and mended; it draws itself as a card."""

    snippet: Snippet
    before: str
    after: str

    def __repr__(self) -> str:
        """Say it in words."""
        cases = [f"{name}:\n{textwrap.indent(said, '    ')}" for name, said, _ in self._cases]
        return "\n".join([self._title, *cases, self.snippet.why])

    def _repr_html_(self) -> str:
        body = "".join(
            f"<details><summary>{escape(name)}</summary>{block(code)}</details>{block(said)}"
            for name, said, code in self._cases
        )
        return card("plain", self._title, self.snippet.why, body=body)

    @property
    def _title(self) -> str:
        return f"{self.snippet.name} (note 004)"

    @property
    def _cases(self) -> list[tuple[str, str, str]]:
        return [
            ("As printed", self.before, self.snippet.broken),
            ("Mended", self.after, self.snippet.mended),
        ]


class Pairs(list[Pair]):
    """Several of them, one card below the other."""

    def __repr__(self) -> str:
        """Say it in words."""
        return "\n\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        return "".join(pair._repr_html_() for pair in self)


def numbered_shards(
    folder: str | Path, count: int = COUNT, per_shard: int = PER_SHARD
) -> list[str]:
    """Write JPEGs of several sizes into shards and return their URLs; classes are numbers.

    Raises:
        FileExistsError: the folder has shards.
    """
    return [url_of(path) for path in write_shards(_numbered(count), folder, per_shard=per_shard)]


def compare_snippets(urls: Sequence[str], *names: str) -> Pairs:
    """Run snippets as they are printed and mended, all in one other process.

    Args:
        urls: shards as `numbered_shards` writes them.
        *names: some of `SNIPPETS`; none: all.

    Raises:
        CourseError: there is no such snippet, or the process came to no end.
    """
    if unknown := set(names) - set(SNIPPETS):
        raise CourseError(
            f"There is no snippet {min(unknown)!r}; take one of: {', '.join(SNIPPETS)}."
        )
    chosen = [SNIPPETS[name] for name in names or SNIPPETS]
    here = [snippet for snippet in chosen if not _missing(snippet)]
    found = _all([code for snippet in here for code in (snippet.broken, snippet.mended)], urls)

    def said(snippet: Snippet, code: str) -> str:
        return _missing(snippet) or found[code]

    return Pairs(Pair(one, said(one, one.broken), said(one, one.mended)) for one in chosen)


def outcome(code: str, urls: Sequence[str]) -> str:
    """Run a snippet here, and return what it printed, warned of and served, or its error."""
    said = StringIO()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _as_it_was():
        names: dict[str, Any] = {"urls": list(urls), "count": COUNT, "folder": Path(folder)}
        with redirect_stdout(said):
            try:
                exec(compile(code, "<snippet>", "exec"), names)
            except Exception as error:  # whatever it is: it is what the snippet shows
                print(_last_words(error))
                error.__traceback__ = None
                gc.collect()  # else workers of a later snippet find the loop that failed here
            else:
                served = [int(number) for number in names.get("served", ())]
                if served:
                    print(f"{len(served)} served, {len(set(served))} distinct, of {COUNT}")
    return said.getvalue().replace(folder + os.sep, "").strip()


def _all(codes: Sequence[str], urls: Sequence[str]) -> dict[str, str]:
    """Return what each says; they share a process, because every new one imports torch again."""
    if not codes:
        return {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        program = _PROGRAM.format(home=home, codes=list(codes), urls=list(urls), end=_END)
        demo = run_demo(program, seconds=120)
    said = [text.strip() for text in demo.output.split(_END.strip())]
    if demo.returncode or len(said) <= len(codes):  # each text is followed by the end
        raise CourseError(f"The snippets did not come to their end; run again.\n{demo}")
    return dict(zip(codes, said, strict=False))


def _numbered(count: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    for number in range(count):
        pixels = rng.integers(256, size=(40, 40 + 8 * (number % 3), 3), dtype=np.uint8)
        with BytesIO() as file:
            Image.fromarray(pixels).save(file, "JPEG")
            yield {"__key__": f"{number:06d}", "jpg": file.getvalue(), "cls": number}


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Show warnings where a snippet prints, and undo what it does to the environment."""
    environment = dict(os.environ)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("once", category=UserWarning, module="webdataset|snippet")
            warnings.showwarning = lambda message, *_, **__: print(f"Warning: {message}")
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)


def _last_words(error: Exception) -> str:
    """Return type and message; an error in a worker has both at the end of its traceback."""
    text = "".join(traceback.format_exception_only(error)).strip()
    if "Original Traceback" in text:
        text = re.split(r"\n(?=\w+(?:Error|Exception))", text)[-1]
    return text


def _missing(snippet: Snippet) -> str:
    if not snippet.needs or importlib.util.find_spec(snippet.needs):
        return ""
    return f"not run: it needs {snippet.needs}, which this course does not"
