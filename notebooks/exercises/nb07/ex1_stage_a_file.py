"""Check of notebook 07: a `stage` that is killed, crowded, and given no room, each in a process."""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_utils.hardware.machine import SHM
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_in_a_file, right
from course_utils.teaching.notebook import explain
from notebooks.exercises.nb07 import job

Stage = Callable[[str, str], str]
Outcome = dict[str, Any]  # of a call: "returned" or "error", and "reads" of the source

PATIENCE_S = 20.0  # until a call counts as hung; a right one needs a part of a second
SETTLE_S = 1.0  # how long the second of two may show that it does not wait for the first
LOOK_EVERY_S = 0.01


@exercise("07.1", title="Stage a file, whole or not at all", seconds=180)
def stage_a_file(stage: Stage) -> Verdict:
    """Judge `stage(source, place)`: copies, reuse, SIGKILL half way, no room, two at once."""
    expect_in_a_file(stage)
    with tempfile.TemporaryDirectory(prefix="stage-", ignore_cleanup_errors=True) as folder:
        site = Site(Path(folder), stage)
        try:
            name = _judge_copy(site)
            _judge_killed(site, name)
            _judge_moved(site, name)
            _judge_changed(site)
            _judge_full(site)
            _judge_two(site)
        finally:
            site.end()
    return right(
        "Killed half way, without room, two at once, with a new source: what lies under the final "
        "name is always the whole file, and it is copied once."
    )


