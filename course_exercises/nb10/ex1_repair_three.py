"""10.1: three pipelines of WebDataset that run, and do something else than they say."""

import ast
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from course_exercises.nb10.hidden import room, small_shards
from course_utils.teaching.exercise import Refused, Verdict, exercise, expect, right, todo, wrong
from course_utils.teaching.notebook import explain, statements

SHARDS, COUNT = 12, 132  # hidden ones, of 10 to 12 samples
ORDERS = 10  # epochs whose orders are compared
AHEAD = 4  # samples that may wait decoded
CUTS = (  # where, whether inside a sample, whether in a second epoch, or only behind a sample
    ("inside a sample", True, False, False),
    ("between two samples", False, False, False),
    ("after you have counted", False, False, True),
    ("in a second epoch", False, True, False),
)

Attempt = Callable[..., Any]

PRINTED = {
    "epoch": "return wds.WebDataset(urls, resampled=True, shardshuffle=False).to_tuple('__key__')",
    "mixed": "return wds.WebDataset(urls, shardshuffle=100).map(decode).shuffle(1000)",
    "complete": "return wds.WebDataset(urls, shardshuffle=False, handler=wds.warn_and_continue)",
}
HINTS = {
    "epoch": "An epoch needs no resampled: WebDataset(urls, shardshuffle=100, detshuffle=True).",
    "mixed": "The order of two stages: first .shuffle(1000), then .map(decode).",
    "complete": "Count: yield each sample in a loop, and raise an error after the loop if they "
    "were not `count`.",
}


