"""Exercise 10.1: repair three WebDataset pipelines."""

import ast
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from course_utils.exercises.judging.chance import expect_mixed, expect_no_seed, stay_together
from course_utils.exercises.judging.compare import Slip, compare, differs
from course_utils.exercises.nb10.hidden import (
    CUTS,
    ENDLESS,
    ERROR,
    ONCE,
    HiddenShards,
    key_of,
    shard_folder,
)
from course_utils.teaching.exercise import Verdict, exercise, right, todo
from course_utils.teaching.notebook import statements

Pipeline = Callable[..., Any]

LARGE = {"count": 15, "samples": 80}  # 1,215 samples, more than a buffer of 1,000 can hold
PASSES = 9  # passes whose orders are compared, so that a cycle of 8 shows
WAITING = 64  # decoded samples that may wait, for example in a batch

PRINTED = {
    "epoch": "return wds.WebDataset(urls, resampled=True, shardshuffle=False).to_tuple('__key__')",
    "mixed": "return wds.WebDataset(urls, shardshuffle=100).map(decode).shuffle(1000)",
    "complete": "return wds.WebDataset(urls, shardshuffle=False, handler=wds.warn_and_continue)",
}
INSIDE, *_ = CUTS
FIRST, SECOND, WORKERS = "the first pass", "a second pass", "with two workers"
NEW, AHEAD = "another order in the second pass", "all samples are read before the first is served"
DECODED, WAIT = "samples that decode gets", "decoded samples that wait"
LATER, FAILS = "all shards are cut off once the loop has its first sample", "decode raises an error"
_BOTH = {FIRST: ONCE, NEW: True, WORKERS: ONCE, INSIDE: ERROR, AHEAD: False}
WANTED: dict[str, dict[str, Any]] = {
    "epoch": {**_BOTH, SECOND: ONCE, "items": "keys"},
    "mixed": {
        **_BOTH,
        DECODED: 1215,
        "decoded samples in the loop": 1215,
        WAIT: f"at most {WAITING}",
        "samples of a shard are far apart": True,
        FAILS: ERROR,
    },
    "complete": {FIRST: ONCE, **dict.fromkeys((*CUTS, LATER), ERROR)},
}


SLIPS = (
    Slip(
        lambda case, got, _: (
            case == "epoch" and (got[FIRST] == ENDLESS or "different" in got[FIRST])
        ),
        "`epoch` serves {got[the first pass]}. resampled=True draws shards with replacement, "
        "forever. with_epoch ends the draws, but they are still draws with replacement.",
        "Use WebDataset(urls, shardshuffle=100, detshuffle=True).",
    ),
    Slip(
        lambda case, got, _: case == "epoch" and got[FIRST] == ONCE and not got[NEW],
        "Two passes over `epoch` have the same order, or the second is empty. A generator can be "
        "read only once. Even shardshuffle draws one seed when you create the pipeline, and uses "
        "it in every epoch.",
        "Return a pipeline with detshuffle=True, which counts the epochs.",
    ),
    Slip(
        lambda *seen: differs(WAIT)(*seen) and not differs(FIRST, DECODED)(*seen),
        "{got[decoded samples that wait]} decoded samples of `mixed` wait at the same time. They "
        "are images instead of files, and an image needs many times the memory.",
        "Call .shuffle(1000) before .map(decode), and return the pipeline, not a list.",
    ),
    Slip(
        lambda case, *seen: case == "complete" and differs(*CUTS)(case, *seen),
        "A shard is cut off, but `complete` raises no error. A file that ends between two samples "
        "or two files is a valid tar file.",
        "In a loop, compare the fields of each sample with those of the first one, yield the "
        "sample and count it. Raise an error after the loop if the count is wrong.",
    ),
)


