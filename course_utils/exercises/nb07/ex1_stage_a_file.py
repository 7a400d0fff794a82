"""Exercise 07.1: `stage` is killed, interrupted, run twice at once, and gets too little space."""

import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from course_utils.exercises.nb07.job import Outcome, limit_files, main
from course_utils.hardware.machine import SHM
from course_utils.teaching.exercise import (
    Verdict,
    exercise,
    expect,
    expect_in_a_file,
    right,
    too_busy,
)
from course_utils.teaching.notebook import explain, loaded_context

Stage = Callable[[str, str], str]

PATIENCE_S = 20.0  # until a call counts as hung; a correct call takes a fraction of a second
START_S = 60.0  # until a process is ready, which takes long on a busy machine
LINKS = ("latest.npy", "pulses of run 7.idx")  # other files next to the source
SETTLE_S = 1.0  # wait for the second of two jobs, which should be blocked

_COPY = "Copy the bytes to another name in `place`, then os.replace(half, target)."
_FIXED = "Start the copy again, under one fixed name per file, so the next job overwrites it."
_LOCK = (
    "Lock a file in `place` around everything, including os.replace, without a timeout: "
    "with FileLock(f'{target}.lock')."
)
_SAME = (
    "Reuse the copy only if st_size and st_mtime_ns equal those of the source. Read both before "
    "you copy, and give them to the copy with os.utime(half, ns=...)."
)
_TIDY = "Remove the unfinished copy in `finally`, and let the error through."


@exercise("07.1", title="Stage a file, all or nothing", seconds=180)
def stage_a_file(stage: Stage) -> Verdict:
    """Check `stage(source, place)`: copies, reuse, SIGKILL, no space, and two jobs at once."""
    expect_in_a_file(stage)
    with (
        tempfile.TemporaryDirectory(prefix="stage-", ignore_cleanup_errors=True) as folder,
        closing(Site(Path(folder), stage)) as site,
    ):
        for check in CHECKS:
            site.place = Path(tempfile.mkdtemp(prefix="shm ", dir=folder))
            check(site)
    return right(
        "A job was killed or interrupted, had too little space, or ran twice, and the source "
        "changed. The final name always has a complete file, which is copied once."
    )


class Process:
    """A process that stages, and the connection to it."""

    def __init__(self, *order: Any, **how: Any):
        """Start the process with the arguments of `job.main`."""
        context = loaded_context()  # a new Python for each job would take longer than staging
        self._line, far = context.Pipe(duplex=False)
        self._heard: list[Any] = []
        self.process = context.Process(target=main, args=(far, *order), kwargs=how)
        self.process.start()
        far.close()

    def outcomes(self, *, until: str = "") -> list[Outcome]:
        """Return the outcomes of its calls until it reports `until`, or ends."""
        with suppress(EOFError, ConnectionResetError):
            while until not in self._heard:
                ready = "ready" in self._heard
                answered = self._line.poll(PATIENCE_S if ready else START_S)
                if not (answered or ready):
                    too_busy()
                expect(
                    answered,
                    f"A call of stage has not returned after {PATIENCE_S:g} s. Either its loop is "
                    "infinite, or it waits for a lock file that a killed process left.",
                    "Use a lock that ends with its process: filelock.FileLock, or fcntl.flock.",
                )
                self._heard.append(self._line.recv())
        return [one for one in self._heard if isinstance(one, Outcome)]


