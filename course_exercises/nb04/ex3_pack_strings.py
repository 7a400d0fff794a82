"""Exercise 04.3: a list of strings that workers can share."""

import gc
import math
import multiprocessing
import pickle
import sys
import timeit
from collections.abc import Callable, Sequence
from itertools import islice
from types import ModuleType
from typing import Any

import numpy as np
import psutil

from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, right
from course_utils.teaching.notebook import run_demo

Strings = Sequence[str]

MOST_OBJECTS = 100  # that an instance may consist of, however many strings it holds
PER_STRING = 16  # bytes beside the text: two integers of 64 bits
ROOM = 10_000  # bytes for everything that does not grow with the strings
FEWER = 10  # times less memory than the list
LONG_LIST = 300_000
LONGEST_SHOWN = 80  # signs of an answer
SLOWER = 8  # times, in a list that is 30 times as long
PATIENCE_S = 40


@exercise("04.3", title="Cut the memory of the workers", seconds=120)
def pack_strings(packed_class: type[Any]) -> Verdict:
    """Judge what a packed list returns, of how many objects and bytes it consists, and its USS."""
    expect_a_class(packed_class, "an instance", "packs lists of its own")
    for names in (
        names_like(5000),
        ["a\nb", "a,b", "a\0b", "a\tb", " x\n", *names_like(3)],
        ["", "x" * 300, "Küche/µon.npz", "東京.npz", *names_like(4000), ""],
        [*names_like(4000), "a/very" + "/long" * 400 + "/path.npz"],
        ["alone"],
        ["x" * (2**24 - 1), "ab", "c"],  # as many as float32 can count
    ):
        packed = packed_class(list(names))
        _judge_contents(packed, names)
        _judge_ends(packed, names)
        _judge_size(packed, names)
    _judge_speed(packed_class)
    few = f"At most {MOST_OBJECTS} objects, and few bytes beside the text itself."
    if not sys.platform.startswith("linux"):
        return right(f"{few} How pages are shared after a fork can be measured on Linux only.")
    packed_mb, list_mb = _grown_elsewhere(packed_class)
    larger = f"Reading a list of {LONG_LIST:,} names made a forked worker {list_mb:.0f} MB larger"
    expect(
        packed_mb * FEWER <= list_mb,
        f"{larger}, yours {packed_mb:.0f} MB. Something that it reads is counted, and counting "
        "writes.",
        "Keep the text in one array or one bytes object, and make a string only to return it.",
    )
    return right(f"{few} {larger}, yours {packed_mb:.1f} MB.")


def names_like(count: int) -> list[str]:
    """Return paths as a dataset keeps them."""
    return [f"run_{i // 1000:05d}/event_{i:08d}.npz" for i in range(count)]


def _judge_contents(packed: Strings, names: Strings) -> None:
    expect(
        len(packed) == len(names),
        f"{len(names):,} strings went in, len() says {len(packed):,}.",
        "N strings have N + 1 boundaries: the end of each one, and a zero before the first. No "
        "sign is left to mark an end: any may be part of a text.",
    )
    index = next((index for index, name in enumerate(names) if packed[index] != name), 0)
    found, name = packed[index], names[index]
    expect(
        isinstance(found, str),
        f"packed[{index}] is {type(found).__name__}; whoever used the list expects a str.",
        "Decode on the way out: .decode() of bytes.",
    )
    shorter = found.rstrip("\N{REPLACEMENT CHARACTER}")
    expect(
        found == name or name.isascii() or not (shorter and name.startswith(shorter)),
        f"Where {_short(name)} should be, {_short(found)} comes out. Characters like ü take more "
        "than one byte, so an offset in characters is not one in bytes.",
        "Encode first, then take the lengths of what came out.",
    )
    expect(
        found == name,
        f"packed[{index}] is {_short(found)}, where the list had {_short(name)}.",
        "Compare the boundaries with the lengths, and encode by .encode() alone: UTF-8 has it all.",
    )
    numpy_index = packed[np.int64(0)]  # type: ignore[call-overload]  # what samplers may give
    expect(
        numpy_index == names[0],
        "With a numpy integer as index something else comes out than with an int.",
        "Use the index only to look up boundaries.",
    )


def _judge_ends(packed: Strings, names: Strings) -> None:
    """Judge what a list does with other indices, and where iterating over it ends."""
    last = _asked(packed, -1)
    expect(
        last == names[-1],
        f"packed[-1] is {_short(last)}; in a list it is the last one, here {_short(names[-1])}.",
        "range(len(self))[index] counts negative numbers from the end.",
    )
    for index in (len(names), -len(names) - 1):
        found = _asked(packed, index)
        expect(
            isinstance(found, IndexError),
            f"packed[{index}] is {_short(found)}, where a list of {len(names):,} raises "
            "IndexError. Python iterates until that comes: `for text in packed` would not end "
            "where it should.",
            "range(len(self))[index] raises it.",
        )
    next(iter(packed), None)  # a loop that has begun is nothing to the next one
    served = list(islice(iter(packed), len(names) + 1))
    more = "more than " if len(served) > len(names) else ""
    expect(
        served == list(names),
        f"`for text in packed` serves {more}{min(len(served), len(names)):,} texts, not just the "
        f"{len(names):,} of the list, or a second loop does not begin at the first one.",
        "Without __iter__ Python asks for 0, 1, 2 and so on in every loop, until an IndexError "
        "comes.",
    )