class Site:
    """A file to stage, a place to stage it in, and jobs that call the learner's function."""

    def __init__(self, folder: Path, stage: Stage):
        """Make the source and a first place in an empty `folder`."""
        self.folder, self._stage, self._rng = folder, stage, random.Random(7)
        self._processes: list[subprocess.Popen[str]] = []
        self._places = 0
        (folder / "storage").mkdir()
        # a name that a shell would take apart
        self.source = folder / "storage" / "pulses of run 7.npy"
        self.data = b""
        self.write(size=self._rng.randrange(200_000, 400_000))
        self.new_place()

    def write(self, *, size: int = 0, older_s: float = 0) -> None:
        """Give the source new contents, of the same size, and `older_s` older than it was."""
        # the first time ends in .75, so that some changes are within a second
        before = self.source.stat().st_mtime if self.data else time.time() // 1 + 0.75
        self.data = self._rng.randbytes(size or len(self.data))
        self.source.write_bytes(self.data)
        os.utime(self.source, (before - older_s, before - older_s))

    def new_place(self) -> None:
        """Go on in an empty folder."""
        self._places += 1
        self.place = self.folder / f"shm {self._places}"
        self.place.mkdir()

    def start(self, *, name: str = "one", **how: Any) -> subprocess.Popen[str]:
        """Start a process that stages, `how` as `job.main` says; `name` tells it from others."""
        order = {
            "module": self._stage.__module__,
            "function": self._stage.__qualname__,
            "source": str(self.source),
            "place": str(self.place),
            "signs": str(self.signs(name)),
            **how,
        }
        process = subprocess.Popen(
            [sys.executable, job.__file__, json.dumps(order)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def run(self, **how: Any) -> list[Outcome]:
        """Stage in a process and return what came of each call; none from one that was killed."""
        return _outcomes(self.start(**how))

    def end(self) -> None:
        """Leave no process behind, also when the check is interrupted."""
        for process in self._processes:
            process.kill()
            process.communicate()

    def signs(self, name: str) -> Path:
        """Name what the files begin with by which a process says how far it is."""
        return self.folder / f"{self.place.name} {name}"

    def copy(self, outcome: Outcome) -> bytes:
        """Return what lies where `stage` says, or nothing."""
        path = Path(outcome["returned"])
        return path.read_bytes() if path.is_file() else b""

    def held(self) -> int:
        """Return the bytes that lie in the place."""
        return sum(path.stat().st_size for path in self.place.rglob("*") if path.is_file())


def _judge_copy(site: Site) -> str:
    """Stage twice where all is well; return the name of the copy."""
    first, second = _good(site.run(calls=2), 2)
    copied = site.copy(first)
    expect(
        Path(first["returned"]).parent == site.place,
        f"stage returned {first['returned']}; the copy belongs into {site.place}.",
        "Return the path of the copy in `place`.",
    )
    expect(
        copied == site.data,
        f"The copy has {len(copied):,} bytes and differs from the source, which has "
        f"{len(site.data):,}.",
        "Copy bytes: shutil.copyfile(source, target).",
    )
    expect(
        not Path(first["returned"]).is_symlink()
        and not os.path.samefile(first["returned"], site.source),
        "What lies there is a link to the source: every read still goes to the slow storage.",
        "Copy the bytes: shutil.copyfile(source, target).",
    )
    expect(
        second["reads"] == 0,
        "The second call reads the whole source again, although a good copy is there. Every job of "
        "the node would pay for that.",
        "Compare size and time with source.stat(), which reads no byte of it; shutil.copy2 gives "
        "the copy the source's time.",
    )
    return Path(first["returned"]).name


def _judge_killed(site: Site, name: str) -> None:
    """Kill a job half way, look at what it leaves, and let the next one stage."""
    site.new_place()
    size = len(site.data)
    killed = site.run(limit=size // 2, deadly=True)
    expect(
        all("error" in outcome for outcome in killed),
        "The program that copies was killed half way, and stage returned as if all were well.",
        "Look at how it ended: subprocess.run(..., check=True); or copy with shutil.copy2.",
    )
    target = site.place / name
    is_exposed = target.exists() and target.read_bytes() != site.data
    (after,) = _good(site.run(), 1)
    found = len(site.copy(after))
    expect(
        found == size,
        f"A job was killed half way through its copy. The next one took what lay there for the "
        f"file: {found:,} of {size:,} bytes, and no error.",
        "Copy to another name in the same folder, and when all is there os.replace(half, target): "
        "that happens at once or not at all.",
    )
    expect(
        site.copy(after) == site.data,
        "After a job was killed half way, the next one put together a file of the right size and "
        "with wrong bytes.",
        "Begin the copy anew; do not append to what lies there.",
    )
    expect(
        not is_exposed,
        "When a job is killed half way, half a file lies under the final name. Your next call "
        "notices; a program that opens the file without asking takes it for whole.",
        "Copy to another name in the same folder, then os.replace(half, target).",
    )
    expect(
        site.held() < 1.4 * size,
        f"A job was killed half way, the next one was not; now {site.held():,} bytes lie there for "
        f"a file of {size:,}. In /dev/shm that is memory, and nobody gives it back.",
        "Give the unfinished copy one fixed name: under the lock the next job overwrites it.",
    )


def _judge_moved(site: Site, name: str) -> None:
    """Kill a job that renames into the place from elsewhere, where that becomes a copy."""
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as place:
        site.place = Path(place)
        site.run(limit=len(site.data) // 2, deadly=True, at_border=True)
        target = site.place / name
        is_whole = not target.exists() or target.read_bytes() == site.data
    expect(
        is_whole,
        "The unfinished copy lies in another folder, and `place` is a file system of its own, as "
        "/dev/shm is. Into that there is no renaming: shutil.move and mv copy. A job was killed "
        "half way, and half a file lies under the final name.",
        "Copy to another name in the same folder, then os.replace(half, target).",
    )


def _judge_changed(site: Site) -> None:
    site.new_place()
    _good(site.run(), 1)
    changes = [(-100.0, "newer"), (1000.0, "dated earlier, as a restored backup is")]
    if site.source.stat().st_mtime % 1:  # the file system knows parts of a second
        changes.append((0.5, "changed half a second before"))
    for older_s, what in changes:
        site.write(older_s=older_s)
        first, second = _good(site.run(calls=2), 2)
        expect(
            site.copy(first) == site.data,
            f"The source has new contents of the same size ({what}), and stage returned the old "
            "ones.",
            "Reuse a copy only if size and time are those of the source: st_size and st_mtime_ns "
            "both equal. shutil.copy2 keeps the time.",
        )
        expect(
            second["reads"] == 0,
            f"The source has changed ({what}) and was copied; the next call copies it once more.",
            "Give the copy the time of the source: shutil.copy2, or os.utime.",
        )


def _judge_full(site: Site) -> None:
    site.new_place()
    (outcome,) = site.run(limit=len(site.data) // 2) or [{"error": "killed"}]
    expect(
        "error" in outcome,
        f"There was room for half of the file, and stage returned {outcome.get('returned')!r} as "
        "if all were well.",
        "Let the OSError go on to the caller: `raise` after the clean-up.",
    )
    expect(
        site.held() < len(site.data) // 10,
        f"There was room for half of the file. stage raised, and left {site.held():,} bytes there: "
        "the full /dev/shm stays full, and all workers of the node need it.",
        "try: copy; except: remove the unfinished copy, then raise.",
    )


def _judge_two(site: Site) -> None:
    site.new_place()
    one = site.start(name="one", hold=True)
    _wait_for(site.signs("one"), "reading", one)
    two = site.start(name="two")
    _wait_for(site.signs("two"), "ready", two)
    both_read = _wait_for(site.signs("two"), "reading", two, SETTLE_S)
    Path(f"{site.signs('one')}.go").touch()
    results = [_good(_outcomes(process), 1)[0] for process in (one, two)]
    for result in results:
        expect(
            site.copy(result) == site.data,
            "Two jobs staged at the same time, and one of them got a file that is not whole.",
            "Take a lock before you look whether the copy is there, and keep it until os.replace.",
        )
    expect(
        not both_read and results[1]["reads"] == 0,
        "Two jobs staged at the same time, and both copied. On a node with eight GPUs that is "
        "eight times the traffic, and for a while eight times the memory.",
        "Take a lock before you look whether the copy is there: with FileLock(f'{target}.lock'): "
        "around everything.",
    )


def _wait_for(
    signs: Path, what: str, process: subprocess.Popen[str], seconds: float = PATIENCE_S
) -> bool:
    """Tell whether the process came that far before it ended, or the time did."""
    end = time.monotonic() + seconds
    sign = Path(f"{signs}.{what}")
    while not sign.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(LOOK_EVERY_S)
    return sign.exists()


def _good(results: list[Outcome], wanted: int) -> list[Outcome]:
    for result in results:
        expect(
            "[Errno 18]" not in result.get("error", ""),
            "You rename from one file system into another, and that is an error: `place` may be "
            "/dev/shm, and your unfinished copy lies elsewhere.",
            "Copy to another name in the same folder, then os.replace(half, target).",
        )
        expect(
            "error" not in result,
            f"stage stopped: {_explain(result)}.",
            "Mend that line, run its cell again, then this one.",
        )
    expect(
        len(results) == wanted,
        "The process that called stage ended in the middle of it, and nobody had killed it.",
        "Raise an exception; sys.exit and os._exit end the whole job.",
    )
    return results


def _explain(outcome: Outcome) -> str:
    """Say what the job raised as if a worker had sent the error home."""
    return explain(RuntimeError(f"Original Traceback\n{outcome.get('error')}"))


def _outcomes(process: subprocess.Popen[str]) -> list[Outcome]:
    """Wait for a process and return what it printed; end one that hangs."""
    try:
        printed, complaints = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        expect(
            False,
            f"A call of stage has not returned after {PATIENCE_S:g} s: it waits for something that "
            "nobody does any more, such as a lock file that a killed process left behind.",
            "Take a lock that ends with its process: filelock.FileLock, or fcntl.flock.",
        )
    if process.returncode == 1 and job.__file__ in complaints and not printed:
        raise RuntimeError(complaints.strip().splitlines()[-1])
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
