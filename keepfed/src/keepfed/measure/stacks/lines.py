"""Add up the sampled stacks of all processes, and find the line that costs the most."""

from __future__ import annotations

import ast
import json
import linecache
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from keepfed.formatting import percent
from keepfed.measure.stacks.place import StackRow, is_own
from keepfed.measure.stacks.sampler import STACKS

FEW_S = 0.1  # s of samples below which no line is named
LONGEST = 60  # characters of a call that is quoted
MOST = 0.5  # share of the time of a line that decides what is said about it

WORK = {  # usual work of the code of a package
    "decompressing": ("zipfile", "gzip", "lzma"),
    "parsing text": ("json", "csv"),
    "a table operation": ("pandas", "polars", "pyarrow"),
    "reading HDF5": ("h5py",),
    "reading chunks": ("zarr",),
    "decoding an image": ("PIL",),
    "unpickling": ("pickle",),
    "drawing random numbers": ("random",),
    "tokenizing": ("tokenizers", "transformers"),
    "waiting": (
        "threading",
        "multiprocessing",
        "queue",
        "selectors",
        "socket",
        "ssl",
        "subprocess",
    ),
}
_ARGUMENTS = re.compile(r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)$")  # of a call at the end
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
    function: str  # "" if the line only creates what was called
    call: str  # the call that took most, or the source of the line if unknown; "" if not exact
    share: float  # of the sampled time of the part
    library: str = ""  # package whose code was called most
    inside: str = ""  # class that the user's files create, and that was called most below `call`
    waits: bool = False  # whether it spends most of its time without a core
    is_exact: bool = True  # False: an earlier line can have taken the time

    @property
    def place(self) -> str:
        """File name and line number, separated by a colon."""
        return f"{Path(self.file).name}:{self.line}"

    @property
    def work(self) -> str:
        """The kind of work, such as "decompressing", or "spent" if it is unknown."""
        usual = next((work for work, names in WORK.items() if self.library in names), "spent")
        return "waiting" if self.waits else usual

    def __str__(self) -> str:
        begin = f"{percent(self.share)} of {OF[self.part]} is {self.work}"
        function = f" in {self.function}" if self.function else ""
        if not self.is_exact:
            return f"{begin} at or just before {self.place}{function}."
        inside = f" (mostly `{self.inside}`)" if self.inside else ""
        created = "" if self.function else "created "
        return f"{begin} in `{self.call}`{inside}, {created}at {self.place}{function}."


Lines = Mapping[str, tuple[HotLine, ...]]  # by part, the largest share first


def read_lines(folder: Path, *names: str) -> Lines:
    """Return the lines that the processes with these names sampled into `folder`, by part."""
    parts, files = defaultdict[str, list[StackRow]](list), set[str]()
    for file in (file for name in names for file in folder.glob(f"{STACKS}{name}*.json")):
        with suppress(OSError, ValueError):
            sampled = json.loads(file.read_text("utf-8"))
            files.update(sampled["files"])
            for row in sampled["rows"]:
                parts[row[0]].append(StackRow(*row))
    created = _created(files)
    return {
        part: tuple(sorted(_hottest(rows, created), key=lambda line: -line.share))
        for part, rows in parts.items()
    }


def _created(files: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Return the classes that one line of the user's files calls, each with its file and line."""
    found = defaultdict[str, list[tuple[str, int]]](list)
    for file in sorted(files):
        for number, text in enumerate(linecache.getlines(file), 1):
            for name in re.findall(r"\b([A-Z]\w*)\(", text):
                found[name].append((file, number))
    return {name: places[0] for name, places in found.items() if len(places) == 1}


def _hottest(rows: Sequence[StackRow], created: Mapping[str, tuple[str, int]]) -> Iterable[HotLine]:
    """Return the user's lines. A line of a package counts for the line that created its object."""
    lines = defaultdict[tuple[str, int], list[tuple[str, StackRow]]](list)
    for row in rows:
        name = next((name for name in row.inside if name in created), "")
        key = (row.file, row.line) if is_own(row.file) else created.get(name)
        if key is not None:
            lines[key].append((name, row))
    total = sum(row.seconds for row in rows)
    for (file, line), found in lines.items() if total > FEW_S else ():
        spent = sum(row.seconds for _, row in found)
        name, most = max(found, key=lambda each: each[1].seconds)
        function = min((row.function for _, row in found), key=len)  # without its lambdas
        is_exact = sum(row.seconds for _, row in found if row.is_exact) > MOST * spent
        waits = sum(row.seconds for _, row in found if row.waits) > MOST * spent
        call, inside = _call(most), name
        if not is_own(most.file):
            call, inside, function = name, "", ""
        where = most.part, file, line, function, call if is_exact else ""
        yield HotLine(*where, spent / total, most.library, inside, waits, is_exact)


def _call(row: StackRow) -> str:
    """Return the source of the call in a row without its arguments, or the line."""
    text, calls = linecache.getline(row.file, row.line), _calls(row.file).get(row.line, [])
    call = row.call or (calls[0] if len(calls) == 1 else None)
    found = text.encode()[slice(*call)].decode(errors="replace") if call else ""
    found = _ARGUMENTS.sub("", found) or text.partition("  #")[0].strip()
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 1]}…"


@cache
def _calls(file: str) -> dict[int, list[tuple[int, int]]]:
    """Return the columns of the calls in each line of a file, in bytes."""
    calls = defaultdict[int, list[tuple[int, int]]](list)
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse("".join(linecache.getlines(file)))):
            if isinstance(node, ast.Call):
                end = node.end_col_offset if node.end_lineno == node.lineno else 0
                calls[node.lineno].append((node.col_offset, end or 0))
    return calls
