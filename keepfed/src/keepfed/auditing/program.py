"""Run a program, audit the samples of all its loaders, and report at the end."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

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
    allow: Collection[str] = (),
    as_json: bool = False,
) -> int:
    """Run `program`, report on its samples, and return its exit code, or `FAULT`.

    Args:
        program: Command and its arguments. This Python runs a file that ends in .py.
        log: File that gets a line of JSON for every batch.
        after: Log of the interrupted run that this run resumes.
        allow: IDs of findings that are meant.
        as_json: Whether to print the report to stdout as one line of JSON, not to stderr as text.

    Raises:
        KeepfedError, OSError: If an argument cannot be used. The program is not started.
    """
    from keepfed.auditing.checks import check
    from keepfed.auditing.loops import ENDING, LOG
    from keepfed.auditing.report import check_ids
    from keepfed.auditing.resume import check_resume, read_log

    if not program:
        raise KeepfedError("The program is missing. Example: keepfed audit python train.py", code=2)
    check_ids(allow)
    before = [] if after is None else read_log(after)
    if log is not None:
        log.write_bytes(b"")
    words = [sys.executable, *program] if program[0].endswith(".py") else list(program)
    folder = Path(tempfile.mkdtemp(prefix="keepfed-audit-"))
    try:
        environment = prepare(folder) | {OBSERVER: "keepfed.auditing.loops"}
        if log is not None:
            environment[LOG] = str(log.resolve())
        code = run_program(words, environment)
        files = sorted(folder.glob(f"*{ENDING}"))  # written by the audited processes
        records = [record for file in files for record in pickle.loads(file.read_bytes())]
        failed = len([*folder.glob(f"*{FAILED}")])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rest = f"the rest of {plural(failed, 'process')} in which the audit failed"
    unchecked = [rest] if failed else []
    if after is not None and not {loader for loader, *_ in before} & {one.name for one in records}:
        unchecked.append(f"the resume, because {after} has no loader of the same name")
    report = check(records, check_resume(before, records), allow=allow, unchecked=unchecked)
    if as_json:
        print(json.dumps(report.as_dict()), flush=True)
    elif records or failed:
        print(wrap(f"\n{report}", indent=4), file=sys.stderr)
    else:
        print("keepfed audit: No DataLoader returned a batch.", file=sys.stderr)
    return code or (0 if report.right and not failed else FAULT)
