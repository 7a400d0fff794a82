"""11.3: a loader that goes on exactly where a process that died had come to."""

import io
from collections.abc import Generator
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import Dataset

from course_exercises.nb11.problem import BATCH, OrderedLoader
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, refuse, right
from course_utils.teaching.notebook import explain
from keepfed.formatting import plural

SAMPLES, EPOCHS = 84, 3  # 11 batches in an epoch, the last of them half full
LARGE = 40_000  # samples; what grows with them is no position
ROOM = 4_000  # bytes of a position, with all that torch.save puts around it
LIVES = {  # how many batches each takes before it is killed
    "Killed before the first batch": [0],
    "Killed in the first epoch": [2],
    "Killed with the last batch of an epoch": [11],
    "Killed in the second epoch": [14],
    "Killed twice in an epoch": [2, 3],
    "Killed again before another batch": [2, 0],
    "Killed in two epochs": [9, 5],
}
Batches = list[list[int]]


class Numbers(Dataset[int]):
    """Sample n is the number n; it counts how many are read in this process."""

    def __init__(self, length: int = SAMPLES):
        self.numbers: list[int] = [*range(length)]
        self.read = 0

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> int:
        self.read += 1
        return self.numbers[index]


@exercise("11.3", title="Resume exactly", seconds=180)
def resume_exactly(loader_class: type[Any]) -> Verdict:
    """Judge a loader that is left and made anew: without workers, then with other workers."""
    expect_a_class(loader_class, "a loader", "makes one for each start")
    expect(
        issubclass(loader_class, OrderedLoader),
        f"{loader_class.__name__} is no OrderedLoader: the check cannot know its order.",
        "Write class ResumableLoader(OrderedLoader).",
    )
    _judge_epochs(loader_class)
    for where, lives in LIVES.items():
        loader = loader_class(Numbers())
        for taken in lives:
            dataset, state = Numbers(), _state_after(loader, taken)
            loader = _restarted(loader_class(dataset), state)
        dataset.read = 0
        _judge_rest(loader, sum(lives), where)
        _judge_reading(dataset, sum(lives))
    ended = loader_class(Numbers())
    taken = len(_epoch(ended))
    loader = _restarted(loader_class(Numbers()), _state_after(ended, 0))
    _judge_rest(loader, taken, "Killed between two epochs")
    left = loader_class(dataset := Numbers())
    _state_after(left, 2)
    expect(
        dataset.read <= 3 * BATCH,  # one batch may be there for the next step
        f"Left by `break` after two batches, the loader has read {dataset.read} samples for "
        f"{2 * BATCH}: all that it reads ahead has to fit in memory, and comes late.",
        "Yield each batch of self.load(...) before you ask for the next one.",
    )
    _judge_rest(left, 2, "Left by `break` after two batches, and looped over again")
    _judge_size(loader_class)
    _judge_kept(loader_class)
    state = _state_after(loader_class(Numbers(), 2), 3)
    loader = _restarted(loader_class(Numbers(), 1), state)
    expect(
        loader.num_workers == 1,
        "Restarted with one worker, the loader goes on with two: the state brought the number "
        "along.",
        "Keep no more in the state than the position.",
    )
    _judge_rest(loader, 3, "Killed with two workers, restarted with one")
    loader = _restarted(loader_class(dataset := Numbers(), 2), state)
    _judge_rest(loader, 3, "Killed with two workers, restarted with two")
    expect(
        dataset.read == 0,
        "Made with two workers, the loader reads the samples in the main process all the same.",
        "Take the batches of self.load(...), which knows how many workers there are.",
    )
    return right(
        "Wherever it is killed, the rest of the epoch comes once and in order, then the next one; "
        "with any number of workers, and nothing is read in vain."
    )


def _expected() -> Batches:
    known = OrderedLoader(Numbers())
    return [*chain.from_iterable(map(known.batches, range(EPOCHS)))]


def _served(loader: Any) -> Generator[list[int], None, None]:
    """Yield batches epoch after epoch; an epoch may be empty, two in a row may not."""
    empty = 0
    while empty < 2:
        empty += 1
        for batch in loader:
            empty = 0
            yield _numbers(batch)


def _numbers(batch: Any) -> list[int]:
    expect(
        isinstance(batch, torch.Tensor),
        f"The loop gets a {type(batch).__name__} instead of a batch.",
        "Yield the batches of self.load(...) as they are.",
    )
    return [*map(int, batch)]


def _judge_epochs(loader_class: type[Any]) -> None:
    """Judge what comes if nobody is killed."""
    loader, expected = loader_class(Numbers()), _expected()
    size = len(expected) // EPOCHS
    first, second = _epoch(loader), _epoch(loader)
    expect(
        first == expected[:size],
        f"The first epoch of a new loader serves {plural(len(first), 'batch')}, not the "
        f"{size} of self.batches(0).",
        "A new loader is in epoch 0, and has taken nothing; the last batch may be half full.",
    )
    expect(
        second != first,
        "The second epoch has the order of the first: the epoch is never counted.",
        "After the loop over the last batch, add 1 to the epoch.",
    )
    expect(
        second,
        "The second epoch is empty: what the first one took still counts as taken.",
        "After the last batch, begin to count at 0 again.",
    )
    expect(
        second == expected[size : 2 * size],
        "The second epoch of a loader that nobody killed is not that of self.batches(1).",
        "After the last batch the epoch is one more, and nothing of it is taken yet.",
    )
    expect(
        _epoch(loader_class(Numbers())) == first,
        "A second loader goes on where the first one is, with no state at all: they share what "
        "stands in the class or outside of it. Another process would not.",
        "Keep the position in self.",
    )


