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
from contextlib import suppress
from pathlib import Path
from shlex import join
from typing import Any

from keepfed.errors import KeepfedError, not_installed
from keepfed.formatting import plural
from keepfed.limits import all_cores
from keepfed.measure.neighbors import Neighbors
from keepfed.measure.watch.attach import prepare
from keepfed.measure.watch.output import NO_BATCH, RECORD, REPORT, claim_folder
from keepfed.measure.watch.signals import Forwarder
from keepfed.measure.watch.timing.failsafe import give_up
from keepfed.measure.watch.timing.ring_file import (
    ENDING,
    FAILED,
    LINES,
    PROCESS,
    ProgramRun,
    read_all,
)


def run_watched(
    program: Sequence[str],
    out: Path,
    *,
    lines: bool = False,
    price: float = 0.0,
    as_json: bool = False,
) -> int:
    """Run and watch `program`, write a report, print it, and return the exit code.

    Args:
        program: Command and its arguments. This Python runs a file that ends in .py.
        out: Folder for the report, created if there is something to write. If it already contains
            files, the function creates a folder with a number instead.
        lines: Whether to sample the stacks, so that the report names the slowest lines of code.
        price: Euros for an hour on this machine. 0 if unknown.
        as_json: Whether to print the report to stdout as one line of JSON, not to stderr as text.

    Raises:
        KeepfedError: If the program cannot be started.
    """
    words = [sys.executable, *program] if program[0].endswith(".py") else list(program)
    try:
        record = Path(tempfile.mkdtemp(prefix="keepfed-watch-"))
        environment = prepare(record) | ({LINES: "1"} if lines else {})
    except OSError as error:
        give_up(error)
        return run_program(words, os.environ)
    neighbors = Neighbors()
    try:
        code = run_program(words, environment)
    except KeepfedError:
        shutil.rmtree(record, ignore_errors=True)
        raise
    run = ProgramRun(
        join(program),
        code,
        neighbors.cores(),
        machine=f"{platform.node()}, {platform.system()}, {plural(all_cores(), 'core')}",
        ended=time.strftime("%d %B %Y, %H:%M"),
        price=price,
    )
    try:
        report = _write_report(record, out, run)
    except (Exception, KeyboardInterrupt) as error:
        report = _not_written(record, run, error)
    else:
        shutil.rmtree(record, ignore_errors=True)
    with suppress(OSError):  # nobody may read the output any more
        print_report(report, as_json=as_json)
    return code


def print_report(report: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a report to stdout as one line of JSON, or its text to stderr."""
    if as_json:
        print(json.dumps(report), flush=True)
    elif report["text"]:
        print(f"\n{report['text']}", file=sys.stderr, flush=True)


def report_later(folder: Path) -> Mapping[str, Any]:
    """Return the report in `folder`, or write the report of the record in it.

    Raises:
        KeepfedError: If `folder` contains neither, or a package is missing.
    """
    try:
        if (folder / REPORT).exists():
            report: Mapping[str, Any] = json.loads((folder / REPORT).read_text("utf-8"))
            return report
        if any(path.suffix in (ENDING, PROCESS) for path in folder.glob("*")):
            kept = folder / RECORD
            known = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
            run = ProgramRun(**{name: known[name] for name in ProgramRun._fields if name in known})
            return _write_report(folder, None, run)
    except ImportError as error:
        raise not_installed(error) from None
    except (TypeError, ValueError) as error:
        raise KeepfedError(f"The report in {folder} is damaged ({error}). Run again.") from None
    raise KeepfedError(f"{folder} contains no report. Use the folder that `keepfed watch` printed.")


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


def _write_report(record: Path, out: Path | None, run: ProgramRun) -> dict[str, Any]:
    """Write the page and the trace of a record into a free folder like `out`, or beside it."""
    seen = read_all(record)
    if not seen:
        return {**run._asdict(), "text": _nothing_seen(record, run)}
    # Imported only after the program has ended, because it takes a moment.
    from keepfed.measure.watch.report import write

    folder, earlier = claim_folder(out) if out else (record, [])
    return write(seen, folder, run, earlier)


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


def _not_written(record: Path, run: ProgramRun, error: BaseException) -> dict[str, Any]:
    """Describe the error, and keep the record for a later report."""
    with suppress(OSError):  # on a full disk, the later report does without
        (record / RECORD).write_text(json.dumps(run._asdict()), "utf-8")
    cause = " ".join(f"{type(error).__name__}: {error}".split())
    text = (
        f"keepfed watch: Could not create the report ({cause}). Create it later: "
        f"keepfed watch --report {record}"
    )
    return {**run._asdict(), "text": text}
