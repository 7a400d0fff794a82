"""The blind clinic: six training loops that are slow for different reasons.

    clinic = admit()
    A, B, C, D, E, F = clinic
    A.step_alone()

The order of the causes is random but fixed for each learner. A loop shows only the results of its
probes, and the clinic counts the probes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from course_utils.hardware.machine import all_cores
from course_utils.paths import scratch_folder
from course_utils.stories.clinic.loops import BATCH_SIZE, CAUSES, ClinicRun, Loop, make_loops
from course_utils.teaching.notebook import card
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


class ProbeResult(SimpleNamespace):
    """The result of a probe: a sentence, and its numbers as attributes."""

    about: str
    sentence: str

    def __repr__(self) -> str:
        """Return the sentence."""
        return f"{self.about}: {self.sentence}"

    def _repr_html_(self) -> str:
        return card("plain", self.about, self.sentence)


class Patient:
    """One training loop with an unknown cause, and a method for each probe."""

    def __init__(self, name: str, loop: Loop):
        self.name, self._loop = name, loop
        self._asked: dict[str, ClinicRun] = {}  # the last run of each probe
        self.said: dict[str, str] = {}  # what that run showed

    def __repr__(self) -> str:
        return f"<training loop {self.name}>"

    def together(self) -> ProbeResult:
        """Run loader and step together, and return steps per second and GPU use."""
        return self._rate("together", self._recording())

    def loader_alone(self) -> ProbeResult:
        """Fetch batches without steps, and return batches per second."""
        run = ClinicRun(self._loop, fetch=True)
        rate = run.per_s()
        return self._result("loader_alone", run, f"{rate:.1f} batches/s.", batches_per_s=rate)

    def step_alone(self) -> ProbeResult:
        """Repeat the step on one cached batch, and return steps per second and GPU use."""
        loader = self._loop.loader
        batch = loader.collate_fn([loader.dataset[at] for at in range(BATCH_SIZE)])
        return self._rate("step_alone", ClinicRun(self._loop, [batch] * REPLAYED))

    def workers_cpu(self) -> ProbeResult:
        """Measure how much the workers compute and sleep while the loop runs."""
        run = self._recording()
        numbers = cpu_use(run.by_worker(), run.cores)
        return self._result("workers_cpu", run, numbers.pop("sentence"), **numbers)

    def batch_times(self) -> ProbeResult:
        """Measure the time of every batch in its worker, and return median and slowest."""
        run = self._recording()
        fetches = [fetch for of_worker in run.by_worker() for fetch in of_worker]
        times = [(fetch.collated_ns - fetch.began_ns) / 1e6 for fetch in fetches]
        middle, slowest = median(times), max(times)
        sentence = f"One worker takes {middle:.0f} ms for a batch (median), {slowest:.0f} ms for "
        sentence += f"the slowest of {len(times)}."
        return self._result("batch_times", run, sentence, median_ms=middle, slowest_ms=slowest)

    def timeline(self) -> Timeline:
        """Draw the loop. Its dataset marks no stages, so all worker time appears as "read"."""
        self._result("timeline", run := self._recording(), "See its picture.")
        return run.trace.timeline()

    def _recording(self) -> ClinicRun:
        """Return the recording of the loop, which several probes share."""
        shared = ("together", "workers_cpu", "batch_times", "timeline")
        runs = [run for name, run in self._asked.items() if name in shared and not run.disturbed]
        return runs[0] if runs else ClinicRun(self._loop)

    def _rate(self, probe: str, run: ClinicRun) -> ProbeResult:
        rate, busy = run.per_s(), run.gpu_busy()
        sentence = f"{rate:.1f} steps/s, GPU busy {percent(busy)} of the time."
        return self._result(probe, run, sentence, steps_per_s=rate, gpu_busy=busy)

    def _result(self, probe: str, run: ClinicRun, sentence: str, **numbers: Any) -> ProbeResult:
        """Record the use of a probe, and return its result."""
        self._asked[probe], self.said[probe] = run, sentence + BUSY * run.disturbed
        about = f"{self.name}, {probe.replace('_', ' ')}"
        return ProbeResult(about=about, sentence=self.said[probe], **numbers)


def cpu_use(by_worker: Sequence[Sequence[Fetch]], cores: int) -> dict[str, Any]:
    """Return CPU use and sleep of each worker as shares from 0 to 1, and a sentence about them.

    Both are for the time while the loop runs. A system that does not report sleep or cores gives
    None for them, and `cores` is then -1.
    """
    computes, sleeps = [], []
    for fetches in by_worker:
        lasted_ns = fetches[-1].ended_ns - fetches[0].ended_ns
        computes.append((fetches[-1].total_cpu_ns - fetches[0].total_cpu_ns) / lasted_ns)
        ready = sum(fetch.delay_ns for fetch in fetches[1:]) / lasted_ns  # it waits for a core
        sleeps.append(max(0.0, 1 - computes[-1] - ready))
    sentence = f"The workers compute {' and '.join(map(percent, computes))} of the time"
    if has_delay():
        sentence += f", sleep {' and '.join(map(percent, sleeps))}"
    if cores >= 0:
        sentence += f", and may run on {cores} of {plural(all_cores(), 'core')}"
    return {
        "sentence": f"{sentence}.",
        "computes": tuple(computes),
        "sleeps": tuple(sleeps) if has_delay() else None,
        "cores": cores if cores >= 0 else None,
    }


class Clinic:
    """Six loops, and a table of what the probes on each have shown."""

    def __init__(self, seed: int, folder: Path):
        """Create the loops in the order given by `seed`; they read from `folder`."""
        loops = make_loops(folder, seed)
        self._patients = {n: Patient(n, loop) for n, loop in zip(NAMES, loops, strict=True)}
        self._answered = False

    def __iter__(self) -> Iterator[Patient]:
        return iter(self._patients.values())

    @property
    def probes(self) -> int:
        """Number of probes used, where a probe counts once per loop."""
        return sum(len(patient._asked) for patient in self)

    @property
    def disturbed(self) -> bool:
        """Whether other programs disturbed the last run of a probe."""
        return any(run.disturbed for patient in self for run in patient._asked.values())

    def __repr__(self) -> str:
        causes = ", ".join(f'"{cause}"' for cause in CAUSES)
        rows = [f"\n{p.name}  {probe:12}  {said}" for p in self for probe, said in p.said.items()]
        return f"Six loops, {plural(self.probes, 'probe')} used. Causes: {causes}.{''.join(rows)}"

    def second_opinion(self, name: str) -> Diagnosis | ProbeResult:
        """Return the result of `cu.diagnose` for a loop, after exercise 3.1 was answered."""
        refusal = ""
        if not self._answered:
            refusal = "Answer exercise 3.1 first. Then run this cell again."
        elif name not in self._patients:
            refusal = f"Enter the name of a loop ({', '.join(NAMES)}). Then run this cell again."
        if refusal:
            return ProbeResult(about="No second opinion yet", sentence=refusal)
        from keepfed.measure.diagnosis import diagnose

        loop = self._patients[name]._loop
        return diagnose(loop.loader, loop.step, seconds=18, synchronize=loop.gpu.synchronize)


def admit() -> Clinic:
    """Return the six loops in an order that is random but fixed for each learner."""
    folder = scratch_folder() / "clinic"
    folder.mkdir(exist_ok=True)
    return Clinic(_own_seed(folder), folder)


def discharge(clinic: Clinic) -> dict[str, str]:
    """Return the true cause of each loop by name, after the learner has answered."""
    clinic._answered = True
    return {patient.name: patient._loop.cause for patient in clinic}


def _own_seed(folder: Path) -> int:
    """Return a seed that stays the same in this folder, so that answers stay valid."""
    path = folder / "seed.txt"
    with suppress(FileNotFoundError, ValueError):  # the file may be damaged
        return int(path.read_text("utf-8"))
    seed = random.SystemRandom().randrange(10**6)
    replace_file(path, str(seed))
    return seed
