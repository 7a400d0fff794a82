"""Find out why a training loop waits: run the loader alone, the step alone, and both together.

    print(diagnose(loader, step))

Here is measured, `verdict` judges, `remedy` predicts, `report` draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from course_utils.errors import CourseError
from course_utils.measure.diagnosis import findings
from course_utils.measure.diagnosis.epochs import untouched
from course_utils.measure.diagnosis.evidence import gather, may_be_oversubscribed
from course_utils.measure.diagnosis.measurements import Measurements
from course_utils.measure.diagnosis.remedy import remedy
from course_utils.measure.diagnosis.runs import Run, run_loop
from course_utils.measure.diagnosis.step_alone import run_step
from course_utils.measure.diagnosis.verdict import Cause, judge, slowest_stage
from course_utils.measure.trace import Trace

ALONE, STEP, TOGETHER, TRIAL = 0.35, 0.15, 0.35, 0.1  # shares of the time
HANGS_S = 60  # without a batch, where the loader itself would wait for ever


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on a loop; shows itself as a page of text or HTML."""

    cause: Cause
    stage: str  # of the loader, such as "decode", if it names one and is the cause; else ""
    verdict: str  # one sentence
    change: str  # the one thing to do, such as "num_workers=4"
    gain: float  # how many times faster the model predicts the loop to be after the change
    at_most: bool  # the gain is that of removing the cause altogether
    headspace: float  # how many times faster it would be with an infinitely fast loader
    loader_s: float  # per batch, the loader alone
    step_s: float  # per batch, the step alone
    together_s: float  # per batch, both, with start-up shared out among the batches of an epoch
    evidence: Mapping[str, str]  # what was measured -> the figure, as the page shows them
    measurements: Measurements = field(repr=False)
    trace: Trace = field(repr=False)  # of loader and step together

    def __repr__(self) -> str:
        """Return the page as text."""
        from course_utils.measure.diagnosis.report import text

        return text(self)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        from course_utils.measure.diagnosis.report import page

        return {"text/plain": repr(self), "text/html": page(self)}


def diagnose(
    loader: Iterable[Any],
    step: Callable[[Any], Any],
    *,
    seconds: float = 40.0,
    synchronize: Callable[[], Any] | None = None,
) -> Diagnosis:
    """Say what a training loop waits for, and the one change to make.

    The loader is left as it was, and no process of it stays. The step really trains: give it a copy
    of the model if that matters.

    Args:
        loader: a `DataLoader` of any kind, or anything that gives batches each time it is iterated.
        step: what the loop does with one batch: upload it and train on it.
        seconds: about how long it may take, start-up of workers included.
        synchronize: wait until the device has done all it was given; needed only for a device that
            torch.accelerator does not know.

    Raises:
        CourseError: the loop cannot be judged; the sentence says what to do. What the dataset or
            the step raises comes through as it is.
    """
    _check(loader, step)
    with untouched(loader, timeout_s=HANGS_S), _understandable():
        alone = run_loop(loader, None, seconds=ALONE * seconds, keep=True)
        _check_batches(alone, seconds)
        trial = None
        if may_be_oversubscribed(alone):
            trial = run_loop(loader, None, seconds=TRIAL * seconds, one_thread=True)
        alone_step = run_step(step, alone.kept, seconds=STEP * seconds, synchronize=synchronize)
        alone.kept.clear()  # batches of workers hold shared memory
        together = run_loop(loader, step, seconds=TOGETHER * seconds)
        _check_batches(together, seconds)
    return concluded(gather(loader, alone, alone_step, together, trial), together.trace)


def concluded(m: Measurements, trace: Trace) -> Diagnosis:
    """Return what follows from measurements."""
    cause = judge(m)
    cure = remedy(m, cause)
    return Diagnosis(
        cause=cause,
        stage=slowest_stage(m) if cause == "CPU" else "",
        verdict=findings.sentence(m, cause),
        change=cure.change,
        gain=cure.gain,
        at_most=cure.at_most,
        headspace=m.headspace,
        loader_s=m.loader_s,
        step_s=m.step_s,
        together_s=m.turn_s,
        evidence=findings.evidence(m),
        measurements=m,
        trace=trace,
    )


def _check(loader: Any, step: Any) -> None:
    if not callable(step):
        raise CourseError(
            "The step is no function; give what your loop does with one batch: "
            "def step(batch): ..., then diagnose(loader, step)."
        )
    if isinstance(loader, Iterator):
        raise CourseError(
            "This loader can be run through only once; give the DataLoader itself, not "
            "iter(loader) or a generator."
        )
    if not isinstance(loader, Iterable):
        raise CourseError(
            f"A {type(loader).__name__} gives no batches; give a DataLoader, or a list of batches."
        )


def _check_batches(run: Run, seconds: float) -> None:
    """Refuse what has no steady part to be judged."""
    if not run.turns:
        raise CourseError(
            "The loader gives no batch; look at len(loader), and at drop_last if the data are few."
        )
    if run.steady:
        return
    if run.lengths:
        raise CourseError(
            f"An epoch of {max(run.lengths)} batches is too short to be judged; give a smaller "
            "batch_size or more samples."
        )
    raise CourseError(
        f"Only {len(run.turns)} batches came in time, too few to judge by; "
        f"give more of it: diagnose(loader, step, seconds={3 * seconds:g})."
    )


class _understandable:
    """Say in a sentence what torch says of workers that die or hang."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        message = str(error)
        if not isinstance(error, RuntimeError):
            return
        if "DataLoader timed out" in message:
            raise CourseError(
                f"No batch came for {HANGS_S} s, so the loader hangs or is very slow; look "
                "where with num_workers=0, or set the loader's timeout= to what it needs."
            ) from error
        if "DataLoader worker" in message and "Caught" not in message:
            raise CourseError(
                f"A worker of the loader died ({message.splitlines()[0]}); run it with "
                "num_workers=0 to see why."
            ) from error