class Site:
    """A file to stage, a `place` to stage it in, and processes that call the learner's function."""

    place: Path
    name: str  # file name of the copy

    def __init__(self, folder: Path, stage: Stage):
        """Create the source in a `folder`."""
        self._stage, self._rng, self._processes = stage, random.Random(7), list[Process]()
        self.source = folder / "slow" / "pulses of run 7.npy"  # a shell splits such a name
        self.source.parent.mkdir()
        self.data = self._rng.randbytes(self._rng.randrange(200_000, 400_000))
        self._time = time.time() // 1 + 0.75
        self.write()
        self.partway = partial(limit_files, len(self.data) // 2)
        self.kill_partway = partial(self.partway, deadly=True)

    def renew(self, longer: int = 0) -> bytes:
        """Draw new contents for the source, which are written later; return the old ones."""
        old, self.data = self.data, self._rng.randbytes(len(self.data) + longer)
        return old

    def write(self, *, older_s: float = -100, longer: int = 0) -> bytes:
        """Write contents that are `older_s` older and `longer`; return the old ones."""
        old = self.renew(longer)
        self._time -= older_s
        self.source.write_bytes(self.data)
        time_ns = int(self._time * 1e9) + 1  # a float of seconds cannot represent this
        os.utime(self.source, ns=(time_ns, time_ns))
        return old

    def start(self, source: Path | None = None, **how: Any) -> Process:
        """Start a process that stages this source or another one; `how` is for `job.main`."""
        names = self._stage.__module__, self._stage.__qualname__
        source = source or self.source
        self._processes.append(Process(names, str(source), str(self.place), **how))
        return self._processes[-1]

    def stage(
        self, story: str, step: str, *old: bytes, calls: tuple[str, ...] = ("",), **how: Any
    ) -> None:
        """Stage in a process, and check every call."""
        self.check(self.start(calls=calls, **how).outcomes(), story, step, *old, calls=len(calls))

    def check(
        self, outcomes: list[Outcome], story: str, step: str, *old: bytes, calls: int
    ) -> None:
        """Refuse outcomes that are errors or not complete copies, and a second copy."""
        for one in outcomes:
            expect(
                not one.error,
                f"{story} But stage stops: {explain(RuntimeError(one.error))}.",
                step,
            )
            beside = {*os.listdir(self.source.parent)} - {self.source.name, *LINKS}
            expect(
                not one.moved and not beside,
                "stage changes the working directory of the program, or leaves a file next to the "
                "source, where many jobs may only read.",
                "Lock a file in `place`, and join paths with Path(place, name).",
            )
        expect(
            len(outcomes) == calls,
            f"{story} The process ended inside stage, without an error. Nobody killed it.",
            "Raise an exception. sys.exit and os._exit end the whole job.",
        )
        for one in outcomes:
            self.expect_complete(Path(one.returned), one.data, story, step, *old)
        expect(
            not any(one.reads for one in outcomes[1:2]),
            f"{story} The second call opens the source again, although a good copy exists or is "
            f"being made. Every job of the node would do this.",
            step,
        )
        self.name = Path(outcomes[-1].returned).name

    def expect_complete(
        self, path: Path, data: bytes | None, story: str, step: str, *old: bytes
    ) -> None:
        """Refuse a path that is not a complete copy of the source, or of an `old` one."""
        fault = "" if data in (self.data, *old) else "has the right size, but wrong or old bytes"
        if data is None:
            fault = "does not exist"
        elif len(data) != len(self.data):
            fault = f"has {len(data):,} of {len(self.data):,} bytes"
        if path.parent != self.place:
            fault = f"is not in {self.place}"
        elif path.is_symlink() or (path.exists() and path.samefile(self.source)):
            fault = "is a link to the source, so every read still goes to the slow storage"
        expect(not fault, f"{story} Then {path.name!r} {fault}.", step)

    def expect_little(self, files: float, story: str, step: str) -> None:
        """Refuse a place that holds more bytes than this number of files needs."""
        held = sum(path.stat().st_size for path in self.place.rglob("*") if path.is_file())
        expect(
            held < files * len(self.data),
            f"{story} Now `place` holds {held:,} bytes, and the file has {len(self.data):,}. In "
            "/dev/shm the rest is memory that is never released.",
            step,
        )

    def fail(self, story: str, step: str, *old: bytes, **how: Any) -> None:
        """Let a job fail, and refuse it if it hides the error or leaves a part of the file."""
        expect(
            all(one.error for one in self.start(**how).outcomes()),
            f"{story} But stage returned without an error.",
            "Let errors through: subprocess.run(..., check=True), or `raise` after the clean-up.",
        )
        target = self.place / self.name
        if target.exists() or old:
            data = target.read_bytes() if target.is_file() else None
            self.expect_complete(target, data, story, step, *old)

    def close(self) -> None:
        """End all processes, even if the check is interrupted."""
        for one in self._processes:
            one.process.kill()
            one.process.join()


def _check_copy(site: Site) -> None:
    site.stage("A file was staged twice.", f"{_COPY} {_SAME}", calls=("", ""))
    link = site.source.with_name(LINKS[0])
    with suppress(OSError):  # Windows may refuse links
        link.symlink_to(site.source.name)
        site.place /= "other"
        site.place.mkdir()
    if link.is_symlink():
        site.stage("The source was a link.", "Copy the contents, and follow links.", source=link)
        site.stage("A file was staged.", _COPY)


def _check_killed(site: Site) -> None:
    """Kill a job while it copies, inspect what it leaves, and let the next one stage."""
    story = "A job was killed while it copied."
    site.fail(story, f"{_COPY} Lock a file with another name.", limit=site.kill_partway)
    site.write()
    story = f"{story} The source changed, and the next job staged it."
    site.stage(story, f"{_COPY} {_FIXED}")
    site.expect_little(1.4, story, _FIXED)


def _check_moved(site: Site) -> None:
    """Kill a job during a rename from another file system into `place`, which is a copy."""
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as place:
        site.place = Path(place)
        outcomes = site.start(limit=site.kill_partway, at_border=True).outcomes()
        target = site.place / site.name
        partial_copy = target.exists() and target.read_bytes() != site.data
        expect(
            not partial_copy and not any(one.direct for one in outcomes),
            "The data are copied to the final name. A rename from another file system copies, too, "
            "as shutil.move and mv do. If the job is killed during this copy, the final name has "
            "an incomplete file.",
            _COPY,
        )


def _check_changed(site: Site) -> None:
    site.stage("A file was staged.", _COPY)
    changes = [
        (-100.0, 0, "same size, newer"),
        (1000.0, 0, "same size, older, as after a restored backup"),
        (0.0, -1, "one byte less, same time"),
    ]
    if site.source.stat().st_mtime % 1:  # the file system stores fractions of a second
        changes.append((-0.01, 0, "same size, 0.01 s newer"))
    for older_s, longer, what in changes:
        site.write(older_s=older_s, longer=longer)
        story = f"The source changed ({what}) and was staged twice."
        site.stage(story, _SAME, calls=("", ""))
        site.expect_little(1.4, story, "One copy under one name: os.replace removes the old one.")
    step = "Inspect source and copy in every call, and keep no results in functools.cache."
    old = site.renew()
    story = "The source changed between two calls of one process."
    site.stage(story, step, old, calls=("", "", "change"), later=site.data)
    (after,) = site.start().outcomes()
    site.check([after], story, step, calls=1)
    site.stage("The copy was removed between two calls.", step, calls=("", "", "remove"))
    site.write()
    site.start(change_at_stat=True, later=site.data[::-1]).outcomes()
    site.data = site.source.read_bytes()
    site.stage("The source changed while a job copied it, and the next job staged it.", _SAME)


def _check_renewal(site: Site) -> None:
    """Kill a job that replaces a good copy of an older source."""
    site.stage("A file was staged.", _COPY)
    old = site.write()
    story = "The source changed, and the job that copied it again was killed."
    site.fail(story, f"Keep the old copy until os.replace. {_COPY}", old, limit=site.kill_partway)
    site.stage(f"{story} The next job staged it.", "Compare the copy itself, not a note about it.")


def _check_failed(site: Site) -> None:
    no_space: dict[str, Any] = {"limit": site.partway}
    for story, how in {
        "There was space for half of the file.": no_space,
        "Ctrl-C interrupted the job before its rename.": {"interrupt": True},
    }.items():
        site.fail(story, f"{_COPY} Do not put os.replace into `finally`.", **how)
        site.expect_little(0.1, story, _TIDY)


def _check_two(site: Site) -> None:
    """Let two jobs stage at once: a first copy, then a new one that replaces an old one."""
    locks = _two_at_once(site, "reading")
    old = site.write()
    _two_at_once(site, "renaming", old)
    site.write()
    site.stage("The source changed.", _SAME)  # alone, so no other job creates the lock's file again
    expect(
        os.name == "nt" or locks <= {*site.place.rglob("*")},
        "The lock's file is removed after use. A job that waits then holds a file without a name, "
        "the next job locks a new file, and both copy.",
        "Keep the empty file. It locks nothing by existing.",
    )


def _two_at_once(site: Site, where: str, *old: bytes) -> set[Path]:
    """Check two jobs, the second of which starts during the first; return the lock's files."""
    gate, story = loaded_context().Event(), "Two jobs staged the same file at the same time."
    one = site.start(gate=gate, gate_at=where)
    one.outcomes(until=where)
    there = {*site.place.rglob("*")}
    two = site.start(hurry=True)
    two.outcomes(until="ready")
    two.process.join(SETTLE_S)
    target = site.place / site.name
    kept = target.exists() or not old
    gate.set()
    found = [*one.outcomes(), *two.outcomes()]
    site.check(found, story, _LOCK, calls=2)
    expect(
        kept,
        "The source changed. While a job copied it again, the final name had no file for a moment.",
        "Do not remove the old copy: os.replace(half, target) replaces it at once.",
    )
    return there - {target, *(Path(path) for job in found for path in job.renamed)}


def _check_two_files(site: Site) -> None:
    """Stage a file with a similar name while a job is about to rename its copy of the first."""
    gate, other = loaded_context().Event(), site.source.with_suffix(".idx")
    other.write_bytes(site.data[::-1])
    one = site.start(gate=gate, gate_at="renaming")
    one.outcomes(until="renaming")
    two = site.start(other)
    two.outcomes(until="ready")
    two.process.join(SETTLE_S)
    gate.set()
    found = [outcome for job in (one, two) for outcome in job.outcomes()]
    expect(
        [Path(o.returned).read_bytes() if Path(o.returned).is_file() else None for o in found]
        == [site.data, site.data[::-1]],
        f"Two jobs staged {site.source.name!r} and {other.name!r} into one folder. One of them "
        "overwrote or removed a copy of the other.",
        "Give each file its own names, target and f'{target}.part', and remove no others. "
        "with_suffix and stem drop what distinguishes two files.",
    )


CHECKS = (
    _check_copy,
    _check_killed,
    _check_moved,
    _check_changed,
    _check_renewal,
    _check_failed,
    _check_two,
    _check_two_files,
)
