"""Exercise 04.2: a list of strings that workers can share."""

import gc
import math
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import psutil

from course_utils.teaching.exercise import (
    Verdict,
    exercise,
    expect,
    expect_a_class,
    expect_in_a_file,
    right,
)

Strings = Sequence[str]

MOST_OBJECTS = 100  # that an instance may consist of, however many strings it holds
PER_STRING = 16  # bytes beside the text: two integers of 64 bits
ROOM = 10_000  # bytes for everything that does not grow with the strings
FEWER = 10  # times less memory than the list
LONG_LIST = 300_000


@exercise("04.2", title="Cut the memory of the workers", seconds=120)
def pack_strings(packed_class: type[Any]) -> Verdict:
    """Judge what a packed list returns, of how many objects and bytes it consists, and its USS."""
    expect_a_class(packed_class, "an instance", "packs lists of its own")
    for names in _lists():
        packed = packed_class(list(names))
        _judge_contents(packed, names)
        _judge_objects(packed, len(names))
        _judge_bytes(packed, names)
    expect_in_a_file(packed_class)
    few = f"At most {MOST_OBJECTS} objects, and few bytes beside the text itself."
    if not sys.platform.startswith("linux"):
        return right(f"{few} How pages are shared after a fork can be measured on Linux only.")
    packed_mb, list_mb = _grown_elsewhere(packed_class)
    expect(
        packed_mb * FEWER <= list_mb,
        f"Reading a list of {LONG_LIST:,} names made a forked worker {list_mb:.0f} MB larger, "
        f"yours {packed_mb:.0f} MB. Something that it reads is counted, and counting writes.",
        "Keep the text in one array or one bytes object, and make a string only to return it.",
    )
    return right(
        f"{few} Reading a list of {LONG_LIST:,} names made a forked worker {list_mb:.0f} MB "
        f"larger, yours {packed_mb:.1f} MB."
    )


def names_like(count: int) -> list[str]:
    """Return paths as a dataset keeps them."""
    return [f"run_{i // 1000:05d}/event_{i:08d}.npz" for i in range(count)]


def _lists() -> Sequence[list[str]]:
    one_long = [*names_like(4000), "a/very" + "/long" * 400 + "/path.npz"]
    of_all_lengths = ["", "x" * 300, "Küche/µon.npz", "東京.npz", *names_like(3), ""]
    return names_like(5000), of_all_lengths, one_long, ["alone"]


def _judge_contents(packed: Strings, names: Strings) -> None:
    expect(
        len(packed) == len(names),
        f"{len(names):,} strings went in, len() says {len(packed):,}.",
        "N strings have N + 1 boundaries: the end of each one, and a zero before the first.",
    )
    for index, name in enumerate(names):
        found = packed[index]
        if found == name:
            continue
        expect(
            isinstance(found, str),
            f"packed[{index}] is {type(found).__name__}; whoever used the list expects a str.",
            "Decode on the way out: .decode() of bytes.",
        )
        expect(
            name.isascii() and all(map(str.isascii, names)),
            f"Where {name!r} should be, {found!r} comes out. Characters like ü take more than one "
            "byte, so an offset in characters is not one in bytes.",
            "Encode first, then take the lengths of what came out.",
        )
        expect(
            False,
            f"packed[{index}] is {found!r}, where the list had {name!r}.",
            "Compare the boundaries of the first three strings with their lengths.",
        )
    numpy_index = packed[np.int64(0)]  # type: ignore[call-overload]  # what samplers may give
    expect(
        numpy_index == names[0],
        "With a numpy integer as index something else comes out than with an int.",
        "Use the index only to look up boundaries.",
    )


def _judge_objects(packed: Strings, count: int) -> None:
    objects = _count_objects(packed, limit=10 * MOST_OBJECTS)
    expect(
        count < MOST_OBJECTS or objects <= MOST_OBJECTS,
        f"It holds an object for each of the {count:,} strings, or several. Each has a reference "
        "count of its own, and reading it writes there: the page is copied.",
        "Join all the text into one bytes object or uint8 array, and keep the boundaries in one "
        "array of integers.",
    )


def _count_objects(thing: Any, limit: int) -> int:
    """Count the objects of which `thing` consists, up to `limit`."""
    seen: dict[int, Any] = {}
    waiting = [thing]
    while waiting and len(seen) < limit:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _CODE):
            continue
        seen[id(one)] = one
        if isinstance(one, np.ndarray) and one.dtype.hasobject:
            waiting.extend(one.ravel()[:limit].tolist())
        waiting.extend(gc.get_referents(one))
    return len(seen)


_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def _judge_bytes(packed: Strings, names: Strings) -> None:
    text = sum(len(name.encode()) for name in names)
    held = len(pickle.dumps(packed))
    times = held / (text + PER_STRING * len(names) + ROOM)
    expect(
        times <= 1 or max(map(len, names)) < 4 * text / len(names),
        f"{held:,} bytes for {text:,} bytes of text. An array of fixed width gives every string "
        "the room of the longest, and there is one that is much longer than the others.",
        "Put the texts end to end, without filling up, and keep the boundaries.",
    )
    expect(
        times <= 1,
        f"{held:,} bytes for {text:,} bytes of text. numpy's own strings take 4 bytes for each "
        "character, and room for the longest.",
        "Encode the strings: then it is one byte for most characters.",
    )


def _grown_elsewhere(kind: type[Any]) -> list[float]:
    """Measure `grown_mb` of it and of a list in a new process, which nothing has filled."""
    program = (
        f"from {kind.__module__} import {kind.__qualname__} as kind\n"
        f"from {__name__} import grown_mb\nprint(grown_mb(kind), grown_mb(list))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=env
    )
    if run.returncode:
        raise RuntimeError(f"measuring it failed: {run.stderr.strip().splitlines()[-1]}")
    return [float(mb) for mb in run.stdout.split()]


def grown_mb(kind: Callable[[list[str]], Strings], count: int = LONG_LIST) -> float:
    """Return by how many MB a forked process grows while it reads all of a `kind` of names."""
    names = kind(names_like(count))
    gc.collect()
    fork = multiprocessing.get_context("fork")
    grown = fork.Value("d", math.nan)

    def read_all() -> None:
        before = _own_mb()
        for index in range(count):
            names[index]
        grown.value = _own_mb() - before

    reader = fork.Process(target=read_all)
    reader.start()
    reader.join()
    return float(grown.value)


def _own_mb() -> float:
    """Return what would be freed if this process ended; without torch, which is large."""
    return float(psutil.Process().memory_full_info().uss) / 1e6
