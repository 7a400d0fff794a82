"""Estimate the measurements of a watched loop, as far as they are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import fmean, median

from keepfed.formatting import plural
from keepfed.measure.advice import (
    Cause,
    Fetching,
    Finding,
    Measurements,
    Moving,
    Paces,
    Setting,
    StepParts,
    fetching_of,
    filling_s,
    judge,
    mean_s,
    recommend,
    sent_s,
    start_up_s,
)
from keepfed.measure.advice.thresholds import (
    ENOUGH_TO_SHARE,
    MANY_ITERATIONS,
    READY_NS,
    SLOWS_DOWN,
    WATCHED_ITERATIONS,
    WATCHED_NS,
)
from keepfed.measure.records import UNKNOWN, Contents, Fetch, Iteration, warm_up_batches
from keepfed.measure.stacks import Lines, read_lines
from keepfed.measure.watch.timing.ring_file import Observation

PARTS = 4  # number of parts of a run that are compared
PART_FETCHES = 16  # minimum number of fetches in a part to compare their times


@dataclass(frozen=True)
class WatchedLoop:
    """Figures of one loader in one process, and the diagnosis that follows from them."""

    seen: Observation
    alike: int = 0  # number of earlier loaders in this process with the same description
    others_cores: float = 0.0  # number of cores that other programs kept busy

    @property
    def name(self) -> str:
        """Description of the loader, with the line of its loop."""
        about = self.seen.about
        parts = [str(about["dataset"])]
        if about["batch_size"]:
            parts.append(f"batch {about['batch_size']}")
        if about["kind"] != about["dataset"]:
            parts.append(plural(about["workers"], "worker") if about["workers"] else "no workers")
        more = f", loader {self.alike + 1} of this kind" if self.alike else ""
        return f"{', '.join(parts)}, at {about.get('loop', about['at'])}{more}"

    @property
    def lost_ns(self) -> float:
        """Total time that the loop, or the device, waited for this loader."""
        totals = self.seen.totals
        if not totals.device_iterations:
            return totals.waited_ns
        each_ns = totals.device_idle_ns / totals.device_iterations
        # Scale up, because some iterations have no device times.
        return each_ns * totals.iterations

    @property
    def share(self) -> float:
        """Share of the loop's time that the loop, or the device, waited for this loader."""
        totals = self.seen.totals
        return self.lost_ns / max(totals.lasted_ns, 1)

    @property
    def stride(self) -> int:
        """Number of iterations per timed one. The times of the others are estimates."""
        totals = self.seen.totals
        return round(totals.iterations / totals.timed) if totals.timed else 1

    @cached_property
    def epoch(self) -> int | None:
        """Number of batches per epoch, or None if unknown. A loop may leave an epoch early."""
        totals = self.seen.totals
        if totals.epochs:
            return round(totals.iterations / totals.epochs)
        begun = [one.number for one in self.seen.iterations if not one.place]
        return begun[-1] - begun[-2] if len(begun) > 1 else None

    @cached_property
    def steady(self) -> list[Iteration]:
        """Iterations after the warm-up, which show the steady speed."""
        about = self.seen.about
        dropped = warm_up_batches(about["workers"] * about["prefetch_factor"], self.epoch)
        found = [one for one in self.seen.iterations if one.place >= dropped]
        found = found or [one for one in self.seen.iterations if one.place]
        return found or self.seen.iterations  # the loop restarts the loader for each batch

    @cached_property
    def measurements(self) -> Measurements | None:
        """Measurements of this loop, or None if there are too few iterations."""
        lasted_ns = self.steady[-1].got_ns - self.steady[0].asked_ns if self.steady else 0
        short = lasted_ns < WATCHED_NS and self.seen.totals.iterations < MANY_ITERATIONS
        if len(self.steady) < WATCHED_ITERATIONS or short:
            return None
        return Measurements(
            paces=self._paces(),
            step=StepParts(has_device=any(one.device_idle_ns != UNKNOWN for one in self.steady)),
            setting=self._setting(),
            fetching=self._fetching(),
            moving=self._moving(),
            lines=self._lines(),
        )

    @cached_property
    def cause(self) -> Cause | None:
        """Cause of the lost time, or None if it is unknown."""
        m = self.measurements
        if m is None or self.seen.totals.elsewhere:
            return None
        cause: Cause = "start-up" if self.epoch == 1 else judge(m)
        known = m.fetching.fetch_s or cause in ("GPU-bound", "start-up")
        return cause if known else None

    @property
    def waits_for_data(self) -> bool:
        """Whether the loader, and not the step, is known to cost the time."""
        return self.cause not in (None, "GPU-bound")

    @cached_property
    def finding(self) -> Finding | None:
        """The cause and the recommended change, or None without a cause."""
        m, cause = self.measurements, self.cause
        return None if m is None or cause is None else recommend(m, cause)

    @property
    def parts_s(self) -> tuple[float, float]:
        """Shortest and longest mean time of a batch in seconds, in the run and in its parts."""
        times = [one.wait_ns + max(0, one.left_ns - one.got_ns) for one in self.seen.iterations]
        length = math.ceil(len(times) / PARTS)
        means = [fmean(times[begin : begin + length]) for begin in range(0, len(times), length)]
        means.append(self.seen.totals.lasted_ns / self.seen.totals.iterations)
        return min(means) / 1e9, max(means) / 1e9

    @property
    def slowdown(self) -> tuple[float, float] | None:
        """Seconds of a fetch in the first and the last part, if loading becomes ever slower."""
        times, length = [fetch.wall_ns for fetch in self._fetches], len(self._fetches) // PARTS
        if length < PART_FETCHES:
            return None
        parts = [median(times[n * length : (n + 1) * length]) for n in range(PARTS)]
        rises = all(earlier < later for earlier, later in pairwise(parts))
        slower = rises and parts[-1] > SLOWS_DOWN * parts[0]
        return (parts[0] / 1e9, parts[-1] / 1e9) if slower else None

    def _paces(self) -> Paces:
        totals = self.seen.totals
        waits_ns = [one.wait_ns for one in self.steady]
        worked_s = mean_s([one.left_ns - one.got_ns for one in self.steady if one.left_ns > 0])
        idle_ns = [one.device_idle_ns for one in self.steady if one.device_idle_ns != UNKNOWN]
        wait_s, timed_s = mean_s(waits_ns), mean_s(waits_ns) + worked_s
        together_s = timed_s
        # A loop over two loaders never asks the same loader twice in a row.
        if not totals.worked_ns:
            lasted_ns = totals.last_ns - totals.first_ns - totals.began_ns
            together_s = max(timed_s, lasted_ns / totals.iterations / 1e9)
        if self.stride > 1:  # timing makes very short iterations longer, so use the total time
            lasted_ns = totals.waited_ns - totals.began_ns + totals.worked_ns
            together_s = lasted_ns / totals.iterations / 1e9
            wait_s *= together_s / timed_s if timed_s else 1.0
        wait_s, start_up_s = mean_s(idle_ns) if idle_ns else wait_s, self._start_up_s()
        # With one batch per epoch, all time beyond the fetch counts as the start of the iterator.
        if self.epoch == 1:
            fetch_s = min(together_s, mean_s([fetch.wall_ns for fetch in self._fetches]))
            start_up_s = together_s - fetch_s + self._ending_s
            together_s = wait_s = fetch_s
        calls = totals.sampler_calls
        cores = totals.step_cpu_ns / totals.step_seen_ns if totals.step_seen_ns else None
        return Paces(
            loader_s=None,
            step_s=max(0.0, together_s - wait_s),
            step_cpu_s=None if cores is None else cores * worked_s,
            together_s=together_s,
            wait_s=wait_s,
            waited_share=fmean([wait_ns > READY_NS for wait_ns in waits_ns]),
            sampling_s=totals.sampled_ns / calls / 1e9 if calls else 0.0,
            start_up_s=start_up_s,
            filling_s=filling_s(self._fetches),
            epoch=self.epoch,
            epochs=totals.epochs or None,
        )

    def _start_up_s(self) -> float:
        firsts = [one for one in self.seen.iterations if not one.place]
        if self.seen.about["persistent"]:
            firsts = [one for one in firsts if one.epoch]
        firsts_s = [one.wait_ns / 1e9 for one in firsts]
        if not firsts_s:
            return 0.0
        return start_up_s(median(firsts_s), self._fetches, 0.0) + self._ending_s

    @property
    def _ending_s(self) -> float:
        totals = self.seen.totals
        return totals.ended_ns / totals.epochs / 1e9 if totals.epochs else 0.0

    def _setting(self) -> Setting:
        about, cores = self.seen.about, self.seen.about["main_cores"]
        takes = about["takes"]
        return Setting(
            kind=takes,
            batch_size=0 if takes == "no DataLoader" else about["batch_size"] or 0,
            has_getitems=about["getitems"],
            has_in_order=about.get("in_order", True),
            workers=about["workers"],
            active_workers=self._working(),
            loaders_made=about["made"],
            prefetch_factor=about["prefetch_factor"],
            start_method=about["start_method"],
            cores=cores,
            worker_cores=min(self.seen.totals.cores or cores, cores),
            others_cores=self.others_cores,
        )

    @cached_property
    def _fetches(self) -> list[Fetch]:
        known = self.seen.fetches
        return [known[one.number] for one in self.seen.iterations if one.number in known]

    def _fetching(self) -> Fetching:
        if self._fetches or self.seen.about["takes"] != "no DataLoader":
            totals = self.seen.totals
            locked = totals.held_up / totals.looks if totals.looks else None
            return replace(fetching_of(self._fetches), locked_share=locked)
        # Without a DataLoader, next() itself loads the batch.
        fetch_s = mean_s([one.wait_ns for one in self.steady])
        return Fetching(fetch_s=fetch_s, computing_s=min(self._receiving_s(), fetch_s))

    def _working(self) -> int | None:
        """Return how many workers of a stream sent a batch, or None after too few batches."""
        about = self.seen.about
        known = (
            about["takes"] == "stream" and len(self._fetches) >= ENOUGH_TO_SHARE * about["workers"]
        )
        return len({fetch.worker for fetch in self._fetches}) if known else None

    def _lines(self) -> Lines:
        """Return the sampled lines: samples from the workers, the rest from this process."""
        about, folder = self.seen.about, self.seen.folder
        here = read_lines(folder, f"main-{about['pid']}")
        if not about["workers"]:
            return here
        there = read_lines(folder, str(about.get("name")))
        return {**here, "fetch": (), "collate": (), **there}

    def _moving(self) -> Moving:
        about = self.seen.about
        moving = Moving(
            batch_bytes=about.get("batch_bytes", 0),
            **{name: about[name] for name in Contents._fields if name in about},
        )
        if not (self._fetches and about["workers"]):
            return moving
        received_s = self._receiving_s()
        sent = sent_s(self._fetches) + received_s
        return replace(moving, receiving_s=received_s, sending_s=sent)

    def _receiving_s(self) -> float:
        return mean_s([one.receiving_ns for one in self.steady if one.receiving_ns != UNKNOWN])


def loops(seen: Sequence[Observation], others_cores: float = 0.0) -> list[WatchedLoop]:
    """Return the watched loops, sorted by lost time with the longest first.

    Args:
        seen: Figures of each loader in each process.
        others_cores: Number of cores that other programs kept busy.
    """
    found: list[WatchedLoop] = []
    for one in sorted(seen, key=lambda s: s.totals.first_ns):
        loop = WatchedLoop(one)
        pid = one.about["pid"]
        before = (f for f in found if f.seen.about["pid"] == pid)
        alike = sum(WatchedLoop(f.seen).name == loop.name for f in before)
        found.append(WatchedLoop(one, alike, others_cores))
    return sorted(found, key=lambda loop: (-loop.lost_ns, loop.seen.rank))
