"""Run snippets that are often printed, and their fixed versions, on small shards.

    compare_snippets(numbered_shards(folder), "script", "columns")

The snippets are listed in snippets.toml. They all run in one subprocess, with limits on time and
memory.
"""

import importlib.util
import os
import tempfile
import tomllib
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
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
    """A snippet with one fault, and its fixed version."""

    name: str
    broken: str
    fixed: str
    why: str
    needs: str = ""  # a package that the course does not install, or ""


_WRITTEN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
SNIPPETS = {name: Snippet(name, **parts) for name, parts in _WRITTEN.items()}

_PROGRAM = """
import os

# set before importing datasets, which else contacts its hub and writes into the home folder
os.environ.update(HF_HUB_OFFLINE="1", HF_HOME={home!r})

if __name__ == "__main__":
    from course_utils.stories.snippets import outcome

    for code in {codes!r}:
        print(outcome(code, {urls!r}), end={end!r})
"""
_END = "\n=== the end of a snippet ===\n"


@dataclass(frozen=True)
class Pair:
    """The output of a snippet before and after the fix, shown as a card."""

    snippet: Snippet
    before: str
    after: str

    def _repr_html_(self) -> str:
        one = self.snippet
        cases = ("As printed", one.broken, self.before), ("Fixed", one.fixed, self.after)
        body = "".join(
            f"<details><summary>{name}</summary>{block(code)}</details>{block(said)}"
            for name, code, said in cases
        )
        return card("plain", one.name, one.why, body=body)


class Pairs(list[Pair]):
    """A list of pairs, shown as one card below the other."""

    def _repr_html_(self) -> str:
        return "".join(pair._repr_html_() for pair in self)


def numbered_shards(folder: str | Path, *, per_shard: int = PER_SHARD) -> list[str]:
    """Write JPEGs of several sizes into shards, with indices as classes, and return their URLs.

    Programs of the field guide choose `per_shard`, and so the number of shards.

    Raises:
        FileExistsError: If the folder already contains shards.
    """
    return [url_of(path) for path in write_shards(_numbered(), folder, per_shard=per_shard)]


def compare_snippets(urls: Sequence[str], *names: str) -> Pairs:
    """Run snippets and their fixed versions, all in one subprocess.

    Args:
        urls: shards as `numbered_shards` writes them.
        *names: keys of `SNIPPETS`.

    Raises:
        CourseError: If the process fails, or runs too long.
    """
    chosen = [SNIPPETS[name] for name in names]
    missing = {
        snippet.name: f"not run here: the course does not install {snippet.needs}"
        for snippet in chosen
        if snippet.needs and not importlib.util.find_spec(snippet.needs)
    }
    run = [snippet for snippet in chosen if snippet.name not in missing]
    codes = [code for snippet in run for code in (snippet.broken, snippet.fixed)]
    # they share a process, so that torch is imported only once
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        program = _PROGRAM.format(home=home, codes=codes, urls=list(urls), end=_END)
        demo = run_demo(program, seconds=120)
    said = [text.strip() for text in demo.output.split(_END.strip())]
    if demo.returncode or len(said) <= len(codes):  # one end mark follows each output
        raise CourseError(f"The snippets did not finish. Run the cell again.\n{demo}")
    outputs = dict(zip(codes, said, strict=False))
    return Pairs(
        Pair(one, *(missing.get(one.name) or outputs[code] for code in (one.broken, one.fixed)))
        for one in chosen
    )


def outcome(code: str, urls: Sequence[str]) -> str:
    """Run a snippet in this process, and return its output, its sample count or its error."""
    said = StringIO()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        warnings.catch_warnings(action="ignore"),
        redirect_stdout(said),
    ):
        names: dict[str, Any] = {"urls": list(urls), "count": COUNT, "folder": Path(folder)}
        try:
            exec(compile(code, "<snippet>", "exec"), names)
        except Exception as error:  # any error is part of the result
            print(*traceback.format_exception_only(error))
        if served := [int(number) for number in names.get("served", ())]:
            print(f"{len(served)} served, {len(set(served))} distinct, of {COUNT}")
    return said.getvalue().replace(folder + os.sep, "").strip()


def _numbered() -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        pixels = rng.integers(256, size=(40, 40 + 8 * (number % 3), 3), dtype=np.uint8)
        with BytesIO() as file:
            Image.fromarray(pixels).save(file, "JPEG")
            yield {"__key__": f"{number:06d}", "jpg": file.getvalue(), "cls": number}
