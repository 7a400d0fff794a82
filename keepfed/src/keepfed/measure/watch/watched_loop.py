"""Estimate the measurements of a watched loop, as far as they are known, and its finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, median

from keepfed.formatting import plural
from keepfed.measure.advice import (
    Cause,
    Fetching,
    LoopFinding,
    Measurements,
    Moving,
    Paces,
    Setting,
    StepParts,
    active_workers,
    fetching_of,
    filling_s,
    judge,
    mean_s,
    recommend,
    sent_s,
    start_up_s,
)
from keepfed.measure.advice.thresholds import (
    MANY_ITERATIONS,
    READY_NS,
    WATCHED_ITERATIONS,
    WATCHED_NS,
)
from keepfed.measure.records import UNKNOWN, Contents, Fetch, Iteration, warm_up_batches
from keepfed.measure.stacks import Lines, read_lines
from keepfed.measure.watch.timing.ring_file import Observation


@dataclass(frozen=True)
class WatchedLoop:
    """Figures of one loader in one process, and the finding that follows from them."""

    observation: Observation
    alike: int = 0  # number of earlier loaders in this process with the same description
    others_cores: float = 0.0  # number of cores that other programs kept busy

    @property
    def name(self) -> str:
        """Description of the loader, with the line of its loop, and that of a library's loop."""
        about = self.observation.about
        parts = [str(about["dataset"])]
        if about["batch_size"]:
            parts.append(f"batch {about['batch_size']}")
        if about["kind"] != about["dataset"]:
            parts.append(plural(about["workers"], "worker") if about["workers"] else "no workers")
        place = about.get("loop", about["at"])
        if about.get("inner", about["at"]) != about["at"]:
            place += f", in {about['inner']}"
        more = f", loader {self.alike + 1} of this kind" if self.alike else ""
        return f"{', '.join(parts)}, at {place}{more}"

    @property
    def lost_ns(self) -> float:
        """Total time that the loop, or the device, waited for this loader."""
        totals = self.observation.totals
        if not totals.device_iterations:
            return totals.waited_ns
        # Scale up, because some iterations have no device times.
        return totals.device_idle_ns / totals.device_iterations * totals.iterations

    @property
    def lost_share(self) -> float:
        """Share of the loop's time that the loop, or the device, waited for this loader."""
        return self.lost_ns / max(self.observation.totals.lasted_ns, 1)

    @property
    def stride(self) -> int:
        """Number of iterations per timed one. The times of the others are estimates."""
        totals = self.observation.totals
        return round(totals.iterations / totals.timed) if totals.timed else 1

    @cached_property
    def epoch(self) -> int | None:
        """Number of batches per epoch, or None if unknown. A loop may leave an epoch early."""
        totals = self.observation.totals
        if totals.epochs:
            return round(totals.iterations / totals.epochs)
        begun = [each.number for each in self.observation.iterations if not each.place]
        return begun[-1] - begun[-2] if len(begun) > 1 else None

    @cached_property
    def steady(self) -> list[Iteration]:
        """Iterations after the warm-up, which show the steady speed."""
        about, iterations = self.observation.about, self.observation.iterations
        dropped = warm_up_batches(about["workers"] * about["prefetch_factor"], self.epoch)
        steady = [each for each in iterations if each.place >= dropped]
        steady = steady or [each for each in iterations if each.place]
        return steady or iterations  # the loop restarts the loader for each batch

    @cached_property
    def measurements(self) -> Measurements | None:
        """Measurements of this loop, or None if there are too few iterations."""
        lasted_ns = self.steady[-1].got_ns - self.steady[0].asked_ns if self.steady else 0
        short = lasted_ns < WATCHED_NS and self.observation.totals.iterations < MANY_ITERATIONS
        if len(self.steady) < WATCHED_ITERATIONS or short:
            return None
        return Measurements(
            paces=self._paces(),
            step=StepParts(has_device=any(e.device_idle_ns != UNKNOWN for e in self.steady)),
            setting=self._setting(),
            fetching=self._fetching(),
            moving=self._moving(),
            lines=self._lines(),
        )

    @cached_property
    def finding(self) -> LoopFinding | None:
        """The cause of the lost time and the change, or None if the cause is unknown."""
        m = self.measurements
        if m is None or self.observation.totals.elsewhere:
            return None
        cause: Cause = "start-up" if self.epoch == 1 else judge(m)
        known = m.fetching.fetch_s or cause in ("GPU-bound", "start-up")
        return recommend(m, cause) if known else None

    @cached_property
    def _fetches(self) -> list[Fetch]:
        known = self.observation.fetches
        return [known[e.number] for e in self.observation.iterations if e.number in known]

    def _paces(self) -> Paces:
        totals, steady = self.observation.totals, self.steady
        waits_ns = [each.wait_ns for each in steady]
        worked_s = mean_s([each.left_ns - each.got_ns for each in steady if each.left_ns > 0])
        idle_ns = [each.device_idle_ns for each in steady if each.device_idle_ns != UNKNOWN]
        wait_s, timed_s = mean_s(waits_ns), mean_s(waits_ns) + worked_s
        together_s = timed_s
        # A loop over two loaders never asks the same loader twice in a row.
        if not totals.worked_ns:
            lasted_ns = totals.last_ns - totals.first_ns - totals.began_ns
            together_s = max(timed_s, lasted_ns / totals.iterations / 1e9)
        if self.stride > 1:  # timing makes very short iterations longer, so use the total time
            together_s = (totals.lasted_ns - totals.began_ns) / totals.iterations / 1e9
            wait_s *= together_s / timed_s if timed_s else 1.0
        wait_s = mean_s(idle_ns) if idle_ns else wait_s
        ended_s = totals.ended_ns / totals.epochs / 1e9 if totals.epochs else 0.0
        started_s = self._first_wait_s() + ended_s
        # With one batch per epoch, all time beyond the fetch counts as the start of the iterator.
        if self.epoch == 1:
            fetch_s = min(together_s, mean_s([fetch.wall_ns for fetch in self._fetches]))
            started_s = together_s - fetch_s + ended_s
            together_s = wait_s = fetch_s
        seen_ns = totals.step_seen_ns
        return Paces(
            loader_s=None,
            step_s=max(0.0, together_s - wait_s),
            step_cpu_s=totals.step_cpu_ns / seen_ns * worked_s if seen_ns else None,
            together_s=together_s,
            wait_s=wait_s,
            waited_share=fmean([wait_ns > READY_NS for wait_ns in waits_ns]),
            sampling_s=self._sampling_s,
            start_up_s=started_s,
            filling_s=filling_s(self._fetches),
            epoch=self.epoch,
            epochs=totals.epochs or None,
            lost_share=self.lost_share,
        )

    def _first_wait_s(self) -> float:
        """Return how much longer than a fetch the first batch of an epoch takes."""
        again = self.observation.about["persistent"]  # then only the first epoch starts workers
        firsts = [e for e in self.observation.iterations if not e.place and (e.epoch or not again)]
        waits_s = [each.wait_ns / 1e9 for each in firsts]
        return start_up_s(median(waits_s), self._fetches, 0.0) if waits_s else 0.0

    def _setting(self) -> Setting:
        about, cores = self.observation.about, self.observation.about["main_cores"]
        kind, workers = about["takes"], about["workers"]
        return Setting(
            kind=kind,
            batch_size=0 if kind == "no DataLoader" else about["batch_size"] or 0,
            has_getitems=about["getitems"],
            has_in_order=about.get("in_order", True),
            workers=workers,
            active_workers=active_workers(kind, workers, self._fetches),
            loaders_made=about["made"],
            prefetch_factor=about["prefetch_factor"],
            start_method=about["start_method"],
            cores=cores,
            worker_cores=min(self.observation.totals.cores or cores, cores),
            others_cores=self.others_cores,
        )

    def _fetching(self) -> Fetching:
        if self._fetches or self.observation.about["takes"] != "no DataLoader":
            totals = self.observation.totals
            locked = totals.held_up / totals.looks if totals.looks else None
            return replace(fetching_of(self._fetches), locked_share=locked)
        # Without a DataLoader, next() itself loads the batch.
        fetch_s = mean_s([each.wait_ns for each in self.steady])
        return Fetching(fetch_s=fetch_s, computing_s=min(self._receiving_s(), fetch_s))

    def _moving(self) -> Moving:
        about = self.observation.about
        contents = {name: about[name] for name in Contents._fields if name in about}
        moving = Moving(batch_bytes=about.get("batch_bytes", 0), **contents)
        if not (self._fetches and about["workers"]):
            return moving
        received_s = self._receiving_s()
        sending_s = sent_s(self._fetches) + received_s
        return replace(moving, receiving_s=received_s, sending_s=sending_s)

    @property
    def _sampling_s(self) -> float:
        totals = self.observation.totals
        return totals.sampled_ns / max(1, totals.sampler_calls) / 1e9

    def _receiving_s(self) -> float:
        """Return the CPU time in next() without that of the sampler, which runs there too."""
        known = [each.receiving_ns for each in self.steady if each.receiving_ns != UNKNOWN]
        return max(0.0, mean_s(known) - self._sampling_s)

    def _lines(self) -> Lines:
        """Return the sampled lines: samples from the workers, the rest from this process."""
        about, folder = self.observation.about, self.observation.folder
        here = read_lines(folder, f"main-{about['pid']}")
        if not about["workers"]:
            return here
        return {**here, "fetch": (), "collate": (), **read_lines(folder, str(about.get("name")))}


def watched_loops(
    observations: Sequence[Observation], others_cores: float = 0.0
) -> list[WatchedLoop]:
    """Return the watched loops, sorted by lost time with the longest first.

    Args:
        observations: Figures of each loader in each process.
        others_cores: Number of cores that other programs kept busy.
    """
    loops: list[WatchedLoop] = []
    names: list[tuple[int, str]] = []  # process and name of each loop so far
    for observation in sorted(observations, key=lambda each: each.totals.first_ns):
        described = int(observation.about["pid"]), WatchedLoop(observation).name
        loops.append(WatchedLoop(observation, names.count(described), others_cores))
        names.append(described)
    return sorted(loops, key=lambda loop: (-loop.lost_ns, loop.observation.rank))
