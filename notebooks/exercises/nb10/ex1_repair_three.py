"""10.1: three pipelines of WebDataset that run, and do something else than they say."""

import ast
import inspect
import tarfile
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from course_utils.loading.shards import url_of
from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo, wrong
from course_utils.teaching.notebook import explain
from notebooks.exercises.nb10.hidden import room
from notebooks.stories.shard_pipelines import PRINTED
from notebooks.stories.snippets import numbered_shards

COUNT, PER_SHARD = 135, 11  # hidden samples; no whole number of batches, nor of shards
AHEAD = 4  # samples that may wait decoded

Attempt = Callable[..., Any]

HINTS = {
    "epoch": "An epoch needs no resampled: WebDataset(urls, shardshuffle=100, detshuffle=True).",
    "mixed": "The order of two stages: first .shuffle(1000), then .map(decode).",
    "complete": "Count: yield each sample in a loop, and raise an error behind the loop if they "
    "were not `count`.",
}


class Shards:
    """Hidden shards: images of many sizes, whose labels count from 0."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.urls = numbered_shards(folder / "shards", COUNT, PER_SHARD)
        self.keys = [f"{number:06d}" for number in range(COUNT)]

    def with_a_cut_one(self, *, inside: bool) -> list[str]:
        """Return the URLs with one shard that breaks off, inside an image or between two."""
        path = sorted((self.folder / "shards").glob("*.tar"))[3]
        with tarfile.open(path) as archive:
            fields = archive.getmembers()
        first, second = fields[PER_SHARD // 2 * 2 :][:2]  # of a sample: label and image
        cut = self.folder / "cut.tar"
        cut.write_bytes(path.read_bytes()[: second.offset_data + 600 if inside else first.offset])
        return [*self.urls[:3], url_of(cut), *self.urls[4:]]


@exercise("10.1", title="Repair three pipelines", seconds=120)
def repair_three(*attempts: Attempt) -> Verdict:
    """Judge three functions that make a pipeline of shards, in their order in the notebook."""
    names = [one.__name__ for one in PRINTED]
    given = [getattr(attempt, "__name__", "") for attempt in attempts]
    expect(
        given == names,
        f"The check gets {', '.join(filter(None, given)) or 'no functions'}.",
        f"Hand over these functions, without parentheses: {', '.join(names)}.",
    )
    pairs = zip(attempts, PRINTED, strict=True)
    as_printed = [one.__name__ for attempt, one in pairs if _same(attempt, one)]
    if len(as_printed) == len(names):
        return todo("All are as printed. Change them, run their cells, then this one.")
    with room() as folder:
        shards = Shards(folder)
        each = zip(names, attempts, JUDGES, strict=True)
        found = {name: _fault(attempt, judge, shards) for name, attempt, judge in each}
    faults = {name: fault for name, fault in found.items() if fault}
    if not faults:
        return right(
            "Epochs in new orders, a buffer that holds files, and an error where samples lack."
        )
    name, *later = faults
    done = [other for other in names if other not in faults]
    before = f"Right: {', '.join(done)}. " if done else ""
    note = ", still as printed" if name in as_printed else ""
    after = f" To repair after it: {', '.join(later)}." if later else ""
    misconception, next_step = faults[name]
    return wrong(f"{before}`{name}`{note}: {misconception}{after}", next_step)


def _same(attempt: Attempt, printed: Attempt) -> bool:
    """Tell whether two functions have the same statements, whatever their types and docstrings."""
    try:
        return _statements(attempt) == _statements(printed)
    except (OSError, TypeError, SyntaxError):
        return False  # without a source: somebody wrote it in another way


def _statements(function: Attempt) -> list[str]:
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    body = definition.body if isinstance(definition, ast.FunctionDef) else []
    return [
        ast.dump(line)
        for line in body
        if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
    ]


class _Fault(Exception):
    """Ends the judging of one pipeline; the others are still judged."""


def _want(holds: object, misconception: str, next_step: str) -> None:
    if not holds:
        raise _Fault(misconception, next_step)


def _fault(
    attempt: Attempt, judge: Callable[[Attempt, Shards], None], shards: Shards
) -> tuple[str, str] | None:
    """Return what is wrong with a pipeline, and what to do next."""
    try:
        judge(attempt, shards)
    except _Fault as fault:
        return fault.args[0], fault.args[1]
    except TimeoutError:
        raise
    except Exception as error:  # whatever it is: the learner's pipeline raised it
        return f"it stops: {explain(error)}.", HINTS[attempt.__name__]
    return None


def _judge_epoch(attempt: Attempt, shards: Shards) -> None:
    data = attempt(shards.urls)
    first, second = ([_key(item) for item in _some(data)] for _ in range(2))
    distinct = len(set(first))
    _want(
        len(first) <= 2 * COUNT,
        f"after {len(first):,} of {COUNT} samples there is no end. resampled draws shards with "
        "replacement, for ever: there is no epoch.",
        HINTS["epoch"],
    )
    _want(
        distinct == COUNT or len(first) < COUNT,
        f"{len(first)} samples are served, {distinct} of {COUNT} are distinct. with_epoch ends "
        "the draws; they are still draws with replacement.",
        HINTS["epoch"],
    )
    _want_each_once(first, shards.keys)
    _want(
        second,
        "a second epoch is empty: this can be read only once, as a generator can.",
        "Return the pipeline itself, which begins anew in every epoch.",
    )
    _want_each_once(second, shards.keys)
    _want(
        first != second,
        "two epochs have the same order. shardshuffle alone draws a seed when the pipeline is "
        "made, and uses it again in every epoch.",
        "detshuffle=True beside shardshuffle=100 counts the epochs.",
    )


def _judge_mixed(attempt: Attempt, shards: Shards) -> None:
    decoded: list[str] = []
    served: list[str] = []
    waiting = 0  # decoded samples in the pipeline, at most

    def decode(sample: Any) -> Any:
        decoded.append(_key(sample))
        return sample

    for sample in _some(attempt(shards.urls, decode)):
        served.append(_key(sample))
        waiting = max(waiting, len(decoded) - len(served))
    _want(
        waiting <= AHEAD,
        f"{waiting} decoded samples wait in the buffer at one time: it holds images, not files, "
        "and an image takes many times the bytes of its file.",
        HINTS["mixed"],
    )
    _want_each_once(served, shards.keys)
    _want(
        len(decoded) == COUNT,
        "not every sample goes through decode.",
        "Keep .map(decode), as the last stage.",
    )
    places = [served.index(key) for key in shards.keys]
    spans = [np.ptp(shard) for shard in np.split(places, range(PER_SHARD, COUNT, PER_SHARD))]
    _want(
        np.median(spans) > 2 * PER_SHARD,
        "the samples of a shard come one behind the other: only neighbours are mixed.",
        HINTS["mixed"],
    )


def _judge_complete(attempt: Attempt, shards: Shards) -> None:
    _want_each_once([_key(item) for item in _some(attempt(shards.urls, COUNT))], shards.keys)
    for where, inside in ("inside a sample", True), ("between two samples", False):
        urls = shards.with_a_cut_one(inside=inside)
        try:
            seen = {_key(item) for item in _some(attempt(urls, COUNT))}
        except Exception:
            continue  # whatever is raised, somebody is told
        _want(
            False,
            f"a shard breaks off {where}, and there is no error: {len(seen)} of {COUNT} samples "
            "are seen, as if all were well.",
            HINTS["complete"],
        )


JUDGES = (_judge_epoch, _judge_mixed, _judge_complete)


def _some(data: Iterable[Any]) -> Iterable[Any]:
    """Take no more than three epochs: a pipeline may have no end."""
    return islice(data, 3 * COUNT)


def _key(item: Any) -> str:
    return str(item["__key__"] if isinstance(item, dict) else np.ravel(item)[0])


def _want_each_once(found: Sequence[str], wanted: Sequence[str]) -> None:
    _want(
        sorted(found) == wanted,
        f"{len(found)} samples are served, {len(set(found))} distinct; there are {len(wanted)}.",
        "Every sample once: drop no batch, and draw nothing twice.",
    )
