"""Make of what was watched the figures that a diagnosis rests on, as far as they are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from statistics import median
from typing import Any

from course_utils.measure.diagnosis import (
    SLOW,
    Cause,
    Measurements,
    Remedy,
    first_dropped,
    judge,
    remedy,
)
from course_utils.measure.watch.record import LONG_NS, STAGES, UNKNOWN, Seen, Turn
from course_utils.words import plural

ENOUGH, ENOUGH_NS = 4, 5e8  # steady turns and their time: of less there is no verdict
MANY = 1_000  # turns that are enough, however short they are
READY_NS = 2_000_000  # a batch that comes within this time was there already


@dataclass(frozen=True)
class Loop:
    """What is known of one loader in one process."""

    seen: Seen
    alike: int = 0  # how many loaders of this process that read like it began before it

    @property
    def name(self) -> str:
        """What the loader is, and where it is looped over."""
        about = self.seen.about
        parts = [str(about["dataset"])]
        if about["batch_size"]:
            parts.append(f"batch {about['batch_size']}")
        if about["kind"] != about["dataset"]:
            parts.append(plural(about["workers"], "worker") if about["workers"] else "no workers")
        more = f", number {self.alike + 1} of its kind" if self.alike else ""
        return f"{', '.join(parts)}, at {about['at']}{more}"

    @property
    def lost_ns(self) -> float:
        """Time for which its loop waited, in all."""
        totals = self.seen.totals
        if not totals.device_turns:
            return totals.waited
        return totals.device_idle / totals.device_turns * totals.turns  # some turns have no marks

    @property
    def share(self) -> float:
        """Share of the time with this loader for which the loop, or the device, waited for it."""
        totals = self.seen.totals
        return self.lost_ns / max(totals.waited + totals.worked, 1.0)

    @property
    def stride(self) -> int:
        """Of so many turns one was timed, on average; the times of the others are estimates."""
        totals = self.seen.totals
        return round(totals.turns / totals.timed) if totals.timed else 1

    @cached_property
    def epoch(self) -> int | None:
        """The batches of an epoch, if that is known; not all loops ask until there are no more."""
        totals = self.seen.totals
        if totals.epochs:
            return round(totals.turns / totals.epochs)
        begun = [turn.number for turn in self.seen.turns if not turn.place]
        return int(begun[-1] - begun[-2]) if len(begun) > 1 else None

    @cached_property
    def steady(self) -> list[Turn]:
        """The turns that say something of the pace."""
        about = self.seen.about
        dropped = first_dropped(about["workers"] * about["prefetch_factor"], self.epoch)
        found = [turn for turn in self.seen.turns if turn.place >= dropped]
        return found or [turn for turn in self.seen.turns if turn.place]

    @cached_property
    def measurements(self) -> Measurements | None:
        """The figures of this loop; None if there are too few turns."""
        lasted = self.steady[-1].got - self.steady[0].asked if self.steady else 0.0
        short = lasted < ENOUGH_NS and self.seen.totals.turns < MANY
        if len(self.steady) < ENOUGH or short:
            return None
        return Measurements(**self._paces(), **self._setting(), **self._fetching())

    @cached_property
    def cause(self) -> Cause | None:
        """What the loop suffers from, None if that cannot be told."""
        m = self.measurements
        if m is None or self.seen.totals.elsewhere:
            return None
        cause = judge(m)
        known = m.fetch_s or cause in ("GPU-bound", "start-up")
        return cause if known else None

    @cached_property
    def remedy(self) -> Remedy | None:
        """What to say and to change about the cause."""
        m, cause = self.measurements, self.cause
        return None if m is None or cause is None else remedy(m, cause)

    def _paces(self) -> dict[str, Any]:
        waits = [turn.got - turn.asked for turn in self.steady]
        worked = [turn.left - turn.got for turn in self.steady if turn.left > 0]
        idle = [turn.device_idle for turn in self.steady if turn.device_idle != UNKNOWN]
        timed, totals = mean(waits) + mean(worked), self.seen.totals
        together = self._turn_s if self.stride > 1 else timed
        wait = mean(idle) if idle else mean(waits) * (together / timed if timed else 1.0)
        cores = totals.step_cpu / totals.step_seen if totals.step_seen else 0.0
        return {
            "loader_s": together,  # at most: how fast it is alone is not known
            "step_s": max(0.0, together - wait),
            "step_cpu_s": cores * mean(worked),
            "together_s": together,
            "wait_s": wait,
            "has_device": bool(idle),
            "waited_share": sum(wait > READY_NS for wait in waits) / len(waits),
            **self._start_up(),
        }

    @property
    def _turn_s(self) -> float:
        """Seconds of a turn on average, skipped ones included: timing a very short one extends it.

        The wait for the first batch of each epoch does not count.
        """
        totals = self.seen.totals
        return (totals.waited - totals.began + totals.worked) / totals.turns / 1e9

    def _start_up(self) -> dict[str, Any]:
        about = self.seen.about
        firsts = [turn.got - turn.asked for turn in self.seen.turns if not turn.place]
        fetch = median([_wall(turn) for turn in self._fetched] or [0.0])
        each = 0.0 if about["persistent"] or not firsts else max(0.0, min(firsts) - fetch) / 1e9
        return {"start_up_s": each, "epoch": self.epoch}

    def _setting(self) -> dict[str, Any]:
        about, totals = self.seen.about, self.seen.totals
        return {
            "kind": about["takes"],
            "batch_size": 0 if about["takes"] == "no DataLoader" else about["batch_size"] or 0,
            "has_getitems": about["getitems"],
            "workers": about["workers"],
            "prefetch_factor": about["prefetch_factor"],
            "start_method": about["start_method"],
            "cores": about["main_cores"],
            "worker_cores": min(int(totals.cores) or about["main_cores"], about["main_cores"]),
            "batch_bytes": about.get("batch_bytes", 0),
        }

    @cached_property
    def _fetched(self) -> list[Turn]:
        """The turns of which the fetch is known, without the first of each worker."""
        known = [turn for turn in self.seen.turns if turn.done]
        firsts = {turn.worker: turn for turn in reversed(known)}
        return [turn for turn in known if turn is not firsts[turn.worker]] or known

    def _fetching(self) -> dict[str, Any]:
        turns = self._fetched
        if not turns:
            return self._taking()
        walls = [_wall(turn) - turn.delay for turn in turns]
        usual = median(walls)
        slow = [wall for wall in walls if wall > SLOW * usual]
        return {
            "fetch_s": mean([_wall(turn) for turn in turns]),
            "computing_s": mean(_of_each(turns, _computing)),
            "delay_s": mean(_of_each(turns, lambda turn: turn.delay)),
            "collate_s": _part(turns, lambda turn: turn.done - turn.made),
            "slow_share": len(slow) / len(walls),
            "slow_time": sum(wall - usual for wall in slow) / max(sum(walls), 1.0),
            "slowest_s": max(walls) / 1e9,
            "stages": _stages(turns),
            **self._moving(turns),
        }

    def _taking(self) -> dict[str, float]:
        """Return what next() itself costs where it makes the batch, of what is no `DataLoader`."""
        if self.seen.about["takes"] != "no DataLoader":
            return {}
        computing = mean([turn.received for turn in self.steady if turn.received != UNKNOWN])
        fetch = mean([turn.got - turn.asked for turn in self.steady])
        return {"fetch_s": fetch, "computing_s": min(computing, fetch)}

    def _moving(self, turns: Sequence[Turn]) -> dict[str, float]:
        """Return what it costs to bring a batch from a worker: what is spent beside the fetch."""
        if not self.seen.about["workers"]:
            return {}
        beside, count = 0.0, 0
        fetching = _of_each(turns, lambda turn: turn.fetch_cpu)
        for worker in {turn.worker for turn in turns}:
            own = [both for both in zip(turns, fetching, strict=True) if both[0].worker == worker]
            read = [place for place, (turn, _) in enumerate(own) if turn.cpu != UNKNOWN]
            for first, last in pairwise(read):
                spent = own[last][0].process_cpu - own[first][0].process_cpu
                if spent >= 0:  # else another process of another epoch
                    beside += spent - sum(cpu for _, cpu in own[first + 1 : last + 1])
                    count += last - first
        sent = max(0.0, beside / max(1, count) / 1e9)
        received = mean([turn.received for turn in self.steady if turn.received != UNKNOWN])
        return {"receiving_s": received, "sending_s": sent + received}


def loops(seen: Sequence[Seen]) -> list[Loop]:
    """Return what is known of each, those first for which most time was lost."""
    found: list[Loop] = []
    for one in sorted(seen, key=lambda s: s.totals.first):
        loop = Loop(one)
        pid = one.about["pid"]
        before = (f for f in found if f.seen.about["pid"] == pid)
        alike = sum(Loop(f.seen).name == loop.name for f in before)
        found.append(Loop(one, alike))
    return sorted(found, key=lambda loop: (-loop.lost_ns, loop.seen.rank))


def _of_each(turns: Sequence[Turn], part: Callable[[Turn], float]) -> list[float]:
    """Return what `part` says of each fetch, in nanoseconds; few of the short ones know it.

    Those that do stand for the time of all that are short.
    """
    short = [turn for turn in turns if turn.cpu != UNKNOWN and _wall(turn) <= LONG_NS]
    share = sum(map(part, short)) / max(sum(map(_wall, short)), 1.0)
    return [part(turn) if turn.cpu != UNKNOWN else share * _wall(turn) for turn in turns]


def _computing(turn: Turn) -> float:
    """Return the time in which a fetch computed, be it in threads of a pool that it waited for."""
    return min(max(turn.cpu, turn.fetch_cpu), max(_wall(turn) - turn.delay, turn.cpu))


def _wall(turn: Turn) -> float:
    return turn.done - turn.began


def _stages(turns: Sequence[Turn]) -> Mapping[str, float]:
    parts = {stage: _part(turns, attrgetter(stage)) for stage in STAGES}
    return {stage: seconds for stage, seconds in parts.items() if seconds}


def _part(turns: Sequence[Turn], part: Callable[[Turn], float]) -> float:
    """Return the seconds of a fetch that are such a part; of some fetches only the whole is known.

    The others stand for them.
    """
    known = [turn for turn in turns if turn.made]
    share = sum(map(part, known)) / max(sum(map(_wall, known)), 1.0)
    return share * mean(list(map(_wall, turns)))


def mean(times: Sequence[float]) -> float:
    """Return the mean of times in nanoseconds, in seconds; 0 of none."""
    return sum(times) / len(times) / 1e9 if times else 0.0
