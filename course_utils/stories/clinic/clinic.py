"""The blind clinic: six training loops that are slow for different reasons.

    clinic = admit()
    A, B, C, D, E, F = clinic
    A.step_alone()

The order of the causes is random but fixed for each learner. A loop shows only the results of its
probes, and the clinic counts the probes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from course_utils.errors import CourseError
from course_utils.hardware.machine import all_cores
from course_utils.paths import scratch_folder
from course_utils.stories.clinic.loops import BATCH_SIZE, CAUSES, ClinicRun, Loop, make_loops
from course_utils.teaching.notebook import Bar, bars, card
from keepfed.errors import KeepfedError
from keepfed.files import replace_file
from keepfed.formatting import percent, plural
from keepfed.measure.hook import has_delay
from keepfed.measure.records import Fetch

if TYPE_CHECKING:
    from keepfed.measure.diagnosis import Diagnosis
    from keepfed.measure.picture import Timeline

NAMES = "ABCDEF"
REPLAYED = 12  # steps on one cached batch
BUSY = " However, the machine was busy with other programs. Use this probe again."
NOT_YET = "No second opinion yet"

Found = TypeVar("Found", bound="ProbeResult")


class ProbeResult:
    """The result of a probe: a sentence and a few bars."""

    whole = 0.0  # value of a bar of full length; 0 is the longest bar

    def __init__(self, about: str, sentence: str, bars: Iterable[Bar] = ()):
        self.about, self.sentence, self.bars = about, sentence, tuple(bars)

    def __repr__(self) -> str:
        """Return the sentence."""
        return f"{self.about}: {self.sentence}"

    def _repr_html_(self) -> str:
        return card("plain", self.about, self.sentence, body=bars(self.bars, self.whole))


class LoopRate(ProbeResult):
    """Steps per second of a loop, and the busy share of the GPU."""

    def __init__(self, about: str, run: ClinicRun):
        self.steps_per_s, self.gpu_busy = run.per_s(), run.gpu_busy()  # share, 0 to 1
        said = f"{self.steps_per_s:.1f} steps/s, GPU busy {percent(self.gpu_busy)} of the time."
        super().__init__(about, said)


class LoaderRate(ProbeResult):
    """Batches per second of a loader without steps."""

    def __init__(self, about: str, run: ClinicRun):
        self.batches_per_s = run.per_s()
        super().__init__(about, f"{self.batches_per_s:.1f} batches/s.")


class WorkersCpu(ProbeResult):
    """CPU use and sleep of each worker while the loop runs, as shares from 0 to 1."""

    whole = 1.0

    def __init__(self, about: str, run: ClinicRun):
        shares = [_shares(fetches) for fetches in run.by_worker()]
        self.computes = tuple(computes for computes, _ in shares)
        sleeps = tuple(max(0.0, 1 - computes - ready) for computes, ready in shares)
        # None if the system does not report it
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
    """Return the shares of time in which a worker computed, and waited for a core."""
    first, last = fetches[0], fetches[-1]
    lasted_ns = last.ended_ns - first.ended_ns
    computed_ns = last.total_cpu_ns - first.total_cpu_ns
    return computed_ns / lasted_ns, sum(f.delay_ns for f in fetches[1:]) / lasted_ns


def _percents(shares: Iterable[float]) -> str:
    return " and ".join(map(percent, shares))


class BatchTimes(ProbeResult):
    """Time that one worker takes for a batch."""

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
    """One training loop with an unknown cause, and a method for each probe."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"<training loop {self.name}>"

    def together(self) -> LoopRate:
        """Run loader and step together, and return steps per second and GPU use."""
        return _probe(self, "together", _Record.run, LoopRate)

    def loader_alone(self) -> LoaderRate:
        """Fetch batches without steps, and return batches per second."""
        return _probe(self, "loader_alone", _Record.fetch, LoaderRate)

    def step_alone(self) -> LoopRate:
        """Repeat the step on one cached batch, and return steps per second and GPU use."""
        return _probe(self, "step_alone", _Record.replay, LoopRate)

    def workers_cpu(self) -> WorkersCpu:
        """Measure how much the workers compute and sleep while the loop runs."""
        return _probe(self, "workers_cpu", _Record.run, WorkersCpu)

    def batch_times(self) -> BatchTimes:
        """Measure the time of every batch in its worker, and return median and slowest."""
        return _probe(self, "batch_times", _Record.run, BatchTimes)

    def timeline(self) -> Timeline:
        """Draw the loop. Its dataset marks no stages, so all worker time appears as "read"."""
        return _ask(self, "timeline", _Record.run).trace.timeline()


