"""The blind clinic: six training loops, each slow for a reason of its own; find out by measuring.

    clinic = admit()
    A, B, C, D, E, F = clinic
    A.step_alone()

Which loop has which cause is drawn once for each learner. A loop shows nothing but its probes, and
the clinic counts them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from course_stories.clinic.loops import BATCH_SIZE, CAUSES, ClinicRun, Loop, make_loops
from course_utils.errors import CourseError
from course_utils.hardware.machine import all_cores
from course_utils.paths import scratch_folder
from course_utils.teaching.notebook import Bar, bars, card
from keepfed.errors import KeepfedError
from keepfed.files import replace_file
from keepfed.measure.hook import has_delay
from keepfed.measure.records import Fetch
from keepfed.words import percent, plural

if TYPE_CHECKING:
    from keepfed.measure.diagnosis import Diagnosis
    from keepfed.measure.picture import Timeline

NAMES = "ABCDEF"
REPLAYED = 12  # steps on one batch
BUSY = " But the machine was busy with something else meanwhile: use this probe again."
NOT_YET = "No second opinion yet"

Found = TypeVar("Found", bound="ProbeResult")


class ProbeResult:
    """What a probe found: a sentence, and a few bars."""

    def __init__(self, about: str, sentence: str, bars: Iterable[Bar] = ()):
        self.about, self.sentence, self.bars = about, sentence, tuple(bars)

    def __repr__(self) -> str:
        """Say it in words."""
        return f"{self.about}: {self.sentence}"

    def _repr_html_(self) -> str:
        return card("plain", self.about, self.sentence, body=bars(self.bars))


class LoopRate(ProbeResult):
    """How fast a loop runs, and how busy it keeps the GPU."""

    def __init__(self, about: str, run: ClinicRun):
        self.steps_per_s, self.gpu_busy = run.per_s(), run.gpu_busy()  # busy: a share, 0 to 1
        said = f"{self.steps_per_s:.1f} steps/s, the GPU is busy {percent(self.gpu_busy)}."
        super().__init__(about, said)


class LoaderRate(ProbeResult):
    """How fast a loader delivers when nobody computes."""

    def __init__(self, about: str, run: ClinicRun):
        self.batches_per_s = run.per_s()
        super().__init__(about, f"{self.batches_per_s:.1f} batches/s.")


class WorkersCpu(ProbeResult):
    """What the workers do with their time while the loop runs: shares of 0 to 1, by worker."""

    def __init__(self, about: str, run: ClinicRun):
        shares = [_shares(fetches) for fetches in run.by_worker()]
        self.computes = tuple(computes for computes, _ in shares)
        sleeps = tuple(max(0.0, 1 - computes - ready) for computes, ready in shares)
        # what the system does not tell is None
        self.sleeps = sleeps if has_delay() else None
        self.cores = run.cores if run.cores >= 0 else None
        said, drawn = f"The workers compute {_percents(self.computes)} of the time", list[Bar]()
        if self.sleeps:
            said += f", sleep {_percents(self.sleeps)}"
        if self.cores:
            said += f", and may run on {self.cores} of {plural(all_cores(), 'core')}"
        for worker, computes in enumerate(self.computes):
            drawn.append(Bar(f"{worker} computes", computes, percent(computes)))
            if self.sleeps:
                drawn.append(Bar(f"{worker} sleeps", sleeps[worker], percent(sleeps[worker])))
        super().__init__(about, f"{said}.", drawn)


def _shares(fetches: Sequence[Fetch]) -> tuple[float, float]:
    """Return for which share of its time a worker computed, and was ready but had no core."""
    first, last = fetches[0], fetches[-1]
    lasted_ns = last.ended_ns - first.ended_ns
    computed_ns = last.total_cpu_ns - first.total_cpu_ns
    return computed_ns / lasted_ns, sum(f.delay_ns for f in fetches[1:]) / lasted_ns


def _percents(shares: Iterable[float]) -> str:
    return " and ".join(map(percent, shares))


class BatchTimes(ProbeResult):
    """How long one worker takes for a batch."""

    def __init__(self, about: str, run: ClinicRun):
        times = [
            (fetch.collated_ns - fetch.began_ns) / 1e6
            for fetches in run.by_worker()
            for fetch in fetches
        ]
        self.median_ms, self.slowest_ms = median(times), max(times)
        found = {"fastest": min(times), "median": self.median_ms, "slowest": self.slowest_ms}
        super().__init__(
            about,
            f"One worker takes {self.median_ms:.0f} ms for a batch (median), "
            f"{self.slowest_ms:.0f} ms for the slowest of {len(times)}.",
            (Bar(name, ms, f"{ms:.0f} ms") for name, ms in found.items()),
        )


class Patient:
    """One training loop, of which nothing is known; each method is a probe."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"<training loop {self.name}>"

    def together(self) -> LoopRate:
        """Run loader and step together, as the owner does: steps per second, GPU busy."""
        return _probe(self, "together", _File.run, LoopRate)

    def loader_alone(self) -> LoaderRate:
        """Fetch batches and do nothing with them: batches per second."""
        return _probe(self, "loader_alone", _File.fetch, LoaderRate)

    def step_alone(self) -> LoopRate:
        """Replay one cached batch: steps per second without a loader, GPU busy."""
        return _probe(self, "step_alone", _File.replay, LoopRate)

    def workers_cpu(self) -> WorkersCpu:
        """Watch the workers while the loop runs: how much they compute, and how much they sleep."""
        return _probe(self, "workers_cpu", _File.run, WorkersCpu)

    def batch_times(self) -> BatchTimes:
        """Time every batch in the worker that makes it: median and slowest."""
        return _probe(self, "batch_times", _File.run, BatchTimes)

    def timeline(self) -> Timeline:
        """Draw the loop. Its dataset marks no stages, so all that a worker does is called read."""
        return _ask(self, "timeline", _File.run).trace.timeline()


