"""Exercise 07.1: `stage` copies, is killed, gets too little space, and runs twice at once."""

import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from course_utils.exercises.nb07.job import HOLDS, Outcome, main
from course_utils.hardware.machine import SHM
from course_utils.teaching.exercise import (
    Verdict,
    exercise,
    expect,
    expect_in_a_file,
    refuse,
    right,
    too_busy,
)
from course_utils.teaching.notebook import explain, loaded_context

Stage = Callable[[str, str], str]

PATIENCE_S = 20.0  # until a call counts as hung; a correct call takes a fraction of a second
START_S = 60.0  # until a process is ready, which takes long on a busy machine
SETTLE_S = 1.0  # wait for the second of two jobs, which should be blocked
SIZE = 300_000  # bytes of the source
CHANGES: dict[str, dict[str, Any]] = {
    "same size, newer": {},
    "same size, older, as after a restored backup": {"newer_s": -1000},
    "one byte less, same time": {"newer_s": 0, "size": SIZE - 1},
    "same size, 0.01 s newer": {"newer_s": 0.01, "size": SIZE - 1},
}

_COPY = "Copy the bytes to another name in `place`, then os.replace(half, target)."
_FIXED = (
    "Start the copy again, under one fixed name per file, so the next job overwrites it. Remove it "
    "in `finally`, and let the error through."
)
_LOCK = (
    "Lock a file in `place` around everything, including os.replace, without a timeout: "
    "with FileLock(f'{target}.lock'). Give each file its own names, and keep the lock's file."
)
_SAME = (
    "Reuse the copy only if st_size and st_mtime_ns equal those of the source. Inspect both in "
    "every call. Read the time before you copy, and give it to the copy with os.utime(half, "
    "ns=...)."
)


@exercise("07.1", title="Stage a file, all or nothing", seconds=180)
def stage_a_file(stage: Stage) -> Verdict:
    """Check `stage(source, place)`: copies, changed sources, SIGKILL, no space, and two jobs."""
    expect_in_a_file(stage)
    with (
        tempfile.TemporaryDirectory(prefix="job-", ignore_cleanup_errors=True) as folder,
        # another file system, so that a rename into it is an error, as on a cluster
        tempfile.TemporaryDirectory(prefix="shm ", dir=SHM if SHM.is_dir() else None) as places,
        closing(Site(Path(folder).resolve(), stage)) as site,
    ):
        for case in CASES:
            site.place = Path(tempfile.mkdtemp(dir=places)).resolve()
            site.write()
            case(site)
    return right(
        "A job was killed, had too little space, or ran twice, and the source changed. The final "
        "name always has a complete file, which is copied once."
    )


class CopyJob:
    """A process that calls the learner's function, and the connection to it."""

    def __init__(self, *order: Any, **how: Any):
        """Start it with the arguments of `job.main`."""
        context = loaded_context()  # a new Python for each job would take longer than staging
        self._line, far = context.Pipe()
        self.process = context.Process(target=main, args=(far, *order), kwargs=how)
        self.process.start()
        far.close()
        if not self._line.poll(START_S):
            too_busy()
        self._line.recv()

    def ask(self, source: Path, place: Path) -> None:
        """Let it stage."""
        self._line.send((str(source), str(place)))

    def hear(self, seconds: float = 0) -> Any:
        """Return its next report, or None if it has died.

        With `seconds`, return None also if it reports nothing in this time. Without, a call may
        not hang.
        """
        with suppress(EOFError, OSError):
            if self._line.poll(seconds or PATIENCE_S):
                return self._line.recv()
            expect(
                seconds,
                f"A call of stage has not returned after {PATIENCE_S:g} s. Either its loop is "
                "infinite, or it waits for a lock file that a killed process left.",
                "Use a lock that ends with its process: filelock.FileLock, or fcntl.flock.",
            )
        return None


