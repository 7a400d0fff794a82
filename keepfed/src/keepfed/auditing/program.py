"""Run a program, audit the samples of all its loaders, and report at the end."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keepfed.errors import KeepfedError
from keepfed.formatting import plural, wrap
from keepfed.measure.watch.attach import prepare
from keepfed.measure.watch.program import run_program
from keepfed.measure.watch.timing.failsafe import OBSERVER
from keepfed.measure.watch.timing.ring_file import FAILED

FAULT = 1  # exit code if the program succeeded, but has a fault or was not audited to its end


def run_audited(
    program: Sequence[str],
    *,
    log: Path | None = None,
    after: Path | None = None,
    as_json: bool = False,
) -> int:
    """Run `program`, print what its samples show, and return an exit code.

    Args:
        program: Command and its arguments. This Python runs a file that ends in .py.
        log: File that gets a line with its samples for every batch. The log of an earlier run is
            renamed: the name gets the ending .before.
        after: Log of the interrupted run that this run resumes.
        as_json: Whether to print the report to stdout as one line of JSON, not to stderr as text.

    Raises:
        KeepfedError: If `after` cannot be read, or `log` not written. The program is not started.

    Returns:
        The exit code of the program, or `FAULT` if the program succeeded and a fault was found.
    """
    from keepfed.auditing.checks import check
    from keepfed.auditing.loops import ENDING, LOG
    from keepfed.auditing.resume import check_resume

    before = [] if after is None else _rows(after)
    words = [sys.executable, *program] if program[0].endswith(".py") else list(program)
    folder = Path(tempfile.mkdtemp(prefix="keepfed-audit-"))
    try:
        environment = prepare(folder) | {OBSERVER: "keepfed.auditing.loops"}
        if log is not None:
            _start(log)
            environment[LOG] = str(log.resolve())
        code = run_program(words, environment)
        loaders = [one for path in sorted(folder.glob(f"*{ENDING}")) for one in _read(path)]
        failed = len([*folder.glob(f"*{FAILED}")])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not loaders and not failed:
        print("keepfed audit: No DataLoader returned a batch.", file=sys.stderr)
    unchecked = []
    if failed:
        unchecked.append(f"the rest of {plural(failed, 'process')} in which the audit failed")
    if after is not None and not {row["loader"] for row in before} & {one.name for one in loaders}:
        unchecked.append(f"the resume, because {after} has no loader of the same name")
    report = check(loaders, check_resume(before, loaders), unchecked=unchecked)
    if as_json:
        print(json.dumps(report.as_dict()), flush=True)
    elif loaders or failed:
        print(wrap(f"\n{report}", indent=4), file=sys.stderr)
    return code or (0 if report.right and not failed else FAULT)


def _start(log: Path) -> None:
    """Create an empty log, and keep an earlier one under another name."""
    try:
        if log.is_file() and log.stat().st_size:
            log.replace(f"{log}.before")
        log.write_bytes(b"")
    except OSError as error:
        raise KeepfedError(
            f"Cannot write the log {log}: {error.strerror}. Choose a file in a folder that exists "
            "and that you may write to."
        ) from None


def _read(path: Path) -> list[Any]:
    records: list[Any] = pickle.loads(path.read_bytes())  # written by the audited process
    return records


_NUMBERS = "rank", "step", "epoch", "batch", "worker"


def _rows(log: Path) -> list[dict[str, Any]]:
    """Return the lines of a log.

    Raises:
        KeepfedError: If the file cannot be read, or a line is none of an audit.
    """
    rows, number = list[dict[str, Any]](), 0
    try:
        with log.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):  # noqa: B007, for the message below
                row = json.loads(line)
                row |= {key: int(row[key]) for key in _NUMBERS} | {"loader": str(row["loader"])}
                rows.append({**row, "samples": [str(one) for one in row["samples"]]})
    except OSError as error:
        raise KeepfedError(
            f"Cannot read {log}: {error.strerror}. Pass the file of `keepfed audit --log FILE`."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise KeepfedError(
            f"Line {number} of {log} is not from an audit. Pass the file of `keepfed audit --log "
            "FILE`."
        ) from None
    return rows


def show(
    log: Path, *, step: int | None = None, sample: str | None = None, rank: int | None = None
) -> Iterator[str]:
    """Yield the batches of a log that match, one line each.

    Args:
        log: File of `keepfed audit --log`.
        step: Number of the batch, counted over all epochs of its loader.
        sample: Index or fingerprint of a sample that the batch contains.
        rank: Rank that took the batch.

    Raises:
        KeepfedError: If the file cannot be read, or no batch matches.
    """
    rows, matches = _rows(log), 0
    for row in rows:
        if step is not None and row["step"] != step:
            continue
        if (rank is not None and row["rank"] != rank) or (sample and sample not in row["samples"]):
            continue
        matches += 1
        who = "main process" if row["worker"] < 0 else f"worker {row['worker']}"
        yield (
            f"{row['loader']}: rank {row['rank']}, step {row['step']}, epoch {row['epoch']}, "
            f"batch {row['batch']}, {who}: {' '.join(row['samples'])}"
        )
    if not matches:
        raise KeepfedError(f"No batch in {log} matches. It has {len(rows)} batches.")


def main(words: Sequence[str], log: str | None, after: str | None, *, as_json: bool = False) -> int:
    """Run `keepfed audit` with the words after its options."""
    if words[:1] == ["show"]:
        import argparse

        parser = argparse.ArgumentParser(prog="keepfed audit show")
        parser.add_argument("log", metavar="FILE", type=Path, help="file of --log")
        parser.add_argument("--step", type=int, help="number of the batch")
        parser.add_argument("--sample", help="index or fingerprint of a sample")
        parser.add_argument("--rank", type=int, help="rank (default: all)")
        for line in show(**vars(parser.parse_args(words[1:]))):
            print(wrap(line, indent=2))
        return 0
    if not words:
        raise KeepfedError("The program is missing. Example: keepfed audit python train.py", code=2)
    paths = [Path(file) if file else None for file in (log, after)]
    return run_audited(words, log=paths[0], after=paths[1], as_json=as_json)
