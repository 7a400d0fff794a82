"""Probes that many exercises share: each finds one kind of mistake and has one message for it.

A judge calls the probes that apply to its exercise. They try an answer where a quick test does not
look: in a second pass, in real workers, with large numbers, and in the process that called it.
"""

import datetime
import gc
import os
import pickle
import random
import subprocess
import sys
import time
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

import dill
import numpy as np
import torch
from torch.utils.data import Dataset
from torch.utils.data._utils.worker import WorkerInfo

from course_utils.exercises.judging.chance import (
    in_another_process,
    random_numbers_of,
    random_state,
    stay_together,
)
from course_utils.exercises.judging.compare import equal, short
from course_utils.teaching.exercise import expect

Item = TypeVar("Item", bound=Hashable)

# where integers and floats of each width wrap around, or stop counting in ones
EDGES = (0, 1, 127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536, 2**24, 2**24 + 1, 2**31, 2**32)

# other sources of a rank: an answer that reads one of them ignores the rank it was given
_OTHER_RANKS: Mapping[str, Mapping[str, str]] = {
    "Slurm's variables": {"SLURM_PROCID": "5", "SLURM_NODEID": "5", "SLURM_NTASKS": "8"},
    "Open MPI's variables": {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"},
    "MPI's variables": {"PMI_RANK": "5", "PMI_SIZE": "8"},
}
# variables that libraries set when they are first used
_LIBRARIES = ("TORCH", "PYTORCH", "CUDA", "KMP_", "KINETO")
_PYTORCH = "the random generator of PyTorch"
_inside: list[bool] = []  # one entry for each `process_unchanged` that is open
_TORCHRUN = {"RANK": "5", "LOCAL_RANK": "5", "WORLD_SIZE": "8"}


@contextmanager
def process_unchanged(*given: Any, may_draw: bool = False) -> Iterator[None]:
    """Refuse an answer that changes its arguments, a random generator or another global setting.

    Args:
        given: The arguments of the answer. They are compared before and after.
        may_draw: Whether the answer may draw from PyTorch's generator.
    """
    if not _inside:
        # an answer that seeds a generator must not find it in the state that it had seeded before
        torch.rand(1, device="cpu"), np.random.random(), random.random()
    _inside.append(True)
    before, arguments = _state(), [_frozen(one) for one in given]
    directory, variables = os.getcwd(), dict(os.environ)
    try:
        yield
        after = _state()
    finally:
        _inside.pop()
        os.chdir(directory)
        torch.set_default_dtype(before["the default dtype"])  # type: ignore[arg-type]
        torch.set_grad_enabled(before["the gradient mode"])  # type: ignore[arg-type]
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
    if may_draw:
        del before[_PYTORCH]
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
    names = _PYTORCH, "the random generator of NumPy", "the random generator of Python"
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


def expect_no_seed(call: Callable[[], Any]) -> None:
    """Refuse an answer that seeds a random generator of the process. It may draw from them."""
    states = []
    for seed in (1, 2):
        with random_numbers_of(seed):
            call()
            states.append(random_state())
    expect(
        all(one != other for one, other in zip(*states, strict=True)),
        "Your answer seeds a random generator of the whole process. From then on, other code draws "
        "the same numbers in every epoch, for example dropout.",
        "Create your own generator, such as np.random.default_rng(epoch).",
    )


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
        expect(
            Counter(order) == Counter(on_disk),
            f"Epoch {here - 1} serves {len({*order})} of {len(on_disk)} items, and {len(order)} in "
            "all. Each must come once, in every epoch.",
            "Shuffle all items in one order, which depends on the epoch but not on the rank.",
        )
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


def memory_of(call: Callable[[], Item]) -> tuple[Item, int, int]:
    """Return the result of `call`, the bytes that are held after it, and the most it held.

    Python objects and NumPy arrays count, even those in a module or a cache. Memory maps do not.
    """
    tracing = tracemalloc.is_tracing()
    gc.collect()
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        result = call()
        _, peak = tracemalloc.get_traced_memory()
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        if not tracing:
            tracemalloc.stop()
    return result, held - before, peak - before


def expect_as_fast(
    call: Callable[[], Any],
    reference: Callable[[], Any],
    *,
    times: float = 20,
    advice: str = "Remove waiting, printing and loops over single elements from the function.",
) -> None:
    """Refuse an answer that is `times` slower than a plain solution, measured in the same run."""
    took, plain = _best_of_three(call), _best_of_three(reference)
    for _ in range(5):  # a busy machine may have delayed all three calls
        if 1 <= took / (times * plain + 5e-3) < 10:
            took, plain = min(took, _best_of_three(call)), min(plain, _best_of_three(reference))
    expect(
        took < times * plain + 5e-3,
        f"Your answer needs {took / plain:.0f} times as long as a plain solution, "
        f"{1e3 * took:.0f} ms instead of {1e3 * plain:.1f} ms. Loading then limits the training.",
        advice,
    )


def _best_of_three(call: Callable[[], Any]) -> float:
    def once() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    with one_thread():  # several threads wait for each other if the cores are busy
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


class _Day(datetime.datetime):
    today = now = classmethod(lambda cls, *_: cls(2001, 1, 1))  # type: ignore[assignment]


# names that return something else in another process, and when they do so
_ELSEWHERE: Mapping[str, Mapping[str, Any]] = {
    "a process group exists": {
        "torch.distributed.is_initialized": lambda: True,
        "torch.distributed.get_rank": lambda *_, **__: 5,
        "torch.distributed.get_world_size": lambda *_, **__: 8,
    },
    "it runs in another worker": {
        "torch.utils.data._utils.worker._worker_info": WorkerInfo(
            id=1, num_workers=2, seed=1, dataset=Dataset[Any]()
        )
    },
    "the computer has another name": dict.fromkeys(
        ("socket.gethostname", "platform.node"), lambda: "other"
    ),
    "it runs on another day": {
        **dict.fromkeys(("time.time", "time.time_ns"), lambda: 1),
        **dict.fromkeys(("datetime.date", "datetime.datetime"), _Day),
    },
    "PyTorch has another seed": {"torch.initial_seed": lambda: 7},
}


def expect_given_rank(call: Callable[[], Any], owner: Any = None) -> None:
    """Refuse an answer that depends on anything but its arguments, such as on another rank.

    Args:
        call: Runs the answer with a fixed rank, and returns a result that can be compared.
        owner: The learner's function or class. Names that its module has imported change too.
    """
    wanted = short(call())
    contexts: dict[str, AbstractContextManager[Any]] = {
        f"{source} are set: {', '.join(variables)}": patch.dict(os.environ, variables)
        for source, variables in {**_OTHER_RANKS, "torchrun's variables": _TORCHRUN}.items()
    }
    contexts |= {change: _patched(names, owner) for change, names in _ELSEWHERE.items()}
    contexts["it runs in another process, where os.getpid() and hash() return other values"] = (
        in_another_process(owner)
    )
    for change, context in contexts.items():
        with context:
            getattr(owner, "cache_clear", bool)()  # the cache of another process is empty
            got = short(call())
        expect(
            got == wanted,
            f"The result changes if {change}. Your answer depends on it, so ranks may disagree.",
            "Use only the arguments that the exercise gives you.",
        )


@contextmanager
def _patched(names: Mapping[str, Any], owner: Any) -> Iterator[None]:
    """Replace what these names stand for, in their modules and in the module of `owner`."""
    module = sys.modules.get(getattr(owner, "__module__", ""))
    known = vars(module) if module else {}
    with ExitStack() as stack:
        for name, new in names.items():
            place, _, attribute = name.rpartition(".")
            old = vars(sys.modules[place])[attribute]
            own = {key: new for key, value in known.items() if value is old is not None}
            stack.enter_context(patch.dict(known, own))
            stack.enter_context(patch(name, new))
        yield


def expect_same_in_a_new_python(function: Callable[..., Any], *arguments: Any) -> None:
    """Refuse a function whose result is different in another Python, as the order of a set is."""
    source = (
        "import sys, dill; function, arguments = dill.load(sys.stdin.buffer); "
        "out, sys.stdout = sys.stdout, sys.stderr; "
        "dill.dump(function(*arguments), out.buffer)"
    )
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    variables = {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        there = subprocess.run(
            [sys.executable, "-c", source],
            input=dill.dumps((function, arguments), recurse=True),
            capture_output=True,
            env={**os.environ, **variables},
            check=True,
        )
    except Exception:  # not everything in a notebook can be sent
        return
    expect(
        equal(dill.loads(there.stdout), function(*arguments)),
        "The same call returns something else in a new Python process. For example, each process "
        "orders a set of texts differently.",
        "Sort what comes from a set or from a folder, and use only the arguments.",
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread, which is as fast on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def shuffled(items: Sequence[Item], seed: int) -> list[Item]:
    """Return the items in a random order that depends on the seed alone."""
    return random.Random(seed).sample(list(items), len(items))
