"""Add up the sampled stacks of all processes, and find the line that costs the most."""

from __future__ import annotations

import json
import linecache
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keepfed.formatting import percent
from keepfed.measure.stacks.sampler import STACKS, is_own

FEW_S = 0.1  # s of samples below which no line is named
LONGEST = 60  # characters of a call that is quoted

WORK = {  # usual work of the code of a package
    "zipfile": "decompressing",
    "gzip": "decompressing",
    "lzma": "decompressing",
    "json": "parsing JSON",
    "csv": "parsing text",
    "pandas": "a table operation",
    "polars": "a table operation",
    "pyarrow": "a table operation",
    "h5py": "reading HDF5",
    "zarr": "reading chunks",
    "PIL": "decoding an image",
    "pickle": "unpickling",
    "threading": "waiting for a lock",
    "multiprocessing": "waiting for a lock or for another process",
    "random": "drawing random numbers",
    "tokenizers": "tokenizing",
    "transformers": "tokenizing",
}
OF = {
    "fetch": "loading samples",
    "collate": "collating",
    "sampler": "the sampler's time",
    "loop": "the loop's own time",
}


@dataclass(frozen=True)
class HotLine:
    """The line of the user's code that takes the largest share of a part."""

    part: str  # "fetch", "collate", "sampler" or "loop"
    file: str
    line: int
    function: str
    call: str  # the expression that was executed most, or the source of the line
    share: float  # of the sampled time of the part
    library: str = ""  # package whose code was called most

    @property
    def source(self) -> str:
        """The text of the line, or "" if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def place(self) -> str:
        """File name and line number, separated by a colon."""
        return f"{Path(self.file).name}:{self.line}"

    @property
    def work(self) -> str:
        """The kind of work, such as "decompressing", or "spent" if it is unknown."""
        return WORK.get(self.library, "spent")

    def __str__(self) -> str:
        return (
            f"{percent(self.share)} of {OF[self.part]} is {self.work} in `{self.call}`, called at "
            f"{self.place} in {self.function}."
        )


Lines = Mapping[str, tuple[HotLine, ...]]  # by part, the largest share first


def read_lines(folder: Path, *names: str) -> Lines:
    """Return the lines that the processes with these names sampled into `folder`, by part."""
    rows: list[dict[str, Any]] = []
    for name in names:
        for file in folder.glob(f"{STACKS}{name}*.json"):
            with suppress(OSError, ValueError):
                rows += json.loads(file.read_text("utf-8"))
    parts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        parts[row["part"]].append(row)
    return {part: tuple(_hottest(part, found)) for part, found in parts.items()}


def _hottest(part: str, rows: Iterable[dict[str, Any]]) -> Iterable[HotLine]:
    lines: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        lines[row["file"], row["position"][0]].append(row)
    total = sum(row["seconds"] for found in lines.values() for row in found)
    if total < FEW_S:
        return
    spent = {key: sum(row["seconds"] for row in found) for key, found in lines.items()}
    for key in sorted(spent, key=lambda key: -spent[key]):
        if part != "fetch" and not is_own(key[0]):
            continue
        most = max(lines[key], key=lambda row: row["seconds"])
        function = min((row["function"] for row in lines[key]), key=len)  # without its lambdas
        yield HotLine(part, *key, function, _call(most), spent[key] / total, most["library"])


def _call(row: Mapping[str, Any]) -> str:
    """Return the source of the expression in a row, without the arguments of a call."""
    line, _, first, last = row["position"]
    text = linecache.getline(row["file"], line)
    found = text.strip()
    if first >= 0:  # columns count bytes
        found = text.encode()[first:last].decode(errors="replace")
    if found.endswith(")") and "(" in found:
        depth = 0
        for place in range(len(found) - 1, -1, -1):
            depth += {")": 1, "(": -1}.get(found[place], 0)
            if depth == 0:
                found = found[:place]
                break
    found = found or text.strip()
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 1]}…"
