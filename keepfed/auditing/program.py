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
from keepfed.formatting import wrap
from keepfed.measure.watch.attach import prepare
from keepfed.measure.watch.program import run_program
from keepfed.measure.watch.timing.failsafe import PATCH

FAULT = 1  # exit code if the program succeeded, but its samples have a fault


def run_audited(
    program: Sequence[str], *, log: Path | None = None, after: Path | None = None
) -> int:
    """Run `program`, print what is wrong with its samples, and return an exit code.

    Args:
        program: Command and its arguments. This Python runs a file that ends in .py.
        log: File to which every batch appends a line with its samples.
        after: Log of the interrupted run that this run resumes.

    Raises:
        KeepfedError: If `after` cannot be read. The program is not started.

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
        environment = prepare(folder) | {PATCH: "keepfed.auditing.attach"}
        if log is not None:
            environment[LOG] = str(log.resolve())
        code = run_program(words, environment, None)
        loaders = [one for path in folder.glob(f"*{ENDING}") for one in _read(path)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not loaders:
        print("keepfed audit: No DataLoader returned a batch.", file=sys.stderr)
        return code
    report = check(loaders, check_resume(before, loaders))
    print(wrap(f"\n{report}", indent=4), file=sys.stderr)
    return code or (0 if report.right else FAULT)


def _read(path: Path) -> list[Any]:
    found: list[Any] = pickle.loads(path.read_bytes())  # written by the watched process
    return found


def _rows(log: Path) -> list[dict[str, Any]]:
    try:
        with log.open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    except (OSError, ValueError) as error:
        raise KeepfedError(
            f"Cannot read {log}: {error}. Pass the file of `keepfed audit --log FILE`."
        ) from None


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
    rows, found = _rows(log), 0
    for row in rows:
        samples = [str(one) for one in row["samples"]]
        if step is not None and row["step"] != step:
            continue
        if (rank is not None and row["rank"] != rank) or (sample and sample not in samples):
            continue
        found += 1
        who = "main process" if row["worker"] < 0 else f"worker {row['worker']}"
        yield (
            f"{row['loader']}: rank {row['rank']}, step {row['step']}, epoch {row['epoch']}, "
            f"batch {row['batch']}, {who}: {' '.join(samples)}"
        )
    if not found:
        raise KeepfedError(f"No batch in {log} matches. It has {len(rows)} batches.")


def main(words: Sequence[str], log: str | None, after: str | None = None) -> int:
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
        raise KeepfedError("The program is missing. Example: `keepfed audit python train.py`.")
    paths = [Path(file) if file else None for file in (log, after)]
    return run_audited(words, log=paths[0], after=paths[1])
