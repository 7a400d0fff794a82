"""Check of notebook 07: a `stage` that is killed, crowded, and given no room, each in a process."""

import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from course_exercises.nb07.job import Outcome, limit_files, main
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

PATIENCE_S = 20.0  # until a call counts as hung; a right one needs a part of a second
START_S = 60.0  # until a process is ready, which on a busy machine may take long
SETTLE_S = 1.0  # how long the second of two may show that it does not wait for the first
_RENAME = "Copy to another name in the same folder, then os.replace(half, target)."


@exercise("07.1", title="Stage a file, whole or not at all", seconds=180)
def stage_a_file(stage: Stage) -> Verdict:
    """Judge `stage(source, place)`: copies, reuse, SIGKILL half way, no room, two at once."""
    expect_in_a_file(stage)
    with (
        tempfile.TemporaryDirectory(prefix="stage-", ignore_cleanup_errors=True) as folder,
        closing(Site(Path(folder), stage)) as site,
    ):
        for judge in (
            _judge_copy,
            _judge_killed,
            _judge_moved,
            _judge_changed,
            _judge_killed_renewal,
            _judge_full,
            _judge_two,
            _judge_two_files,
        ):
            site.place = Path(tempfile.mkdtemp(prefix="shm ", dir=folder))
            judge(site)
    return right(
        "Killed half way, without room, two at once, with a new source: what lies under the final "
        "name is always the whole file, and it is copied once."
    )


class Process:
    """A process that stages, and the line to it."""

    def __init__(self, *order: Any, **how: Any):
        """Start it, with what `job.main` gets."""
        context = loaded_context()  # a new Python for each would take longer than its staging
        self._line, far = context.Pipe(duplex=False)
        self._heard: list[Any] = []
        self.process = context.Process(target=main, args=(far, *order), kwargs=how)
        self.process.start()
        far.close()

    def outcomes(self, *, until: str = "") -> list[Outcome]:
        """Return what came of its calls until it says this word or ends, as a killed one does."""
        with suppress(EOFError, ConnectionResetError):
            while until not in self._heard:
                ready = "ready" in self._heard
                answered = self._line.poll(PATIENCE_S if ready else START_S)
                if not (answered or ready):
                    too_busy()
                expect(
                    answered,
                    f"A call of stage has not returned after {PATIENCE_S:g} s: it waits for "
                    "something that nobody does any more, such as a lock file that a killed "
                    "process left behind.",
                    "Take a lock that ends with its process: filelock.FileLock, or fcntl.flock.",
                )
                self._heard.append(self._line.recv())
        return [one for one in self._heard if isinstance(one, Outcome)]


