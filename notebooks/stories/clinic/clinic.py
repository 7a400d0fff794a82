"""The blind clinic: six training loops, each slow for a reason of its own; find out by measuring.

    clinic = admit()
    A, B, C, D, E, F = clinic
    A.step_alone()

Which loop has which cause is drawn once for each learner. A loop shows nothing but its probes, and
the clinic counts them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from course_utils.errors import CourseError
from course_utils.hardware.gpu import EmulatedAccelerator
from course_utils.teaching.notebook import replace_text, state_folder
from course_utils.words import plural
from notebooks.stories.clinic.loops import BATCH_SIZE, CAUSES, Batch, Step, make_loops
from notebooks.stories.clinic.probes import (
    Advice,
    BatchTimes,
    LoaderRate,
    LoopRate,
    Run,
    WorkersCpu,
    workers_cpu,
)

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from course_utils.measure.diagnosis import Diagnosis
    from course_utils.measure.picture import Timeline

NAMES = "ABCDEF"
REPLAYED = 12  # steps on one batch


class Loop:
    """One training loop, of which nothing is known; each method is a probe."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str):
        """Give it a name, and nothing else."""
        self.name = name

    def __repr__(self) -> str:
        """Tell no more than the name."""
        return f"<training loop {self.name}>"

    def together(self) -> LoopRate:
        """Run loader and step together, as the owner does: steps per second, GPU busy."""
        run = _file(self, "together").run()
        return LoopRate(f"{self.name}, together", run.per_s(), run.gpu_busy())

    def loader_alone(self) -> LoaderRate:
        """Fetch batches and do nothing with them: batches per second."""
        run = _file(self, "loader_alone").fetch()
        return LoaderRate(f"{self.name}, loader alone", run.per_s())

    def step_alone(self) -> LoopRate:
        """Replay one cached batch: steps per second without a loader, GPU busy."""
        run = _file(self, "step_alone").replay()
        return LoopRate(f"{self.name}, step alone", run.per_s(), run.gpu_busy())

    def workers_cpu(self) -> WorkersCpu:
        """Watch the workers while the loop runs: how much they compute, and how much they sleep."""
        samples = _file(self, "workers_cpu").run().by_worker()
        return workers_cpu(f"{self.name}, CPU of the workers", samples)

    def batch_times(self) -> BatchTimes:
        """Time every batch in the worker that makes it: median and slowest."""
        times = [
            (rows[at + BATCH_SIZE - 1]["end_ns"] - rows[at]["start_ns"]) / 1e6
            for rows in _file(self, "batch_times").run().by_worker()
            for at in range(0, len(rows), BATCH_SIZE)
        ]
        return BatchTimes(f"{self.name}, time of a batch", tuple(times))

    def timeline(self) -> Timeline:
        """Draw the loop. Its dataset marks no stages, so all that a worker does is called read."""
        return _file(self, "timeline").run().trace.timeline()


class Clinic:
    """Six loops, and a count of what was asked about each."""

    def __init__(self, seed: int, folder: Path):
        """Make the loops in the order that `seed` decides; they read from `folder`."""
        self._loops = {name: Loop(name) for name in NAMES}
        self._answered = False
        made = make_loops(folder, seed)
        for loop, (cause, loader, step, gpu) in zip(self, made, strict=True):
            _FILES[loop] = _File(cause, loader, step, gpu)

    def __iter__(self) -> Iterator[Loop]:
        """Show one loop after the other."""
        return iter(self._loops.values())

    @property
    def asked(self) -> Mapping[str, tuple[str, ...]]:
        """The probes that were used, by loop; one used twice on the same loop stands here once."""
        return {loop.name: tuple(_FILES[loop].asked) for loop in self}

    @property
    def probes(self) -> int:
        """How many were used."""
        return sum(map(len, self.asked.values()))

    def __repr__(self) -> str:
        """Show what was asked so far."""
        asked = [f"  {name}: {', '.join(used)}" for name, used in self.asked.items() if used]
        causes = ", ".join(f'"{cause}"' for cause in CAUSES)
        return "\n".join(
            [f"Six loops, {plural(self.probes, 'probe')} used. Causes: {causes}.", *asked]
        )

    def second_opinion(self, name: str, *, seconds: float = 18) -> Diagnosis | Advice:
        """Return what `cu.diagnose` says of a loop, once exercise 3.2 was answered."""
        if not self._answered:
            return Advice("First give your own answers in exercise 3.2, then ask again.")
        if not name:
            return Advice(f"Name one of the loops {', '.join(NAMES)}, then ask again.")
        if name not in self._loops:
            raise CourseError(f"There is no loop {name!r}; choose one of {', '.join(NAMES)}.")
        from course_utils.measure.diagnosis import diagnose

        file = _FILES[self._loops[name]]
        try:
            return diagnose(
                file.loader, file.step, seconds=seconds, synchronize=file.gpu.synchronize
            )
        except CourseError as error:  # it found the machine too busy to judge
            return Advice(str(error))


def admit(seed: int | None = None) -> Clinic:
    """Return the six loops; `seed` decides which is which, by default one that is kept for you."""
    folder = state_folder() / "clinic"
    folder.mkdir(exist_ok=True)
    return Clinic(_own_seed(folder) if seed is None else seed, folder)


def discharge(clinic: Clinic) -> dict[str, str]:
    """Return the true causes by name of the loop: the check asks for them when it has an answer."""
    clinic._answered = True
    return {loop.name: _FILES[loop].cause for loop in clinic}


class _File:
    """What the clinic knows of a loop."""

    def __init__(
        self,
        cause: str,
        loader: DataLoader[Batch],
        step: Step,
        gpu: EmulatedAccelerator,
    ):
        self.cause, self.loader, self.step, self.gpu = cause, loader, step, gpu
        self.asked: list[str] = []
        self._run: Run | None = None

    def run(self) -> Run:
        """Return the recording of the loop, which is made once: several probes look at it."""
        if self._run is None:
            self._run = Run(self.loader, self.step, self.gpu)
        return self._run

    def fetch(self) -> Run:
        return Run(self.loader, self.step, None)

    def replay(self) -> Run:
        samples = self.loader.dataset
        batch = self.loader.collate_fn([samples[at] for at in range(BATCH_SIZE)])
        return Run([batch] * REPLAYED, self.step, self.gpu)


# Not an attribute of the loops: whoever looks at one shall see no more than its name.
_FILES: WeakKeyDictionary[Loop, _File] = WeakKeyDictionary()


def _file(loop: Loop, probe: str) -> _File:
    file = _FILES[loop]
    if probe not in file.asked:
        file.asked.append(probe)
    return file


def _own_seed(folder: Path) -> int:
    """Return a seed that stays the same in this folder, so that answers stay right."""
    path = folder / "seed.txt"
    if not path.exists():
        replace_text(path, str(random.SystemRandom().randrange(10**6)))
    try:
        return int(path.read_text("utf-8"))
    except ValueError:
        path.unlink()
        return _own_seed(folder)
