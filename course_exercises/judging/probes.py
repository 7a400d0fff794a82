"""Probes that many exercises share: each finds one kind of mistake and has one message for it.

A judge calls the probes that apply to its exercise. They try an answer where a quick test does not
look: in a second pass, in real workers, with large numbers, and in the process that called it.
"""

import gc
import os
import pickle
import random
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np
import torch

from course_exercises.judging.chance import random_state, stay_together
from course_exercises.judging.compare import short
from course_utils.teaching.exercise import expect, refuse

Item = TypeVar("Item", bound=Hashable)

# where integers and floats of each width wrap around, or stop counting in ones
EDGES = (0, 1, 127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536, 2**24, 2**24 + 1, 2**31, 2**32)

# other sources of a rank: an answer that reads one of them ignores the rank it was given
_OTHER_RANKS: Mapping[str, Mapping[str, str]] = {
    "Slurm's variables": {"SLURM_PROCID": "5", "SLURM_LOCALID": "5", "SLURM_NTASKS": "8"},
    "Open MPI's variables": {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"},
    "MPI's variables": {"PMI_RANK": "5", "PMI_SIZE": "8"},
}
# variables that libraries set when they are first used
_LIBRARIES = ("TORCH", "PYTORCH", "CUDA", "KMP_", "KINETO")
_TORCHRUN = {"RANK": "5", "LOCAL_RANK": "5", "WORLD_SIZE": "8"}


@contextmanager
def process_unchanged(*given: Any) -> Iterator[None]:
    """Refuse an answer that changes its arguments, a random generator or another global setting.

    Args:
        given: The arguments of the answer. They are compared before and after.
    """
    before, arguments = _state(), [_frozen(one) for one in given]
    directory, variables = os.getcwd(), dict(os.environ)
    try:
        yield
        after = _state()
    finally:
        os.chdir(directory)
        now = {key: os.environ.get(key) for key in {*os.environ, *variables}}
        changed = {key for key in now if now[key] != variables.get(key)}
        changed = {key for key in changed if not key.startswith(_LIBRARIES)}
        for key in changed:
            os.environ.pop(key, None)
            if key in variables:
                os.environ[key] = variables[key]
    for number, (one, then) in enumerate(zip(given, arguments, strict=True), 1):
        expect(
            then is None or _frozen(one) == then,
            f"Your answer changes its argument number {number}. The caller keeps this object, so "
            "the next epoch starts from the changed values.",
            "Work on a copy: x.clone(), x.copy() or list(x).",
        )
    for setting, value in before.items():
        expect(
            after[setting] == value,
            f"Your answer changes {setting} of the whole process. Other code then behaves "
            "differently, for example dropout draws the same numbers again.",
            "Create your own object, such as torch.Generator().manual_seed(seed), and leave the "
            "global one alone.",
        )
    expect(
        not changed,
        f"Your answer changes the environment variable {', '.join(sorted(changed))}. All libraries "
        "in this process read it.",
        "Pass the value as an argument instead.",
    )


def _state() -> dict[str, object]:
    names = "the random generator of PyTorch", "the one of NumPy", "the one of Python"
    return {
        **dict(zip(names, random_state(), strict=True)),
        "the default dtype": torch.get_default_dtype(),
        "the number of threads": torch.get_num_threads(),
        "the gradient mode": torch.is_grad_enabled(),
        "the working directory": os.getcwd(),
    }


def _frozen(value: Any) -> bytes | None:
    """Return the bytes of a value, or None if it cannot be pickled."""
    try:
        return pickle.dumps(value)
    except Exception:  # whatever pickling a learner's object raises
        return None


def several_passes(read: Callable[[], Iterable[Item]], count: int = 3) -> list[list[Item]]:
    """Return what `count` passes over one object serve; refuse passes that serve different items.

    Args:
        read: Runs one pass and returns its items.
        count: Number of passes.
    """
    passes = [list(read()) for _ in range(count)]
    first = sorted(map(repr, passes[0]))
    for number, items in enumerate(passes[1:], 2):
        expect(
            sorted(map(repr, items)) == first,
            f"Pass {number} over the same object serves {len(items)} items, but the first pass "
            f"served {len(passes[0])}, and not all of them are the same.",
            "Start again at the beginning of each pass, in __iter__, and keep nothing from the "
            "pass before.",
        )
    return passes


def rank_correlation(order: Sequence[Any], other: Sequence[Any]) -> float:
    """Return Spearman's correlation between the positions of the same items in two orders."""
    place = {item: position for position, item in enumerate(other)}
    return float(np.corrcoef(range(len(order)), [place[item] for item in order])[0, 1])


def expect_mixed(epochs: Sequence[Sequence[Item]], on_disk: Sequence[Item]) -> None:
    """Refuse orders that follow the disk or each other, forwards, backwards or turned around.

    Args:
        epochs: The items of each epoch, in the order in which they were served.
        on_disk: The same items in the order in which they are stored.
    """
    limit = 5 / max(1, len(on_disk) - 1) ** 0.5  # five standard deviations of random orders
    orders = [("the order on disk", on_disk), *((f"epoch {n}", o) for n, o in enumerate(epochs))]
    for here, order in enumerate(epochs, 1):
        for name, other in orders[:here]:
            correlation = rank_correlation(order, other)
            neighbours = stay_together(order, other)
            expect(
                abs(correlation) < limit and neighbours < 0.5,
                f"Epoch {here - 1} is not mixed: compared with {name}, the rank correlation is "
                f"{correlation:.2f}, and {neighbours:.0%} of all neighbours are still neighbours.",
                "Draw a new random order for each epoch, over everything that may be mixed.",
            )


def expect_new_results(call: Callable[[], Any]) -> None:
    """Refuse an answer that keeps a reference to what it returned, so that memory grows."""
    kept = [weakref.ref(leaf) for _ in range(3) for leaf in _arrays(call())]
    gc.collect()
    alive = sum(reference() is not None for reference in kept)
    expect(
        not alive,
        f"After three calls, {alive} of the {len(kept)} arrays that your answer returned are still "
        "in memory. In a worker, this memory grows with every batch.",
        "Keep results in local variables only, not in self, in a module or in a cache.",
    )


def expect_as_fast(
    call: Callable[[], Any], reference: Callable[[], Any], *, times: float = 20
) -> None:
    """Refuse an answer that is `times` slower than a plain solution, measured in the same run."""
    took, plain = _best_of_three(call), _best_of_three(reference)
    expect(
        took < times * plain + 5e-3,
        f"Your answer needs {took / plain:.0f} times as long as a plain solution, "
        f"{1e3 * took:.0f} ms instead of {1e3 * plain:.1f} ms. Loading then limits the training.",
        "Remove waiting, printing and loops over single elements from the function.",
    )


def _best_of_three(call: Callable[[], Any]) -> float:
    def once() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return min(once() for _ in range(3))


def _arrays(result: Any) -> Iterator[Any]:
    if isinstance(result, torch.Tensor | np.ndarray):
        yield result
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from _arrays(value)
    elif isinstance(result, list | tuple):
        for value in result:
            yield from _arrays(value)


def expect_given_rank(call: Callable[[], Any]) -> None:
    """Refuse an answer that takes its rank from elsewhere than from what it was given.

    Args:
        call: Runs the answer with a fixed rank, and returns a result that can be compared.
    """
    wanted = short(call())
    for source, variables in {**_OTHER_RANKS, "torchrun's variables": _TORCHRUN}.items():
        with patch.dict(os.environ, variables):
            got = short(call())
        expect(
            got == wanted,
            f"The result changes if {source} are set: {', '.join(variables)}. Your answer reads "
            "them, but the rank is given.",
            "Use the rank and the world size that the exercise gives you.",
        )


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the ways in which a file is damaged in practice, each with a name.

    A reader must raise an error, or skip the item and count it. It must not serve garbage.
    """
    half = len(data) // 2
    yield "an empty file", b""
    yield "a file that was cut in half", data[:half]
    yield "a file that lacks its last byte", data[:-1]
    yield "a file with zeros in its second half", data[:half] + bytes(len(data) - half)


def expect_an_error(read: Callable[[bytes], Any], data: bytes) -> None:
    """Refuse a reader that returns something for damaged data as if the data were complete."""
    for what, content in damaged(data):
        try:
            got = read(content)
        except Exception:  # any error tells the program that the data are damaged
            continue
        refuse(
            f"Your answer reads {what} without an error, and returns {short(got)}.",
            "Let the error of the reader through: remove `except` and handlers that hide it.",
        )


def weights_after(train: Callable[[torch.nn.Module], Any], model: torch.nn.Module) -> torch.Tensor:
    """Return all weights of `model` after `train`, as one vector; one thread, so fast anywhere."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train(model)
    finally:
        torch.set_num_threads(threads)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def shuffled(items: Sequence[Item], seed: int) -> list[Item]:
    """Return the items in a random order that depends on the seed alone."""
    return random.Random(seed).sample(list(items), len(items))