@exercise("10.1", title="Repair three pipelines", seconds=90)
def repair_three(epoch: Pipeline, mixed: Pipeline, complete: Pipeline) -> Verdict:
    """Check three functions that create pipelines."""
    parts = dict(zip(PRINTED, (epoch, mixed, complete), strict=True))
    bodies = ["\n".join(map(ast.unparse, statements(part) or [])) for part in parts.values()]
    if bodies == [*PRINTED.values()]:
        return todo("All three are as printed. Change them, run their cells, then this one.")
    with shard_folder() as folder:
        small, large = HiddenShards(folder, 40), HiddenShards(folder, **LARGE)
        many = HiddenShards(folder, 40, samples=12)  # more samples than a small buffer holds
        compare(
            lambda name: OBSERVE[name](parts[name], small, many if name == "epoch" else large),
            WANTED.__getitem__,
            PRINTED,
            *SLIPS,
            show="`{}`".format,
        )
        for shards, passes in (small, PASSES), (many, 2):
            data = epoch(list(shards.urls))
            expect_mixed([shards.order(data) for _ in range(passes)], shards.urls)
        expect_no_seed(lambda: small.read(epoch(list(small.urls))))
    return right(
        "Every epoch has a new order, the buffer holds files, and missing samples raise an error."
    )


def _epoch(epoch: Pipeline, small: HiddenShards, large: HiddenShards) -> dict[str, Any]:
    data = epoch([*small.urls])
    first, second = small.read(data), small.read(data)
    with small.cut(INSIDE):
        damaged = small.outcome(lambda: data)
    return {
        FIRST: small.describe(first),
        SECOND: small.describe(second),
        "items": "samples" if any(isinstance(item, dict) for item in first) else "keys",
        NEW: [*map(key_of, first)] != [*map(key_of, second)],
        WORKERS: small.in_two_workers(epoch([*small.urls])),
        INSIDE: damaged,
        AHEAD: large.after_the_first(lambda: epoch([*large.urls])) == ONCE,
    }


def _mixed(mixed: Pipeline, _: HiddenShards, shards: HiddenShards) -> dict[str, Any]:
    decoded, served, waiting = list[Any](), list[Any](), 0

    def decode(sample: Any) -> Any:
        decoded.append(sample)
        return {**sample, "decoded": True} if isinstance(sample, dict) else sample

    def make(decode: Callable[[Any], Any] = lambda sample: sample) -> Any:
        return mixed([*shards.urls], decode)

    def broken(sample: Any) -> Any:
        return {**sample, "number": 1 / int(sample["__key__"])}  # the first one is 0

    for sample in islice(make(decode), shards.enough):
        served.append(sample)
        waiting = max(waiting, len(decoded) - len(served))
    keys, second = [*map(key_of, served)], [*map(key_of, shards.read(make()))]
    place = {key: position for position, key in enumerate(keys)}
    spans = [np.ptp([place.get(key, 0) for key in some]) for some in shards.keys.values()]
    with shards.cut(INSIDE):
        damaged = shards.outcome(make)
    return {
        FIRST: shards.describe(served),
        DECODED: sum(isinstance(sample, dict) for sample in decoded),
        "decoded samples in the loop": sum(
            isinstance(sample, dict) and sample.get("decoded") is True for sample in served
        ),
        WAIT: f"at most {WAITING}" if waiting <= WAITING else waiting,
        "samples of a shard are far apart": bool(np.median(spans) > 3 * LARGE["samples"]),
        NEW: len(second) > 1 and stay_together(keys, second) < 0.5,
        WORKERS: shards.in_two_workers(make()),
        FAILS: shards.outcome(lambda: make(broken)),
        INSIDE: damaged,
        AHEAD: shards.after_the_first(make) == ONCE,
    }


def _complete(complete: Pipeline, shards: HiddenShards, large: HiddenShards) -> dict[str, Any]:
    def make() -> Any:
        return complete([*shards.urls], len(shards.samples))

    found = {FIRST: shards.outcome(make)}
    for where in CUTS:
        with shards.cut(where):
            found[where] = shards.outcome(make)
    found[LATER] = large.after_the_first(lambda: complete([*large.urls], len(large.samples)))
    return found


OBSERVE = {"epoch": _epoch, "mixed": _mixed, "complete": _complete}