def _asked(packed: Strings, index: int) -> Any:
    """Return what comes out, or the error."""
    try:
        return packed[index]
    except Exception as error:
        return error


def _short(thing: Any) -> str:
    text = repr(thing)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}… ({len(text):,} signs)"


def _judge_speed(packed_class: type[Any]) -> None:
    """Refuse to go through all text for each string; a busy machine makes both lists slow."""
    few_s, many_s = (
        min(timeit.repeat("one[len(one) // 2]", number=2, repeat=20, globals={"one": one})) / 2
        for one in map(packed_class, map(names_like, (1_000, 30_000)))
    )
    expect(
        many_s < max(SLOWER * few_s, 50e-6),
        f"A string out of 30,000 takes {many_s * 1e6:,.0f} µs, out of 1,000 {few_s * 1e6:,.0f} µs: "
        "for each one you go through all the text.",
        "Keep the places where strings begin and end, and cut out one piece of the text.",
    )


def _judge_size(packed: Strings, names: Strings) -> None:
    expect(
        len(names) < MOST_OBJECTS or _count_objects(packed) <= MOST_OBJECTS,
        f"It holds an object for each of the {len(names):,} strings, or several. Each has a "
        "reference count of its own, and reading it writes there: the page is copied.",
        "Join all the text into one bytes object or uint8 array, and keep the boundaries in one "
        "array of integers.",
    )
    text = sum(len(name.encode()) for name in names)
    most = text + PER_STRING * len(names) + ROOM
    expect(
        (wide := _held_as_text(packed)) <= most,
        f"{wide:,} bytes for {text:,} bytes of text: a str takes up to 4 bytes for each character, "
        "all of them as many as the widest one needs.",
        "Keep bytes: encode the strings first, and count the boundaries in bytes.",
    )
    held = len(pickle.dumps(packed))
    times = held / most
    expect(
        times <= 1 or max(map(len, names)) < 4 * text / len(names),
        f"{held:,} bytes for {text:,} bytes of text. An array of fixed width gives every string "
        "the room of the longest, and there is one that is much longer than the others.",
        "Put the texts end to end, without filling up, and keep the boundaries.",
    )
    expect(
        times <= 1,
        f"{held:,} bytes for {text:,} bytes of text and {len(names):,} strings: an array of str "
        "takes up to 4 bytes for each character, and what is packed with every string adds up.",
        "Encode the strings, put them end to end, and keep nothing but their boundaries.",
    )


def _held_as_text(packed: Strings) -> int:
    """Return the bytes of the str in it: one wide character makes all the others as wide."""
    return sum(sys.getsizeof(kept) for kept in vars(packed).values() if isinstance(kept, str))


def _count_objects(thing: Any) -> int:
    """Count the objects of which `thing` consists, as far as that tells many from few."""
    seen: dict[int, Any] = {}
    new = [thing]
    while new and len(seen) <= MOST_OBJECTS:
        seen |= {id(one): one for one in new}
        # dtype "O" holds objects; StringDType keeps its text itself, and makes them on the way out
        arrays = (one for one in new if isinstance(one, np.ndarray) and one.dtype.kind == "O")
        inside = (*gc.get_referents(*new), *(item for array in arrays for item in array.flat))
        data = (one for one in inside if not (callable(one) or isinstance(one, ModuleType)))
        new = [one for one in data if id(one) not in seen]
    return len(seen)


def _grown_elsewhere(kind: type[Any]) -> list[float]:
    """Measure `grown_mb` of it and of a list in a new process, which nothing has filled."""
    run = run_demo(
        f"from {kind.__module__} import {kind.__qualname__} as kind\n"
        f"from {__name__} import grown_mb\nprint(grown_mb(kind), grown_mb(list))",
        seconds=PATIENCE_S,
    )
    expect(
        run.seconds < PATIENCE_S,
        f"Packing and reading {LONG_LIST:,} names took longer than {PATIENCE_S} s; a list needs "
        "less than one.",
        "Look for what is done for each string and grows with their number. If this machine is "
        "busy, run the check again.",
    )
    last_line = (run.output or run.ending).splitlines()[-1][:200]
    expect(
        not run.returncode,
        f"With {LONG_LIST:,} names in a process of its own it failed: {last_line}",
        "Try it in a cell: MyStrings([f'name {i}' for i in range(300_000)]).",
    )
    return [float(mb) for mb in last_line.split()]


def grown_mb(kind: Callable[[list[str]], Strings], count: int = LONG_LIST) -> float:
    """Return by how many MB a forked process grows while it reads all of a `kind` of names."""
    names = kind(names_like(count))
    gc.collect()
    fork = multiprocessing.get_context("fork")
    grown = fork.Value("d", math.nan)

    def read_all() -> None:
        told = psutil.Process().memory_full_info  # uss: what would be freed if this process ended
        before = told().uss
        for index in range(count):
            names[index]
        grown.value = (told().uss - before) / 1e6

    reader = fork.Process(target=read_all)
    reader.start()
    reader.join()
    return float(grown.value)