class BrokenShards:
    """Hidden shards: the keys in each by its URL."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.keys = small_shards(folder, SHARDS, samples=10)
        self.urls = list(self.keys)

    @contextmanager
    def cut(self, *, inside: bool) -> Iterator[None]:
        """Let a shard break off within this block, inside a sample or before its last."""
        path = sorted(self._folder.glob("*.tar"))[3]
        with tarfile.open(path) as archive:
            sample = archive.getmembers()[5 if inside else -1]
        whole = path.read_bytes()
        path.write_bytes(whole[: sample.offset_data + 2 if inside else sample.offset])
        try:
            yield
        finally:
            path.write_bytes(whole)


@exercise("10.1", title="Repair three pipelines", seconds=120)
def repair_three(*attempts: Attempt) -> Verdict:
    """Judge three functions that make a pipeline of shards, in their order in the notebook."""
    given = [getattr(attempt, "__name__", "") for attempt in attempts]
    own = all(name in (part, "<lambda>") for name, part in zip(given, PRINTED, strict=False))
    expect(
        own and len(given) == len(PRINTED),
        f"The check gets {', '.join(filter(None, given)) or 'no functions'}.",
        f"Hand over these functions, without parentheses: {', '.join(PRINTED)}.",
    )
    each = dict(zip(PRINTED, attempts, strict=True))
    bodies = {name: map(ast.unparse, statements(attempt) or []) for name, attempt in each.items()}
    as_printed = [name for name, body in bodies.items() if [*body] == [PRINTED[name]]]
    if as_printed == list(PRINTED):
        return todo("All are as printed. Change them, run their cells, then this one.")
    with room() as folder:
        shards = BrokenShards(folder)
        found = {name: _fault(name, attempt, shards) for name, attempt in each.items()}
    faults = {name: fault for name, fault in found.items() if fault}
    if not faults:
        return right(
            "Epochs in new orders, a buffer that holds files, and an error where samples lack."
        )
    name, *later = faults
    done = ", ".join(other for other in found if other not in faults)
    before = f"Right: {done}. " if done else ""
    note = ", still as printed" if name in as_printed else ""
    after = f" To repair after it: {', '.join(later)}." if later else ""
    fault = faults[name]
    return wrong(f"{before}`{name}`{note}: {fault.message}{after}", fault.next_step)


def _fault(name: str, attempt: Attempt, shards: BrokenShards) -> Verdict | None:
    """Return what is wrong with a pipeline, so that the others are judged too."""
    try:
        JUDGES[name](attempt, shards)
    except Refused as refused:
        return refused.verdict
    except TimeoutError:
        raise
    except Exception as error:  # whatever it is: the learner's pipeline raised it
        return wrong(f"it stops: {explain(error)}.", HINTS[name])
    return None


def _judge_epoch(attempt: Attempt, shards: BrokenShards) -> None:
    data = attempt(list(shards.urls))
    first, second = _keys(data), _keys(data)
    distinct = len(set(first))
    expect(
        len(first) <= 2 * COUNT,
        f"after {len(first):,} of {COUNT} samples it goes on. resampled draws shards with "
        "replacement, for ever: there is no epoch, and with_epoch only says when to stop.",
        HINTS["epoch"],
    )
    expect(
        distinct == COUNT or len(first) < COUNT,
        f"{len(first)} samples are served, {distinct} of {COUNT} are distinct. with_epoch ends "
        "the draws; they are still draws with replacement.",
        HINTS["epoch"],
    )
    _expect_each_once(first, shards)
    expect(
        second,
        "a second epoch is empty: this can be read only once, as a generator can.",
        "Return the pipeline itself, which begins anew in every epoch.",
    )
    _expect_each_once(second, shards)
    expect(
        first != second,
        "two epochs have the same order. shardshuffle alone draws a seed when the pipeline is "
        "made, and uses it again in every epoch.",
        "detshuffle=True beside shardshuffle=100 counts the epochs.",
    )
    orders = {tuple(_keys(data)) for _ in range(ORDERS - 2)} | {tuple(first), tuple(second)}
    expect(
        len(orders) == ORDERS,
        "a later epoch has the order of an earlier one: a few orders take turns.",
        "detshuffle=True beside shardshuffle=100 draws one for each epoch.",
    )


def _judge_mixed(attempt: Attempt, shards: BrokenShards) -> None:
    decoded: list[Any] = []
    served: list[str] = []
    waiting = 0  # decoded samples in the pipeline, at most
    lost = 0  # samples that are served as they were before

    def decode(sample: Any) -> Any:
        decoded.append(sample)
        return {**sample, "decoded": True} if isinstance(sample, dict) else sample

    for sample in islice(attempt(list(shards.urls), decode), 3 * COUNT):
        served.append(_key(sample))
        lost += isinstance(sample, dict) and sample.get("decoded") is not True
        waiting = max(waiting, len(decoded) - len(served))
    _expect_each_once(served, shards)
    expect(
        len(decoded) == COUNT,
        f"decode is called {len(decoded)} times for {COUNT} samples.",
        "Keep one .map(decode), as the last stage.",
    )
    expect(
        all(isinstance(sample, dict) for sample in decoded) and not lost,
        "decode gets something else than a sample, or what it returns is not served.",
        "Hand decode over as it is: .map(decode) calls it with each sample, and goes on with what "
        "it returns.",
    )
    expect(
        waiting <= AHEAD,
        f"{waiting} decoded samples wait in the buffer at one time: it holds images, not files, "
        "and an image takes many times the bytes of its file.",
        HINTS["mixed"],
    )
    spans = [np.ptp([served.index(key) for key in keys]) for keys in shards.keys.values()]
    expect(
        np.median(spans) > 2 * COUNT / SHARDS,
        "the samples of a shard come one behind the other: only neighbours are mixed.",
        HINTS["mixed"],
    )

    expect(
        _tells_of(attempt, shards),
        "decode fails, and there is no error: the samples are left out, as if all were well.",
        "Leave handler= out of .map: by default an error of decode comes through.",
    )


def _tells_of(attempt: Attempt, shards: BrokenShards) -> bool:
    """Tell whether an error of decode comes through."""

    def broken(_: Any) -> Any:
        raise ValueError("this image is broken")

    try:
        list(islice(attempt(list(shards.urls), broken), COUNT))
    except Exception:  # it may be wrapped in another
        return True
    return False


def _judge_complete(attempt: Attempt, shards: BrokenShards) -> None:
    data = attempt(list(shards.urls), COUNT)
    _expect_each_once(_keys(data), shards)
    for where, inside, again, later in CUTS:
        if again and iter(data) is data:
            continue  # a generator has one epoch
        try:
            seen = _seen(
                (lambda *_: data) if again else attempt, shards, inside=inside, later=later
            )
        except Exception:
            continue  # whatever is raised, somebody is told
        expect(
            (again or later) and seen == COUNT,  # all had been read before it broke off
            f"a shard breaks off {where}, and there is no error: {seen} of {COUNT} samples "
            "are seen, as if all were well.",
            HINTS["complete"],
        )


def _seen(attempt: Attempt, shards: BrokenShards, *, inside: bool, later: bool) -> int:
    """Count the samples that come while a shard is cut, or once it is cut behind the first."""
    keys = set[str]()
    with ExitStack() as cut:
        if not later:
            cut.enter_context(shards.cut(inside=inside))
        for item in islice(attempt(list(shards.urls), COUNT), 3 * COUNT):
            if later and not keys:
                cut.enter_context(shards.cut(inside=inside))
            keys.add(_key(item))
    return len(keys.intersection(chain(*shards.keys.values())))  # None is no sample


JUDGES = {"epoch": _judge_epoch, "mixed": _judge_mixed, "complete": _judge_complete}


def _keys(data: Iterable[Any]) -> list[str]:
    """Return the keys of no more than three epochs: a pipeline may have no end."""
    return [_key(item) for item in islice(data, 3 * COUNT)]


def _key(item: Any) -> str:
    return str(item["__key__"] if isinstance(item, dict) else np.ravel(item)[0])


def _expect_each_once(found: Sequence[str], shards: BrokenShards) -> None:
    known = set(chain(*shards.keys.values()))
    expect(
        sorted(found) == sorted(known),
        f"{len(found)} samples are served, {len(known & set(found))} of the {COUNT} there are.",
        "Every sample itself, and once: drop no batch, and draw nothing twice.",
    )