class Site:
    """A file to stage, a `place` to stage it in, and jobs that call the learner's function."""

    place: Path

    def __init__(self, folder: Path, stage: Stage):
        """Create the folders of the source and of the jobs."""
        self.source = folder / "slow" / "pulses of run 7.npy"  # a shell splits such a name
        self.other = self.source.with_suffix(".idx")
        self._home, self._stage = folder / "home", stage
        self._jobs, self._rng, self.data = list[CopyJob](), random.Random(7), b""
        self._time_ns = time.time_ns() // 10**9 * 10**9 + 750_000_001  # no float holds the last 1
        for path in self.source.parent, self._home:
            path.mkdir()
        self.other.write_bytes(self._rng.randbytes(SIZE))

    def write(self, *, newer_s: float = 100, size: int = SIZE, path: Path | None = None) -> None:
        """Write other contents to the source, or to a `path`."""
        self.data = self._rng.randbytes(size)
        self._time_ns += int(newer_s * 1e9)
        path = path or self.source
        path.write_bytes(self.data)
        os.utime(path, ns=(self._time_ns, self._time_ns))

    def start(self, source: Path | None = None, **how: Any) -> CopyJob:
        """Start a job that stages the source or another file; `how` is for `job.main`."""
        names = self._stage.__module__, self._stage.__qualname__
        self._jobs.append(CopyJob(names, str(self._home), **how))
        self._jobs[-1].ask(source or self.source, self.place)
        return self._jobs[-1]

    def target(self) -> bytes:
        """Return what the final name has."""
        path = self.place / self.source.name
        return path.read_bytes() if path.is_file() else b""

    def expect_copy(self, outcome: Outcome | None, story: str, step: str) -> os.stat_result:
        """Refuse a call without a complete copy of a file, and return the state of the copy."""
        if not outcome or outcome.error:
            error = outcome.error if outcome else "its process ended without an error"
            refuse(f"{story} But stage stops: {explain(RuntimeError(error))}.", step)
        path = Path(outcome.returned)
        wanted = self.other.read_bytes() if path.name == self.other.name else self.data
        copy = path.read_bytes() if path.parent == self.place and path.is_file() else b""
        sizes = f"{len(copy):,} of {len(wanted):,}" if len(copy) != len(wanted) else "wrong or old"
        expect(
            copy == wanted and not path.is_symlink(),
            f"{story} Then {path.name!r} in {self.place} has {sizes} bytes.",
            step,
        )
        self.expect_tidy(story, step, copies=1)
        return path.stat()

    def expect_tidy(self, story: str, step: str, *, copies: int) -> None:
        """Refuse more bytes in `place` than these copies have, and any file outside of it."""
        files = [path for path in self.place.rglob("*") if path.name != self.other.name]
        held = sum(path.stat().st_size for path in files if path.is_file())
        expect(
            held < (copies + 0.4) * len(self.data),
            f"{story} Now `place` holds {held:,} bytes, and the file has {len(self.data):,}. In "
            "/dev/shm the rest is memory that is never released.",
            step,
        )
        files = [path for path in self._home.parent.rglob("*") if path.is_file()]
        expect(
            {*files} <= {self.source, self.other},
            f"{story} stage leaves a file outside of `place`, where jobs may only read. From there "
            "a rename is a copy, which may be killed as well.",
            f"Lock a file in `place`, and join paths with Path(place, name). {_COPY}",
        )

    def stage_twice(self, job: CopyJob, story: str, step: str) -> None:
        """Refuse a job that does not copy the source once in two calls."""
        first = self.expect_copy(job.hear(), story, step)
        job.ask(self.source, self.place)
        second = self.expect_copy(job.hear(), story, step)
        expect(
            _is_same(first, second),
            f"{story} The second call copies the source again, although a good copy exists. Every "
            "job of the node would do this.",
            step,
        )

    def close(self) -> None:
        """End all processes, even if the check is interrupted."""
        for job in self._jobs:
            job.process.kill()
            job.process.join()


def _is_same(first: os.stat_result, second: os.stat_result) -> bool:
    """Return whether a file was neither replaced nor written again."""
    return (first.st_ino, first.st_ctime_ns) == (second.st_ino, second.st_ctime_ns)


def _copied(site: Site) -> None:
    """Stage a file."""
    site.stage_twice(site.start(), "A file was staged twice.", f"{_COPY} {_SAME}")


def _changed(site: Site) -> None:
    """Change the source between the calls of one process, and while a job copies it."""
    job = site.start()
    site.stage_twice(job, "A file was staged twice.", _SAME)
    for what, change in CHANGES.items():
        site.write(**change)
        job.ask(site.source, site.place)
        site.stage_twice(job, f"The source changed ({what}) and was staged twice.", _SAME)
    renewed = site.source.with_name("renewed")
    site.write()
    site.write(path=renewed)
    site.start(renewed=str(renewed)).hear()
    with suppress(FileNotFoundError):
        os.replace(renewed, site.source)  # a program has copied
    story = "The source changed while a job copied it, and the next job staged it."
    site.stage_twice(site.start(), story, _SAME)


def _killed(site: Site) -> None:
    """Kill a job while it copies, first without an older copy, then with one."""
    story = "A job was killed while it copied."
    for _ in range(2):
        before = site.target()
        site.start(most=SIZE // 2, deadly=True).hear()
        expect(
            site.target() in (before, site.data),
            f"{story} Then the final name has {len(site.target()):,} of {SIZE:,} bytes.",
            f"{_COPY} Keep the old copy until then.",
        )
        site.expect_tidy(story, _FIXED, copies=2)
        site.write()
        site.stage_twice(site.start(), f"{story} The source changed.", f"{_COPY} {_FIXED}")
        site.write()
        story = "The source changed, and the job that copied it again was killed."


def _no_space(site: Site) -> None:
    """Let a job have space for half of the file."""
    story = "There was space for half of the file."
    outcome = site.start(most=SIZE // 2).hear()
    expect(
        outcome and outcome.error and not site.target(),
        f"{story} But stage returned without an error, or a part of the file has the final name.",
        "Let errors through: subprocess.run(..., check=True), or `raise` after the clean-up. Do "
        "not put os.replace into `finally`.",
    )
    site.expect_tidy(story, _FIXED, copies=0)


def _two_jobs(site: Site) -> None:
    """Start a job while another one is about to rename its copy: of another file, then the same."""
    names = f"{site.source.name!r} and {site.other.name!r}"
    _meet(site, site.other, f"Two jobs staged {names} into one folder at the same time.")
    site.write()
    _meet(site, site.source, "Two jobs staged the same file at the same time.")


def _meet(site: Site, source: Path, story: str) -> None:
    """Check both jobs, of which the second one stages `source`."""
    gate, before = loaded_context().Event(), site.target()
    first = site.start(gate=gate)
    report = first.hear()
    expect(
        site.target() in (before, site.data),
        "The source changed. While a job copied it again, the final name had no file for a moment.",
        "Do not remove the old copy: os.replace(half, target) replaces it at once.",
    )
    second = site.start(source)
    early = second.hear(SETTLE_S)
    if early and source == site.source:
        site.expect_copy(early, story, _LOCK)
    gate.set()
    copied = site.expect_copy(first.hear() if report == HOLDS else report, story, _LOCK)
    kept = site.expect_copy(early or second.hear(), story, _LOCK)
    expect(source != site.source or _is_same(copied, kept), f"{story} Both copied it.", _LOCK)


CASES = [_copied, _changed, _two_jobs]
if find_spec("resource"):  # which limits the size of files, but not on Windows
    CASES[1:1] = [_killed, _no_space]