def _epoch(loader: Any) -> Batches:
    return [_numbers(batch) for batch in islice(loader, len(_expected()))]


def _state_after(loader: Any, taken: int) -> bytes:
    """Return what is saved in the loop that has `taken` batches, or before it, as in a file."""
    served = _served(loader)
    for _ in range(taken):
        next(served, None)
    state, file = loader.state_dict(), io.BytesIO()
    expect(
        isinstance(state, dict),
        f"state_dict returns a {type(state).__name__}.",
        "Return a dict with all that the position consists of.",
    )
    try:
        torch.save(state, file)
    except Exception as error:  # each kind of object has its own
        refuse(
            f"The state cannot be saved: {explain(error)}.",
            "Keep numbers in it, and no loader, generator or lock.",
        )
    served.close()
    return file.getvalue()


def _restarted(loader: Any, saved: bytes) -> Any:
    """Return a new loader that was told the position."""
    return _restarted_from(loader, torch.load(io.BytesIO(saved), weights_only=False))


def _restarted_from(loader: Any, state: dict[str, Any]) -> Any:
    loader.load_state_dict(state)
    return loader


def _judge_rest(loader: Any, taken: int, where: str) -> None:
    """Judge what a restarted loader serves after `taken` batches."""
    expected = _expected()
    rest, size = expected[taken:], len(expected) // EPOCHS
    epoch, before = divmod(taken, size)
    served = _served(loader)
    found = [batch for _, batch in zip(rest, served, strict=False)]
    served.close()
    if found == rest:
        return
    first, left = found[0] if found else None, size - before
    expect(
        not taken or first != expected[taken - 1],
        f"{where}: the batch that the loop had comes again. Either the restart goes back by one, "
        "or the batch is not in the state: what stands behind `yield` runs only when the loop asks "
        "for the next batch.",
        "Count whole batches, the half one at the end too, each before you yield it.",
    )
    expect(
        before or not epoch or first != expected[taken - size],
        f"{where}: the epoch that is over begins again.",
        "Let the state say that all of its batches are taken, or that the next epoch has begun.",
    )
    expect(
        not epoch or first not in expected[:size],
        f"{where}: the restart serves the order of epoch 0.",
        "Save the epoch too, and hand it to self.batches.",
    )
    expect(
        not before or first != expected[size * epoch],
        f"{where}: the epoch begins again, and {plural(before, 'batch')} of it come twice.",
        "Load only what is left of the list of batches: it can be cut.",
    )
    expect(
        first not in rest[left:],
        f"{where}: the restart begins the next epoch, and the rest of this one never comes.",
        "Save how many batches of the epoch the loop has taken.",
    )
    expect(
        first not in rest[1:6],  # two workers are ahead by four
        f"{where}: the next {plural(rest.index(first) if first in rest else 0, 'batch')} never "
        "came. Batches are counted where they are asked for, or loaded; the workers are ahead of "
        "the loop, and what they hold is lost.",
        "Count a batch where __iter__ yields it to the loop.",
    )
    expect(
        found[:left] != rest[:left],
        f"{where}: the rest of the epoch is right, and the epoch after it is not.",
        "After the last batch of an epoch, add 1 to the epoch and begin to count at 0.",
    )
    refuse(
        f"{where}: the restart does not go on with the next batch of the order.",
        "Save the epoch and how many of its batches the loop has; go on behind them.",
    )


def _judge_reading(dataset: Numbers, taken: int) -> None:
    """Judge whether a restart without workers reads what it does not serve."""
    served = sum(map(len, _expected()[taken:]))
    expect(
        dataset.read <= served,
        f"The restart serves {served} samples and reads {dataset.read}: it loads what was "
        "taken before, and throws it away. At the end of an epoch that takes as long as the epoch.",
        "Cut the list of batches before you load it, not what the loader gives.",
    )


def _judge_size(loader_class: type[Any]) -> None:
    """Judge whether the state is a position, or a part of the data or of their order."""
    taken = 1_020  # of 5,000: 1,020 / 5,000 * 5,000 is a little less
    state = _state_after(loader_class(Numbers(LARGE)), taken)
    expect(
        len(state) < ROOM,
        f"For {LARGE:,} samples the state has {len(state):,} bytes: there is more in it than a "
        "position, such as a list of samples or the loader itself.",
        "The order can be computed again; two numbers are enough.",
    )
    large = _restarted(loader_class(Numbers(LARGE)), state)
    expect(
        next(_served(large), None) == large.batches(0)[taken],
        f"Killed with batch {taken} of {len(large.batches(0)):,}, the restart does not go on with "
        "the next one. In an epoch of 11 batches it does: is the position rounded, or packed with "
        "another number?",
        "Save the number of batches that were taken, as it is.",
    )


def _judge_kept(loader_class: type[Any]) -> None:
    """Judge whether a state stays as it is, where it was made and where it is loaded."""
    loader = loader_class(Numbers())
    served = _served(loader)
    next(served, None)
    state = loader.state_dict()
    kept = repr(state)  # there may be tensors in it
    next(served, None)
    expect(
        repr(state) == kept,
        "A state that was saved in the loop changes when the loop goes on: state_dict returns what "
        "the loader itself counts in, and a checkpoint that is written later has another position.",
        "Return a new dict in each call of state_dict.",
    )
    next(_served(_restarted_from(loader_class(Numbers()), state)), None)
    expect(
        repr(state) == kept,
        "A loader that was given a state goes on counting in it: who begins again from the same "
        "state begins elsewhere.",
        "Take the numbers out of the state, and leave it as it is.",
    )
