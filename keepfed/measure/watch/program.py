"""Run a program, watch all its Python processes, and print a report at the end."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from shlex import join
from typing import Any

from keepfed.errors import KeepfedError, not_installed
from keepfed.formatting import duration, percent, plural
from keepfed.limits import all_cores
from keepfed.measure.neighbours import Neighbours
from keepfed.measure.watch.attach import prepare
from keepfed.measure.watch.timing.failsafe import give_up
from keepfed.measure.watch.timing.ring_file import (
    ENDING,
    FAILED,
    LINES,
    PROCESS,
    Observation,
    ProgramRun,
    Totals,
    read_all,
)

PROGRAM = "program.json"  # file with the `ProgramRun` of a saved record
TERMINAL_INTERVAL_S = 1.0  # time between two updates of the status line
LOG_INTERVAL_S = 10.0  # time between two status lines if stderr is not a terminal


def run_watched(
    program: Sequence[str],
    out: Path,
    *,
    live: bool = False,
    lines: bool = False,
    price: float = 0.0,
) -> int:
    """Run and watch `program`, report to `out` and to stderr, and return its exit code.

    Args:
        program: Command and its arguments. This Python runs a file that ends in .py.
        out: Folder for the page and the trace, created if there is something to write. If it
            already contains files, the function creates a folder with a number instead.
        live: Whether to show a status line while the program runs.
        lines: Whether to sample the stacks, so that the report names the slowest lines of code.
        price: Euros for an hour on this machine. 0 if unknown.

    Raises:
        KeepfedError: If the program cannot be started.
    """
    words = [sys.executable, *program] if program[0].endswith(".py") else list(program)
    try:
        folder = Path(tempfile.mkdtemp(prefix="keepfed-watch-"))
        environment = prepare(folder) | ({LINES: "1"} if lines else {})
    except OSError as error:
        give_up(error)
        return run_program(words, dict(os.environ), None)
    neighbours = Neighbours()
    code = run_program(words, environment, Live(folder) if live else None)
    place = unused_folder(out)
    run = ProgramRun(
        join(program),
        neighbours.cores(),
        machine=f"{platform.node()}, {platform.system()}, {plural(all_cores(), 'core')}",
        ended=time.strftime("%d %B %Y, %H:%M"),
        before=str(_folder_before(place, out)),
        price=price,
    )
    text = _report(folder, place, run)
    with suppress(Exception):  # stderr may be closed
        sys.stderr.write(f"\n{text}\n" if text else "")
    return code


def report_later(folder: Path) -> str:
    """Write the page and the trace of the record in `folder`, and return the report.

    Raises:
        KeepfedError: If `folder` contains no record, or a package is missing.
    """
    if not any(path.suffix in (ENDING, PROCESS) for path in folder.glob("*")):
        raise KeepfedError(
            f"{folder} contains no record. Use the folder that `keepfed watch` printed."
        )
    kept = folder / PROGRAM
    about = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    try:
        return _build_report(folder, folder, ProgramRun(**about))
    except ImportError as error:
        raise not_installed(error) from None


def unused_folder(out: Path) -> Path:
    """Return `out`, or the first free one of `out`-2, `out`-3, ... if `out` contains files."""
    names = (out if number == 1 else out.with_name(f"{out.name}-{number}") for number in count(1))
    return next(path for path in names if _is_unused(path))


def _folder_before(place: Path, out: Path) -> Path:
    """Return the folder of the run before the one in `place`."""
    number = int(place.name.removeprefix(f"{out.name}-")) - 1 if place != out else 0
    return out if number < 2 else out.with_name(f"{out.name}-{number}")


def _is_unused(path: Path) -> bool:
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def _report(folder: Path, out: Path, run: ProgramRun) -> str:
    """Return the report and remove the record, or save the record if the report fails."""
    try:
        text = _build_report(folder, out, run)
    except (Exception, KeyboardInterrupt) as error:
        kept = _keep(folder, out, run)
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        text = (
            f"keepfed watch: Could not create the report ({cause}). The record is saved in {kept}. "
            f"Create the report later: keepfed watch --report {kept}"
        )
        if kept == folder:
            return text
    shutil.rmtree(folder, ignore_errors=True)
    return text


def _keep(folder: Path, out: Path, run: ProgramRun) -> Path:
    """Copy the record to `out`, and return its folder, which is `folder` after an error."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path in (p for end in (ENDING, PROCESS, ".json") for p in folder.glob(f"*{end}")):
            shutil.copy(path, out)
        (out / PROGRAM).write_text(json.dumps(run._asdict()), "utf-8")
    except OSError:
        return folder
    return out


