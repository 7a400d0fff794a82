"""What the probes of the blind clinic find, each as a sentence and a few bars."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from course_utils.hardware.gpu import EmulatedAccelerator
from course_utils.hardware.machine import all_cores
from course_utils.measure.trace import Trace, record
from course_utils.teaching.notebook import Bar, bars, card
from notebooks.stories.clinic.loops import MADE, WORKERS, Batch, Step

PREFETCHED = 2 * WORKERS + 1  # first batches that say nothing about a long run


class Finding:
    """What a probe found."""

    about: str

    @property
    def sentence(self) -> str:
        """The finding in words."""
        raise NotImplementedError

    def _bars(self) -> list[Bar]:
        return []

    def __repr__(self) -> str:
        """Say it in words."""
        return f"{self.about}: {self.sentence}"

    def _repr_html_(self) -> str:
        return card("plain", self.about, self.sentence, body=bars(self._bars()))


@dataclass(frozen=True, repr=False)
class Advice(Finding):
    """What to do, where nothing can be found yet."""

    text: str
    about: str = "No second opinion yet"

    @property
    def sentence(self) -> str:
        """What to do."""
        return self.text


@dataclass(frozen=True, repr=False)
class LoopRate(Finding):
    """How fast a loop runs, and how busy it keeps the GPU."""

    about: str
    steps_per_s: float
    gpu_busy: float  # share of the time, 0 to 1

    @property
    def sentence(self) -> str:
        """The finding in words."""
        return f"{self.steps_per_s:.1f} steps/s, the GPU is busy {100 * self.gpu_busy:.0f} %."


@dataclass(frozen=True, repr=False)
class LoaderRate(Finding):
    """How fast a loader delivers when nobody computes."""

    about: str
    batches_per_s: float

    @property
    def sentence(self) -> str:
        """The finding in words."""
        return f"{self.batches_per_s:.1f} batches/s."


@dataclass(frozen=True, repr=False)
class WorkersCpu(Finding):
    """What the workers do with their time while the loop runs: shares of 0 to 1, by worker."""

    about: str
    computes: tuple[float, ...]
    sleeps: tuple[float, ...] | None  # None: the system does not tell
    cores: int | None  # that they may use; None: the system does not tell

    @property
    def sentence(self) -> str:
        """The finding in words."""
        sleeps = "" if self.sleeps is None else f", sleep {_percents(self.sleeps)}"
        cores = "" if self.cores is None else f", and may run on {self.cores} of {all_cores()}"
        cores = cores and f"{cores} core{'s' * (all_cores() != 1)}"
        return f"The workers compute {_percents(self.computes)} of the time{sleeps}{cores}."

    def _bars(self) -> list[Bar]:
        rows = [("computes", self.computes), ("sleeps", self.sleeps or ())]
        return [
            Bar(f"{worker} {name}", share, f"{100 * share:.0f} %")
            for worker in range(len(self.computes))
            for name, shares in rows
            for share in shares[worker : worker + 1]
        ]


def workers_cpu(about: str, samples: Iterable[list[dict[str, int]]]) -> WorkersCpu:
    """Compute it from what the workers noted with their samples."""
    ends = [(rows[0], rows[-1]) for rows in samples]
    allowed = max(last["cores"] for _, last in ends)
    tells = all(last["delay_ns"] >= 0 for _, last in ends)
    computes = tuple(_share(*both, "cpu_ns") for both in ends)
    ready = (_share(*both, "delay_ns") for both in ends)
    sleeps = tuple(max(0.0, 1 - a - b) for a, b in zip(computes, ready, strict=True))
    return WorkersCpu(about, computes, sleeps if tells else None, allowed if allowed >= 0 else None)


def _share(first: dict[str, int], last: dict[str, int], clock: str) -> float:
    return (last[clock] - first[clock]) / (last["end_ns"] - first["end_ns"])


def _percents(shares: Iterable[float]) -> str:
    return " and ".join(f"{100 * share:.0f} %" for share in shares)


@dataclass(frozen=True, repr=False)
class BatchTimes(Finding):
    """How long the workers take for each batch."""

    about: str
    times_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        """What half of the batches keep below."""
        return median(self.times_ms)

    @property
    def slowest_ms(self) -> float:
        """What the slowest one took."""
        return max(self.times_ms)

    @property
    def sentence(self) -> str:
        """The finding in words."""
        return (
            f"One worker takes {self.median_ms:.0f} ms for a batch (median), "
            f"{self.slowest_ms:.0f} ms for the slowest of {len(self.times_ms)}."
        )

    def _bars(self) -> list[Bar]:
        found = {"fastest": min(self.times_ms), "median": self.median_ms}
        found["slowest"] = self.slowest_ms
        return [Bar(name, ms, f"{ms:.0f} ms") for name, ms in found.items()]


class Run:
    """One recorded epoch of a loop: workers, steps, and what the workers said of themselves."""

    def __init__(self, loader: Iterable[Batch], step: Step, gpu: EmulatedAccelerator | None):
        """Run it; without `gpu` the batches are only fetched."""
        self.rows: list[dict[str, int]] = []  # one for each sample
        self.ends_ns: list[int] = []
        with record() as trace:
            for batch in trace.batches(loader, ids="sample"):
                if gpu is not None:
                    step(batch)
                columns = [batch[name].tolist() for name in MADE]
                self.rows += [
                    dict(zip(MADE, row, strict=True)) for row in zip(*columns, strict=True)
                ]
                self.ends_ns.append(trace.clock())
            if gpu is not None:
                gpu.synchronize()
        self.trace: Trace = trace

    def per_s(self) -> float:
        """Return the steps or batches per second, without those that were prefetched."""
        ends = self.ends_ns[PREFETCHED:]
        return (len(ends) - 1) / (ends[-1] - ends[0]) * 1e9

    def gpu_busy(self) -> float:
        """Return the share of that time in which the GPU computed."""
        start, end = self.ends_ns[PREFETCHED], self.ends_ns[-1]
        steps = (span for span in self.trace.spans if span.stage == "compute")
        inside = (min(span.end_ns, end) - max(span.start_ns, start) for span in steps)
        return sum(max(ns, 0) for ns in inside) / (end - start)

    def by_worker(self) -> list[list[dict[str, int]]]:
        """Return the samples of each worker in the order in which it made them."""
        rows = sorted(self.rows, key=lambda row: (row["process"], row["start_ns"]))
        return [list(group) for _, group in groupby(rows, key=lambda row: row["process"])]
