"""Run a program, watch all its Python processes, and print a report at the end."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import count
from pathlib import Path
from shlex import join
from typing import Any

from keepfed.errors import KeepfedError
from keepfed.formatting import percent, plural
from keepfed.limits import all_cores
from keepfed.measure.neighbors import Neighbors
from keepfed.measure.watch.attach import prepare
from keepfed.measure.watch.signals import Forwarder
from keepfed.measure.watch.timing.failsafe import give_up
from keepfed.measure.watch.timing.ring_file import FAILED, LINES, PROCESS, ProgramRun, read_all

NO_BATCH = (
    "No DataLoader returned a batch. This program builds its batches itself, or built none. Write "
    "`for batch in keepfed.watch(batches)` in its loop and run it again. If a function builds each "
    "batch, `batches` is `iter(function, None)`."
)


def run_watched(
    program: Sequence[str],
    out: Path,
    *,
    lines: bool = False,
    fail_above: float | None = None,
    as_json: bool = False,
) -> int:
    """Run and watch `program`, write a report, print it, and return the exit code.

    Args:
        program: Command and its arguments. This Python runs a file that ends in .py.
        out: Folder for the report, created if there is something to write. If it already contains
            files, the function creates a folder with a number instead.
        lines: Whether to sample the stacks, so that the report names the slowest lines of code.
        fail_above: Percentage of the time of the busiest loader that may be lost. If more is lost,
            the exit code of a program that succeeded is 1. None for no limit.
        as_json: Whether to print the report to stdout as one line of JSON, not to stderr as text.

    Raises:
        KeepfedError: If the program cannot be started.
    """
    words = [sys.executable, *program] if program[0].endswith(".py") else list(program)
    try:
        record = Path(tempfile.mkdtemp(prefix="keepfed-watch-"))
        environment = prepare(record)
        sampling = _sample_lines(record, environment) if lines else nullcontext()
    except OSError as error:
        give_up(error)
        return run_program(words, os.environ)
    try:
        neighbors = Neighbors()
        with sampling:
            code = run_program(words, environment)
        machine = f"{platform.node()}, {platform.system()}, {plural(all_cores(), 'core')}"
        ended = time.strftime("%d %B %Y, %H:%M")
        run = ProgramRun(join(program), code, neighbors.cores(), machine=machine, ended=ended)
        report = _write_report(record, out, run)
    finally:
        shutil.rmtree(record, ignore_errors=True)
    lost_share = report.get("lost_share")  # None if no loader was watched
    fails = fail_above is not None and lost_share is not None and lost_share > fail_above / 100
    if fails:
        lost = f"{percent(lost_share or 0)} of the time was lost, more than {fail_above:g} %."
        report["text"] += f"\n\nkeepfed watch: {lost}"
    with suppress(OSError):  # nobody may read the output any more
        if as_json:
            print(json.dumps(report), flush=True)
        elif report["text"]:
            print(f"\n{report['text']}", file=sys.stderr, flush=True)
    return code or int(fails)


def _sample_lines(record: Path, environment: dict[str, str]) -> AbstractContextManager[Any]:
    # Imported only here, because every watched process imports this module.
    from keepfed.measure.stacks import OutsideSampler

    sampler = OutsideSampler(record)
    environment[LINES] = str(sampler.reader)
    return sampler


def run_program(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the program until it ends, and return its exit code as a shell does.

    Raises:
        KeepfedError: If it cannot be started. The code of the error is the one of a shell.
    """
    try:
        with Forwarder() as forwarder:
            code = forwarder.run(words, environment)
    except OSError as error:
        missing = error.errno == errno.ENOENT and not os.path.exists(words[0])
        raise KeepfedError(
            f"Could not start {words[0]} ({error.strerror}). Write your usual command, for "
            "example `python train.py`.",
            code=127 if missing else 126,
        ) from None
    return code if code >= 0 else 128 - code


def _write_report(record: Path, out: Path, run: ProgramRun) -> dict[str, Any]:
    """Write the report of a record into a free folder like `out`, and return its facts."""
    try:
        if observations := read_all(record):
            # Imported only after the program has ended, because it takes a moment.
            from keepfed.measure.watch.report import write

            return write(observations, claim_folder(out), run)
    except (Exception, KeyboardInterrupt) as error:
        give_up(error, "Could not create the report")
        return {**run._asdict(), "text": ""}
    return {**run._asdict(), "text": _nothing_seen(record, run)}


def claim_folder(out: Path) -> Path:
    """Create and return `out`, or the first free one of `out`-2, `out`-3, and so on.

    A folder is free if it is empty. Its first file, a .gitignore, can be created only once, so two
    programs that end together get two folders.

    Raises:
        OSError: If a folder cannot be created.
    """
    for number in count(1):
        folder = out if number == 1 else out.with_name(f"{out.name}-{number}")
        if folder.is_file():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            with suppress(FileExistsError), (folder / ".gitignore").open("x") as file:
                file.write("*\n")
                return folder  # otherwise, another program was faster
    raise AssertionError


def _nothing_seen(record: Path, run: ProgramRun) -> str:
    """Return why there is no report, or "" if the program or its process has said it."""
    if any(record.glob(f"*{FAILED}")) or not record.exists():
        return ""
    torch = any(record.glob(f"*{PROCESS}"))
    if run.code:
        until = "a DataLoader returned a batch" if torch else "a Python process imported torch"
        return f"keepfed watch: The program ended with exit code {run.code} before {until}."
    if torch:
        return f"keepfed watch: {NO_BATCH}"
    return (
        "keepfed watch: No Python process imported torch. If your training runs in a container or "
        "on another machine, start `keepfed watch` there. Do not start Python with -I, -E or -S."
    )