def run_program(words: Sequence[str], environment: dict[str, str], live: Live | None) -> int:
    """Run the program until it ends, and return its exit code as a shell does."""
    try:
        child = subprocess.Popen(words, env=environment)
    except OSError as error:
        raise KeepfedError(
            f"Could not start {words[0]} ({error.strerror}). Write your usual command, for "
            "example `python train.py`."
        ) from None
    with _forward_signals(child):
        while True:
            try:
                code = child.wait(live.pause_s if live else None)
                break
            except subprocess.TimeoutExpired:
                live = _show_live(live)
    if live:
        live.end()
    return code if code >= 0 else 128 - code


def _show_live(live: Live | None) -> Live | None:
    """Update the status line, and return None instead of `live` after an error."""
    try:
        if live:
            live.show()
    except Exception as error:
        give_up(error, "The live line stopped, but the program continues")
        return None
    return live


@contextmanager
def _forward_signals(child: subprocess.Popen[Any]) -> Iterator[None]:
    """Ignore Ctrl-C, which the child also receives, and forward SIGTERM and SIGHUP to it."""
    handlers: dict[int, Any] = {signal.SIGINT: lambda number, frame: None}
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            handlers[getattr(signal, name)] = lambda number, frame: child.send_signal(number)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _build_report(folder: Path, out: Path, run: ProgramRun) -> str:
    seen = read_all(folder)
    if not seen and not any(folder.glob(f"*{PROCESS}")):
        return (
            "keepfed watch: No Python process imported torch. If your training runs in a container "
            "or on another machine, start `keepfed watch` there. Do not start Python with -I, -E "
            "or -S."
        )
    if not seen and any(folder.glob(f"*{FAILED}")):
        return ""  # the watched process has already printed the reason
    # Imported only after the program has ended, because it imports torch.
    from keepfed.measure.watch.report import write

    return write(seen, out, run)


class Live:
    """Status line on stderr with the progress of the program."""

    def __init__(self, folder: Path):
        self._folder, self._before = folder, dict[tuple[int, str], Totals]()
        self._terminal = sys.stderr.isatty()
        self.pause_s = TERMINAL_INTERVAL_S if self._terminal else LOG_INTERVAL_S

    def show(self) -> None:
        """Show the progress since the last line."""
        now = {(one.about["pid"], one.about["at"]): one for one in read_all(self._folder)}
        parts = [part for key, one in now.items() if (part := self._part(key, one))]
        self._before = {key: one.totals for key, one in now.items()}
        line = f"{time.strftime('%H:%M:%S')} {' | '.join(parts) or 'no new batch'}"
        if self._terminal:
            print(
                f"\r\x1b[2K{line[: shutil.get_terminal_size().columns - 1]}",
                end="",
                file=sys.stderr,
                flush=True,
            )
        else:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Erase the line."""
        if self._terminal:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)

    def _part(self, key: tuple[int, str], one: Observation) -> str:
        before, now = self._before.get(key, Totals()), one.totals
        count = now.iterations - before.iterations
        waited_ns = now.waited_ns - before.waited_ns
        if not count:
            return ""
        lasted_ns = waited_ns + now.worked_ns - before.worked_ns
        rank = f"rank {one.rank} " if one.about["ranks"] > 1 else ""
        return (
            f"{rank}{one.about['at']}: {plural(now.iterations, 'batch')}, "
            f"{duration(lasted_ns / count)} each, {percent(waited_ns / max(lasted_ns, 1))} waiting"
        )