class Clinic:
    """Six loops, and a list of the probes used on each."""

    def __init__(self, seed: int, folder: Path):
        """Create the loops in the order given by `seed`; they read from `folder`."""
        self._patients = {name: Patient(name) for name in NAMES}
        self._answered = False
        for patient, loop in zip(self, make_loops(folder, seed), strict=True):
            _RECORDS[patient] = _Record(loop)

    def __iter__(self) -> Iterator[Patient]:
        return iter(self._patients.values())

    @property
    def probes(self) -> int:
        """Number of probes used, where a probe counts once per loop."""
        return sum(len(_RECORDS[patient].asked) for patient in self)

    @property
    def disturbed(self) -> bool:
        """Whether other programs disturbed the last probe of any loop."""
        return any(_RECORDS[patient].disturbed for patient in self)

    def __repr__(self) -> str:
        causes = ", ".join(f'"{cause}"' for cause in CAUSES)
        said = [f"Six loops, {plural(self.probes, 'probe')} used. Causes: {causes}."]
        for patient in self:
            if asked := _RECORDS[patient].asked:
                said.append(f"  {patient.name}: {', '.join(asked)}")
        return "\n".join(said)

    def second_opinion(self, name: str) -> Diagnosis | ProbeResult:
        """Return the result of `cu.diagnose` for a loop, after exercise 3.1 was answered."""
        if not self._answered:
            return ProbeResult(NOT_YET, "Answer exercise 3.1 first. Then run this cell again.")
        if not name:
            return ProbeResult(
                NOT_YET, f"Enter the name of a loop ({', '.join(NAMES)}). Then run this cell again."
            )
        if name not in self._patients:
            raise CourseError(f"There is no loop {name!r}. Choose one of {', '.join(NAMES)}.")
        from keepfed.measure.diagnosis import diagnose

        loop = _RECORDS[self._patients[name]].loop
        try:
            return diagnose(loop.loader, loop.step, seconds=18, synchronize=loop.gpu.synchronize)
        except KeepfedError as error:  # the machine is too busy for a diagnosis
            return ProbeResult(NOT_YET, str(error))


def admit() -> Clinic:
    """Return the six loops in an order that is random but fixed for each learner."""
    folder = scratch_folder() / "clinic"
    folder.mkdir(exist_ok=True)
    return Clinic(_own_seed(folder), folder)


def discharge(clinic: Clinic) -> dict[str, str]:
    """Return the true cause of each loop by name, after the learner has answered."""
    clinic._answered = True
    return {patient.name: _RECORDS[patient].loop.cause for patient in clinic}


class _Record:
    """The clinic's record of a loop: its cause and the probes that were used."""

    def __init__(self, loop: Loop):
        self.loop, self.asked = loop, list[str]()
        self._run: ClinicRun | None = None
        self.disturbed = False  # whether other programs disturbed the last probe

    def run(self) -> ClinicRun:
        """Return the recording of the loop, which several probes share."""
        if self._run is None or self._run.disturbed:
            self._run = ClinicRun(self.loop)
        return self._run

    def fetch(self) -> ClinicRun:
        return ClinicRun(self.loop, fetch=True)

    def replay(self) -> ClinicRun:
        loader = self.loop.loader
        batch = loader.collate_fn([loader.dataset[at] for at in range(BATCH_SIZE)])
        return ClinicRun(self.loop, [batch] * REPLAYED)


# not an attribute of the loops, so that inspecting a loop shows only its name
_RECORDS: WeakKeyDictionary[Patient, _Record] = WeakKeyDictionary()


def _ask(patient: Patient, probe: str, runs: Callable[[_Record], ClinicRun]) -> ClinicRun:
    """Record the use of a probe, and return the run that the probe needs."""
    record = _RECORDS[patient]
    if probe not in record.asked:
        record.asked.append(probe)
    run = runs(record)
    record.disturbed = run.disturbed
    return run


def _probe(
    patient: Patient,
    probe: str,
    runs: Callable[[_Record], ClinicRun],
    find: Callable[[str, ClinicRun], Found],
) -> Found:
    run = _ask(patient, probe, runs)
    finding = find(f"{patient.name}, {probe.replace('_', ' ')}", run)
    finding.sentence += BUSY * run.disturbed
    return finding


def _own_seed(folder: Path) -> int:
    """Return a seed that stays the same in this folder, so that answers stay valid."""
    path = folder / "seed.txt"
    with suppress(FileNotFoundError, ValueError):  # the file may be damaged
        return int(path.read_text("utf-8"))
    seed = random.SystemRandom().randrange(10**6)
    replace_file(path, str(seed))
    return seed