class Site:
    """A file to stage, a `place` to stage it in, and processes that call the learner's function."""

    place: Path
    name: str  # of the copy in there

    def __init__(self, folder: Path, stage: Stage):
        """Make the source in a `folder`."""
        self._stage, self._rng, self._processes = stage, random.Random(7), list[Process]()
        self.source = folder / "slow" / "pulses of run 7.npy"  # which a shell would take apart
        self.source.parent.mkdir()
        self.size = self._rng.randrange(200_000, 400_000)
        self.half_way = partial(limit_files, self.size // 2)
        self._time = time.time() // 1 + 0.75  # so that some changes are within a second
        self.write()

    def write(self, *, older_s: float = 0, longer: int = 0) -> None:
        """Give the source new contents, `older_s` older and `longer` than it was."""
        self._time -= older_s
        self.size += longer
        self.data = self._rng.randbytes(self.size)
        self.source.write_bytes(self.data)
        time_ns = int(self._time * 1e9) + 1  # which a float of seconds does not hold
        os.utime(self.source, ns=(time_ns, time_ns))

    def start(self, source: Path | None = None, **how: Any) -> Process:
        """Start a process that stages, this source or another one, `how` as `job.main` says."""
        names = self._stage.__module__, self._stage.__qualname__
        source = source or self.source
        self._processes.append(Process(names, str(source), str(self.place), **how))
        return self._processes[-1]

    def run(self, **how: Any) -> list[Outcome]:
        """Stage in a process and return what came of each call."""
        return self.start(**how).outcomes()

    def run_killed(self) -> list[Outcome]:
        """Stage in a process that is killed half way; return what came of its calls."""
        killed = self.run(limit=partial(self.half_way, deadly=True))
        expect(
            all(outcome.error for outcome in killed),
            "The program that copies was killed half way, and stage returned as if all were well.",
            "Look at how it ended: subprocess.run(..., check=True); or copy with shutil.copy2.",
        )
        return killed

    def close(self) -> None:
        """Leave no process behind, also when the check is interrupted."""
        for one in self._processes:
            one.process.kill()
            one.process.join()

    def copy(self, outcome: Outcome) -> bytes:
        """Return what lies where `stage` says, or nothing."""
        path = Path(outcome.returned)
        return path.read_bytes() if path.is_file() else b""

    def exposes_a_part(self, *old: bytes) -> bool:
        """Tell whether something else than the whole file, or an `old` one, has the final name."""
        target = self.place / self.name
        return target.exists() and target.read_bytes() not in (self.data, *old)

    def held(self) -> int:
        """Return the bytes that lie in the place."""
        return sum(path.stat().st_size for path in self.place.rglob("*") if path.is_file())


def _judge_copy(site: Site) -> None:
    """Stage twice where all is well."""
    first, second = _good(site.run(calls=2), 2)
    path, copied = Path(first.returned), site.copy(first)
    expect(
        path.parent == site.place,
        f"stage returned {path}; the copy belongs into {site.place}.",
        "Return the path of the copy in `place`.",
    )
    expect(
        copied == site.data,
        f"The copy has {len(copied):,} bytes and differs from the source, which has {site.size:,}.",
        "Copy bytes: shutil.copyfile(source, target).",
    )
    expect(
        not path.is_symlink() and not path.samefile(site.source),
        "What lies there is a link to the source: every read still goes to the slow storage.",
        "Copy the bytes: shutil.copyfile(source, target).",
    )
    expect(
        os.listdir(site.source.parent) == [site.source.name],
        "stage leaves a file beside the source, where many a job may only read: there it would end "
        "with an error. And jobs on other nodes, which stage to themselves, would wait for it.",
        "Lock a name in `place`: FileLock(f'{target}.lock').",
    )
    expect(
        second.reads == 0,
        "The second call reads the whole source again, although a good copy is there. Every job of "
        "the node would pay for that.",
        "Compare size and time with source.stat(), which reads no byte of it; shutil.copy2 gives "
        "the copy the source's time, and so does os.utime(half, ns=...).",
    )
    site.name = path.name


def _judge_killed(site: Site) -> None:
    """Kill a job half way, look at what it leaves, and let the next one stage."""
    site.run_killed()
    exposed, empty = site.exposes_a_part(), not site.held()
    site.write(older_s=-100)
    (after,) = _good(site.run(), 1)
    copied = site.copy(after)
    expect(
        len(copied) == site.size,
        "A job was killed half way through its copy. The next one took what lay there for the "
        f"file: {len(copied):,} of {site.size:,} bytes, and no error.",
        "Copy to another name in the same folder, and when all is there os.replace(half, target): "
        "that happens at once or not at all.",
    )
    expect(
        copied == site.data,
        "A job was killed half way, and the source has changed. The next job put together a file "
        "of the right size and with wrong bytes.",
        "Begin the copy anew; do not append to what lies there.",
    )
    expect(
        not (exposed and empty),
        "When a job is killed half way, an empty file lies under the final name: did you lock that "
        "name? A program that opens it takes it for the data.",
        "Lock a file of another name: FileLock(f'{target}.lock').",
    )
    expect(
        not exposed,
        "When a job is killed half way, half a file lies under the final name. Your next call "
        "notices; a program that opens the file without asking takes it for whole.",
        _RENAME,
    )
    expect(
        site.held() < 1.4 * site.size,
        f"A job was killed half way, the next one was not; now {site.held():,} bytes lie there for "
        f"a file of {site.size:,}. In /dev/shm that is memory, and nobody gives it back.",
        "Give the unfinished copy one fixed name: under the lock the next job overwrites it.",
    )


def _judge_moved(site: Site) -> None:
    """Kill a job that renames into the place from elsewhere, where that becomes a copy."""
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as place:
        site.place = Path(place)
        moved = site.run(limit=partial(site.half_way, deadly=True), at_border=True)
        exposed = site.exposes_a_part() or any(outcome.direct for outcome in moved)
    expect(
        not exposed,
        "What was copied is copied once more, to the final name. And into `place`, a file system "
        "of its own as /dev/shm is, there is no renaming from elsewhere: shutil.move and mv copy. "
        "If a job is killed then, half a file lies under the final name.",
        _RENAME,
    )


def _judge_changed(site: Site) -> None:
    _good(site.run(), 1)
    changes = [
        (-100.0, 0, "of the same size, newer"),
        (1000.0, 0, "of the same size, dated earlier, as a restored backup is"),
        (0.0, -1, "a byte less, of the same time"),
    ]
    if site.source.stat().st_mtime % 1:  # the file system knows parts of a second
        changes.append((0.5, 0, "of the same size, changed half a second before"))
    for older_s, longer, what in changes:
        site.write(older_s=older_s, longer=longer)
        first, second = _good(site.run(calls=2), 2)
        expect(
            site.copy(first) == site.data,
            f"The source has new contents ({what}), and stage returned the old ones.",
            "Reuse a copy only if size and time are those of the source: st_size and st_mtime_ns "
            "both equal. shutil.copy2 keeps the time.",
        )
        expect(
            second.reads == 0,
            f"The source has changed ({what}) and was copied; the next call copies it once more.",
            "Give the copy the time of the source: shutil.copy2, or os.utime.",
        )
    expect(
        site.held() < 1.4 * site.size,
        "The source has changed, and old copies of it stay: in /dev/shm that is memory.",
        "One copy under one name: os.replace(half, target) removes the old one.",
    )
    site.write(older_s=-100)
    *_, touched, removed = _good(site.run(calls=4), 4)
    expect(
        touched.reads and removed.reads,
        "A process does not notice that the source has changed, or that the copy was removed, "
        "since its last call of stage.",
        "Look at source and copy in every call, and remember nothing, as functools.cache does.",
    )


def _judge_killed_renewal(site: Site) -> None:
    """Kill a job that replaces a good copy of what the source was."""
    _good(site.run(), 1)
    old = site.data
    site.write(older_s=-100)
    site.run_killed()
    expect(
        not site.exposes_a_part(old),
        "The source has changed, and the job that copied it anew was killed half way. Half a file "
        "lies under the final name, where the whole old one was.",
        _RENAME,
    )
    (after,) = _good(site.run(), 1)
    expect(
        site.copy(after) == site.data,
        "The source has changed, and the job that copied it anew was killed half way. The next one "
        "takes the old copy for the new one: what you note was noted before the copy was whole.",
        "Look at the copy itself: its size and its time, which shutil.copy2 gives it.",
    )


def _judge_full(site: Site) -> None:
    for outcome in site.run(limit=site.half_way):
        expect(
            outcome.error,
            f"There was room for half of the file, and stage returned {outcome.returned!r} as if "
            "all were well.",
            "Let the OSError go on to the caller: `raise` after the clean-up.",
        )
    expect(
        not site.exposes_a_part(),
        "There was room for half of the file. stage raised, and that half lies under the final "
        "name now.",
        "os.replace follows a copy that came to its end; what is in `finally` happens without one.",
    )
    expect(
        site.held() < site.size // 10,
        f"There was room for half of the file. stage raised, and left {site.held():,} bytes there: "
        "the full /dev/shm stays full, and all workers of the node need it.",
        "try: copy; except: remove the unfinished copy, then raise.",
    )


def _judge_two(site: Site) -> None:
    """Let two jobs stage at once: a first copy, then a new one in place of an old one."""
    locks = _two_at_once(site, "reading")
    site.write(older_s=-100)
    _two_at_once(site, "renaming")
    site.write(older_s=-100)
    _good(site.run(), 1)  # alone, so that nobody else makes the lock's file again
    expect(
        os.name == "nt" or locks <= {*site.place.iterdir()},
        "The lock's file is removed after use. Whoever waits for it holds a file without a name "
        "then, the next one makes a new file and locks that, and both copy.",
        "Leave the empty file there: what locks is not that it exists.",
    )


def _two_at_once(site: Site, where: str) -> set[Path]:
    """Judge two jobs, the second of which begins while the first is there; return their locks."""
    gate = loaded_context().Event()
    one = site.start(gate=gate, gate_at=where)
    one.outcomes(until=where)
    locks = {*site.place.glob("*lock*")}
    two = site.start(hurry=True)
    two.outcomes(until="ready")
    two.process.join(SETTLE_S)
    gate.set()
    found = [process.outcomes() for process in (one, two)]
    expect(
        not any("Timeout" in outcome.error for outcome in found[1]),
        "Two jobs staged at the same time. The one that waits for the lock gives up after a while, "
        "and its job ends; a large file takes minutes, and from a slow storage an hour.",
        "Wait as long as it takes: FileLock(f'{target}.lock') without a timeout.",
    )
    expect(
        not any(outcome.reads for outcome in found[1]),
        "Two jobs staged at the same time, and both copied. On a node with eight GPUs that is "
        "eight times the traffic, and for a while eight times the memory.",
        "Before you look whether the copy is there, take a lock that all jobs share, whatever "
        "folder they run in: with FileLock(f'{target}.lock'): around everything, also os.replace, "
        "and without a timeout.",
    )
    first, second = (_good(outcomes, 1)[0] for outcomes in found)
    expect(
        first.size == second.size == site.size,
        "Two jobs staged at the same time. The one that did not copy returned before the other had "
        "done so, and what it was told of is not there yet, or is the old file.",
        "Let it wait for the lock, then look: a lock that is not waited for locks nothing.",
    )
    expect(
        site.copy(first) == site.copy(second) == site.data,
        "Two jobs staged at the same time, and one of them got a file that is not whole.",
        "Take a lock before you look whether the copy is there, and keep it until os.replace.",
    )
    return locks


def _judge_two_files(site: Site) -> None:
    """Stage a file whose name begins alike while a job is about to rename the copy of the first."""
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
        len(found) == 2
        and not any(outcome.error for outcome in found)
        and [*map(site.copy, found)] == [site.data, site.data[::-1]],
        f"Two jobs staged {site.source.name!r} and {other.name!r} into one folder. The copy of "
        "one, whole or unfinished, was overwritten or removed by the other.",
        "Give each file's copies names of their own, target and f'{target}.part': with_suffix and "
        "stem cut off what tells two files apart. Remove no other.",
    )


def _good(results: list[Outcome], wanted: int) -> list[Outcome]:
    for result in results:
        expect(
            "[Errno 18]" not in result.error,
            "You rename or link from one file system into another, and that is an error: `place` "
            "may be /dev/shm, and what you rename or link lies elsewhere.",
            _RENAME,
        )
        expect(
            not result.error,
            f"stage stopped: {explain(RuntimeError(result.error))}.",
            "Mend that line, run its cell again, then this one.",
        )
        expect(
            not result.moved,
            "stage leaves the process in another folder: all paths of the program that do not "
            "begin at the root lead elsewhere from now on.",
            "Leave out os.chdir, and join paths: Path(place, name).",
        )
    expect(
        len(results) == wanted,
        "The process that called stage ended in the middle of it, and nobody had killed it.",
        "Raise an exception; sys.exit and os._exit end the whole job.",
    )
    return results