class Clinic:
    """Six loops, and a count of what was asked about each."""

    def __init__(self, seed: int, folder: Path):
        """Make the loops in the order that `seed` decides; they read from `folder`."""
        self._patients = {name: Patient(name) for name in NAMES}
        self._answered = False
        for patient, loop in zip(self, make_loops(folder, seed), strict=True):
            _FILES[patient] = _File(loop)

    def __iter__(self) -> Iterator[Patient]:
        return iter(self._patients.values())

    @property
    def probes(self) -> int:
        """How many probes were used; one used twice on the same loop counts once."""
        return sum(len(_FILES[patient].asked) for patient in self)

    @property
    def disturbed(self) -> bool:
        """Whether the machine was busy with something else when one of them was last looked at."""
        return any(_FILES[patient].disturbed for patient in self)

    def __repr__(self) -> str:
        causes = ", ".join(f'"{cause}"' for cause in CAUSES)
        said = [f"Six loops, {plural(self.probes, 'probe')} used. Causes: {causes}."]
        for patient in self:
            if asked := _FILES[patient].asked:
                said.append(f"  {patient.name}: {', '.join(asked)}")
        return "\n".join(said)

    def second_opinion(self, name: str) -> Diagnosis | ProbeResult:
        """Return what `cu.diagnose` says of a loop, once exercise 3.1 was answered."""
        if not self._answered:
            return ProbeResult(
                NOT_YET, "First give your own answers in exercise 3.1, then ask again."
            )
        if not name:
            return ProbeResult(
                NOT_YET, f"Name one of the loops {', '.join(NAMES)}, then ask again."
            )
        if name not in self._patients:
            raise CourseError(f"There is no loop {name!r}; choose one of {', '.join(NAMES)}.")
        from keepfed.measure.diagnosis import diagnose

        loop = _FILES[self._patients[name]].loop
        try:
            return diagnose(loop.loader, loop.step, seconds=18, synchronize=loop.gpu.synchronize)
        except KeepfedError as error:  # it found the machine too busy to judge
            return ProbeResult(NOT_YET, str(error))


def admit() -> Clinic:
    """Return the six loops; which is which was drawn for you once, and is kept."""
    folder = scratch_folder() / "clinic"
    folder.mkdir(exist_ok=True)
    return Clinic(_own_seed(folder), folder)


def discharge(clinic: Clinic) -> dict[str, str]:
    """Return the true causes by name of the loop: the check asks for them when it has an answer."""
    clinic._answered = True
    return {patient.name: _FILES[patient].loop.cause for patient in clinic}


class _File:
    """What the clinic knows of a loop, and which probes were asked for."""

    def __init__(self, loop: Loop):
        self.loop, self.asked = loop, list[str]()
        self._run: ClinicRun | None = None
        self.disturbed = False  # when it was last looked at

    def run(self) -> ClinicRun:
        """Return the recording of the loop, which is made once: several probes look at it."""
        if self._run is None or self._run.disturbed:
            self._run = ClinicRun(self.loop)
        return self._run

    def fetch(self) -> ClinicRun:
        return ClinicRun(self.loop, fetch=True)

    def replay(self) -> ClinicRun:
        loader = self.loop.loader
        batch = loader.collate_fn([loader.dataset[at] for at in range(BATCH_SIZE)])
        return ClinicRun(self.loop, [batch] * REPLAYED)


# Not an attribute of the loops: whoever looks at one shall see no more than its name.
_FILES: WeakKeyDictionary[Patient, _File] = WeakKeyDictionary()


def _ask(patient: Patient, probe: str, runs: Callable[[_File], ClinicRun]) -> ClinicRun:
    """Count the probe, and make the run that it needs."""
    file = _FILES[patient]
    if probe not in file.asked:
        file.asked.append(probe)
    run = runs(file)
    file.disturbed = run.disturbed
    return run


def _probe(
    patient: Patient,
    probe: str,
    runs: Callable[[_File], ClinicRun],
    find: Callable[[str, ClinicRun], Found],
) -> Found:
    run = _ask(patient, probe, runs)
    finding = find(f"{patient.name}, {probe.replace('_', ' ')}", run)
    finding.sentence += BUSY * run.disturbed
    return finding


def _own_seed(folder: Path) -> int:
    """Return a seed that stays the same in this folder, so that answers stay right."""
    path = folder / "seed.txt"
    with suppress(FileNotFoundError, ValueError):  # what is there may be no number
        return int(path.read_text("utf-8"))
    seed = random.SystemRandom().randrange(10**6)
    replace_file(path, str(seed))
    return seed
