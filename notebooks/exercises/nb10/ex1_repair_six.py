"""10.1: six pipelines of WebDataset, each with something to repair."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import webdataset as wds

from course_utils.loading.shards import url_of
from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo, wrong
from course_utils.teaching.notebook import explain
from notebooks.exercises.nb10.hidden import room
from notebooks.exercises.nb10.problem import PRINTED
from notebooks.stories.snippets import numbered_shards

COUNT, PER_SHARD = 135, 11  # hidden samples; no whole number of batches, nor of shards

Attempt = Callable[..., Any]


class Shards:
    """Hidden shards: images of many sizes, whose labels count from 0."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.urls = numbered_shards(folder / "shards", COUNT, PER_SHARD)
        self.keys = [f"{number:06d}" for number in range(COUNT)]

    def with_a_cut_one(self) -> list[str]:
        """Return the URLs with one shard that breaks off inside an image."""
        whole = sorted((self.folder / "shards").glob("*.tar"))[3].read_bytes()
        cut = self.folder / "cut.tar"
        cut.write_bytes(whole[: whole.index(b"JFIF", len(whole) // 2) + 100])
        return [*self.urls[:3], url_of(cut), *self.urls[4:]]


@exercise("10.1", title="Repair six snippets", seconds=120)
def repair_six(*attempts: Callable[..., Any]) -> Verdict:
    """Judge six functions that make a pipeline of shards, in the order in which they are given."""
    names = [printed.__name__ for printed in PRINTED]
    given = [getattr(attempt, "__name__", "") for attempt in attempts]
    expect(
        given == names,
        f"The check gets {', '.join(filter(None, given)) or 'no functions'}.",
        f"Hand over the six functions, without parentheses: {', '.join(names)}.",
    )
    as_printed = [
        printed.__name__
        for attempt, printed in zip(attempts, PRINTED, strict=True)
        if same(attempt, printed)
    ]
    if len(as_printed) == len(names):
        return todo("All six are as printed. Change them, run their cells, then this one.")
    with room() as folder:
        shards = Shards(folder)
        six = zip(names, attempts, JUDGES, strict=True)
        found = {name: _fault(attempt, judge, shards) for name, attempt, judge in six}
    faults = {name: fault for name, fault in found.items() if fault}
    if faults:
        name, *later = faults
        done = [other for other in names if other not in faults]
        before = f"Right: {', '.join(done)}. " if done else ""
        note = ", still as printed" if name in as_printed else ""
        after = f" To repair after it: {', '.join(later)}." if later else ""
        misconception, next_step = faults[name]
        return wrong(f"{before}`{name}`{note}: {misconception}{after}", next_step)
    return right(
        "Six pipelines that serve every sample once, in batches that a model takes, and say so "
        "when a shard is broken."
    )


def same(attempt: Callable[..., Any], printed: Callable[..., Any]) -> bool:
    """Tell whether two functions have the same statements, whatever their types and docstrings."""
    try:
        return _statements(attempt) == _statements(printed)
    except (OSError, TypeError, SyntaxError):
        return False  # without a source: somebody wrote it in another way


def _statements(function: Callable[..., Any]) -> list[str]:
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    body = definition.body if isinstance(definition, ast.FunctionDef) else []
    return [
        ast.dump(line)
        for line in body
        if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
    ]


def _fault(
    attempt: Attempt, judge: Callable[[Attempt, Shards], None], shards: Shards
) -> tuple[str, str] | None:
    """Return what is wrong with a snippet, and what to do next."""
    try:
        judge(attempt, shards)
    except Fault as fault:
        return fault.args[0], fault.args[1]
    except TimeoutError:
        raise
    except Exception as error:  # whatever it is: the learner's pipeline raised it
        return f"it stops: {explain(error)}.", HINTS[attempt.__name__]
    return None


class Fault(Exception):
    """Ends the judging of one snippet; the others are still judged."""


def _expect(holds: object, misconception: str, next_step: str) -> None:
    if not holds:
        raise Fault(misconception, next_step)


HINTS = {
    "labels": "Batches that are made already need DataLoader(data, batch_size=None).",
    "images": "ToTensor takes PIL images: decode('pil'). And images of one batch have one size: "
    "put T.Resize((32, 32)) before it, with T.Compose.",
    "epoch": "An epoch needs no resampled: WebDataset(urls, shardshuffle=100, detshuffle=True).",
    "mixed": "Swap two stages: first .shuffle(1000), then .map(decode).",
    "cached": "webdataset makes no folder: os.makedirs(folder, exist_ok=True) comes first.",
    "complete": "Leave the handler out: then errors are raised.",
}


def _judge_labels(attempt: Attempt, shards: Shards) -> None:
    found: list[int] = []
    for batch in _some(attempt(shards.urls), shards):
        numbers = torch.as_tensor(_only(batch))
        _expect(
            numbers.ndim == 1,
            f"a batch of labels has the shape {tuple(numbers.shape)}. A DataLoader makes batches "
            "of what it gets, and it gets batches.",
            HINTS["labels"],
        )
        found += numbers.tolist()
    _expect_each_once(found, range(len(shards.keys)))


def _only(batch: Any) -> Any:
    return batch[0] if isinstance(batch, list | tuple) and len(batch) == 1 else batch


def _judge_images(attempt: Attempt, shards: Shards) -> None:
    found: list[int] = []
    for pixels, numbers in _some(attempt(shards.urls), shards):
        _expect(
            torch.is_tensor(pixels),
            f"a batch of images is a {type(pixels).__name__}, not a tensor.",
            "Let ToTensor stay: PIL images of one size go in, a tensor comes out.",
        )
        _expect(
            pixels.ndim == 4 and pixels.shape[1] == 3 and pixels.is_floating_point(),
            f"a batch of images is {pixels.dtype} of shape {tuple(pixels.shape)}; wanted is float "
            "of (images, 3, height, width).",
            HINTS["images"],
        )
        found += torch.as_tensor(numbers).tolist()
    _expect_each_once(found, range(len(shards.keys)))


def _judge_epoch(attempt: Attempt, shards: Shards) -> None:
    count = len(shards.keys)
    data = attempt(shards.urls)
    first, second = ([_key(item) for item in _some(data, shards)] for _ in range(2))
    distinct = len(set(first))
    _expect(
        len(first) <= 2 * count,
        f"after {len(first):,} of {count} samples there is no end. resampled draws shards with "
        "replacement, for ever: there is no epoch.",
        HINTS["epoch"],
    )
    _expect(
        distinct == count or len(first) < count,
        f"{len(first)} samples are served, {distinct} of {count} are distinct. with_epoch ends "
        "the draws; they are still draws with replacement.",
        HINTS["epoch"],
    )
    _expect_each_once(first, shards.keys)
    _expect(
        first != second,
        "two epochs have the same order. shardshuffle alone draws a seed when the pipeline is "
        "made, and uses it again in every epoch.",
        "detshuffle=True beside shardshuffle=100 counts the epochs.",
    )


def _judge_mixed(attempt: Attempt, shards: Shards) -> None:
    decoded: list[str] = []

    def decode(sample: Any) -> Any:
        decoded.append(_key(sample))
        return sample

    served = iter(attempt(shards.urls, decode))
    first = _key(next(served))
    held = len(decoded)
    _expect(
        held <= 16,
        f"{held} samples are decoded before the first is served: the buffer holds images, not "
        "files, and an image takes many times the bytes of its file.",
        HINTS["mixed"],
    )
    _expect_each_once([first, *map(_key, islice(served, 2 * len(shards.keys)))], shards.keys)
    expected = len(decoded) == len(shards.keys)
    _expect(
        expected, "not every sample goes through decode.", "Keep .map(decode), as the last stage."
    )
    alone = [_key(item) for item in _some(attempt(shards.urls[:1], decode), shards)]
    _expect(
        alone != sorted(alone),
        "the samples of a shard come in their order on disk: nothing mixes them any more.",
        HINTS["mixed"],
    )


def _judge_cached(attempt: Attempt, shards: Shards) -> None:
    folder = shards.folder / "not" / "there"
    data = attempt(shards.urls, str(folder))
    caches = [stage for stage in data.pipeline if isinstance(stage, wds.cache.FileCache)]
    _expect(
        caches and Path(caches[0].cache_dir) == folder,
        "nothing is kept in that folder.",
        "Keep cache_dir=folder, and make the folder first.",
    )
    _expect(
        caches[0].cleaner is not None,
        "the folder may grow without end: cache_size is -1, and then nothing is ever removed.",
        "Say how many bytes it may hold: cache_size=10**10.",
    )
    _expect_each_once([_key(item) for item in _some(data, shards)], shards.keys)


def _judge_complete(attempt: Attempt, shards: Shards) -> None:
    _expect_each_once([_key(item) for item in _some(attempt(shards.urls), shards)], shards.keys)
    try:
        served = len(list(_some(attempt(shards.with_a_cut_one()), shards)))
    except Exception:
        return  # whatever is raised, somebody is told
    _expect(
        False,
        f"a shard breaks off, and {served} of {len(shards.keys)} samples are served as if all were "
        "well: the epoch is shorter, and nobody is told.",
        HINTS["complete"],
    )


JUDGES: tuple[Callable[[Attempt, Shards], None], ...] = (
    _judge_labels,
    _judge_images,
    _judge_epoch,
    _judge_mixed,
    _judge_cached,
    _judge_complete,
)


def _some(data: Iterable[Any], shards: Shards) -> Iterable[Any]:
    """Take no more than three epochs: a pipeline may have no end."""
    return islice(data, 3 * len(shards.keys))


def _key(item: Any) -> str:
    return str(item["__key__"] if isinstance(item, dict) else _only(item))


def _expect_each_once(found: Sequence[Any], wanted: Iterable[Any]) -> None:
    wanted = list(wanted)
    _expect(
        sorted(found) == wanted,
        f"{len(found)} samples are served, {len(set(found))} distinct; there are {len(wanted)}.",
        "Every sample once: drop no batch, and draw nothing twice.",
    )
