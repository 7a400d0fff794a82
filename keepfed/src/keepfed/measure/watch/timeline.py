"""Draw the last iterations of a watched program, with all processes below each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from keepfed.measure.picture import Timeline
from keepfed.measure.ranks import find_straggler
from keepfed.measure.records import MAIN, Fetch
from keepfed.measure.spans import OTHERS, Span
from keepfed.measure.trace import Trace
from keepfed.measure.watch.timing.ring_file import Observation
from keepfed.measure.watch.watched_loop import WatchedLoop

ITERATIONS = 200  # number of iterations in the timeline, for the busiest loader


def timeline(observations: Sequence[Observation]) -> Timeline:
    """Return the timeline of the last iterations."""
    by_process = traces(observations)
    return Timeline(by_process if len(by_process) > 1 else next(iter(by_process.values())))


def traces(observations: Sequence[Observation]) -> dict[str, Trace]:
    """Return a trace of the last iterations of each process, by rank and on one clock."""
    groups: dict[int, list[Observation]] = {}
    for observation in observations:
        groups.setdefault(observation.about["pid"], []).append(observation)
    several = len({group[0].rank for group in groups.values()}) < len(groups)
    by_process = {
        f"process {pid}" if several else f"rank {group[0].rank}": _trace(group)
        for pid, group in groups.items()
    }
    begin = min(trace.begins_ns for trace in by_process.values())
    for trace in by_process.values():
        trace.origin_ns = begin
    return by_process


def straggler(loops: Sequence[WatchedLoop]) -> list[str]:
    """Return a sentence about the slowest rank, if the ranks use the same loader."""
    alike = [loop.observation for loop in loops if loop.name == loops[0].name]
    ranks = sorted((each for each in alike if each.about["ranks"] > 1), key=lambda each: each.rank)
    if len(ranks) < 2 or len(ranks) != len({each.rank for each in ranks}):
        return []
    arrivals = _arrivals(ranks)
    return [str(find_straggler(arrivals))] if arrivals[0].served > 1 else []


def _arrivals(ranks: Sequence[Observation]) -> list[Trace]:
    """Return for each rank a trace with the arrival time of each batch.

    Ranks that synchronize in each step ask for the next batch at the same time.
    """
    by_number = [{each.number: each for each in rank.iterations} for rank in ranks]
    # Each rank may have timed different iterations.
    common = sorted(set.intersection(*map(set, by_number)))
    arrivals = []
    for rank, iterations in zip(ranks, by_number, strict=True):
        trace = Trace(clock=lambda: 0)
        trace.served = len(common)
        for number in common:
            each = iterations[number]
            trace.add(Span("main", "wait", each.asked_ns, each.got_ns, number))
            trace.add(Span(OTHERS, "wait", each.got_ns, each.got_ns + 1, number))
            for span in _fetch_spans(rank.fetches.get(number), number):
                trace.add(span)
        arrivals.append(trace)
    return arrivals


def _trace(group: Sequence[Observation]) -> Trace:
    """Return a trace of the last iterations of one process."""
    busiest = max(group, key=lambda each: each.totals.iterations)
    first, end_ns = busiest.iterations[-ITERATIONS:][0], busiest.iterations[-1].got_ns
    trace = Trace(clock=lambda: end_ns)
    trace.note, trace.sample_ids = "watched, last iterations", None
    trace.starts_midway = first.place > 0
    if (stride := WatchedLoop(busiest).stride) > 1:
        trace.mention(f"1 in {stride} batches was timed")
    if busiest.about["ranks"] > 1:
        trace.mention("compute includes waiting for other ranks")
    for observation in group:
        for each in observation.iterations:
            if each.asked_ns < first.asked_ns or each.got_ns > end_ns:
                continue
            trace.served += 1
            trace.add(Span("main", "wait", each.asked_ns, each.got_ns, each.number))
            if each.left_ns > 0:
                trace.add(Span("main", "compute", each.got_ns, each.left_ns, each.number))
            fetch = observation.fetches.get(each.number)
            for span in _fetch_spans(fetch, each.number):
                if span.lane != "main":  # without workers, the fetch is the wait
                    trace.add(span)
    return trace


def _fetch_spans(fetch: Fetch | None, number: int) -> Iterator[Span]:
    """Yield the spans of the fetch of batch `number`."""
    if fetch is None:
        return
    lane = f"worker {fetch.worker}" if fetch.worker != MAIN else "main"
    yield Span(lane, "read", fetch.began_ns, fetch.collated_ns or fetch.ended_ns, number)
    if fetch.collated_ns:
        yield Span(lane, "collate", fetch.collated_ns, fetch.ended_ns, number)
