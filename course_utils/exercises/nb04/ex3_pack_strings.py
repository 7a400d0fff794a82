"""Exercise 04.3: a list of strings that workers can share."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, islice, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from course_utils.exercises.judging.compare import Raised, compare, short
from course_utils.exercises.judging.probes import expect_as_fast, memory_of
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, right

Strings = Sequence[str]

SPARE = 1.4  # NumPy's StringDType allocates this multiple of the text
PER_STRING = 16  # bytes in addition to the text: two integers of 64 bits
ROOM = 10_000  # bytes for everything that does not grow with the strings
READS = 1_000  # in the test of the speed


class Read(NamedTuple):
    """An operation on a list of strings, such as a slice or a loop."""

    words: str
    of: Callable[[Strings], Any]


def _reads(count: int) -> Iterator[Read]:
    """Yield operations that must give the same result on a packed list as on a list."""
    yield Read("len(s)", len)
    some = range(count) if count < 500 else (0, count // 2, np.int64(count - 1))
    for index in (*some, *((-1, -count) if count else ()), count, -count - 1):
        yield Read(f"s[{index!r}]", itemgetter(index))
    yield Read("all s[i]", lambda s: [s[index] for index in range(count)])
    for number in "first", "second":  # the second loop must not depend on where the first one began
        yield Read(f"the {number} loop `for text in s`", lambda s: _loop(s, count))
    yield Read("a pickled copy", lambda s: _loop(pickle.loads(pickle.dumps(s)), count))


_ENDS = [Read(f"s[{index}]", itemgetter(index)) for index in (0, -1)]


def _loop(strings: Strings, count: int) -> list[str]:
    next(iter(strings), None)  # a loop that was left early must not change the next one
    return list(islice(iter(strings), count + 1))


def _result(strings: Strings, read: Read) -> Any:
    """Return what a read returns, or the error that it raises."""
    try:
        return read.of(strings)
    except Exception as error:
        kind = IndexError if isinstance(error, IndexError) else type(error)
        return Raised(kind.__name__, str(error))


@exercise("04.3", title="Cut the memory of the workers", seconds=30)
def pack_strings(packed_class: type[Any]) -> Verdict:
    """Compare a packed list with a list, then measure its memory and its speed."""
    expect_a_class(packed_class, "an instance", "packs its own lists")
    for strings in (
        ["alone"],
        [],
        ["", *map(chr, range(128)), "".join(map(chr, range(128))), " x\n", ""],
        ["", "x" * 300, "Küche/µon.npz", "Ku\u0308che", "東京.npz", ""],
        names_like(5000),
    ):
        packed, _ = packed_class(list(strings)), packed_class(["another list"])
        _judge_reads(packed, strings, [*_reads(len(strings))])
    vast = ["x" * (2**24 - 1), "ab", "c"]  # float32 cannot count further
    _judge_reads(packed_class(list(vast)), vast, [Read("s[1]", itemgetter(1)), *_ENDS])
    with suppress(UnicodeError):  # whoever refuses a character that is not UTF-8 does not lose it
        _judge_reads(packed_class(["a\udcff"]), ["a\udcff"], _ENDS[:1])
    for extra in "Küche/東京.npz", "a/very" + "/long" * 400 + "/path.npz":
        _judge_size(packed_class, extra)
    _judge_speed(packed_class)
    return right(
        f"It works like a list, and holds at most {PER_STRING} bytes per string in addition to the "
        "text. It has no objects whose reference counts a forked worker could write to."
    )


def names_like(count: int) -> list[str]:
    """Return file names as a dataset keeps them."""
    return [f"run_{i // 1000:05d}/event_{i:08d}.npz" for i in range(count)]


def _judge_reads(packed: Strings, strings: Strings, reads: Iterable[Read]) -> None:
    compare(
        partial(_result, packed),
        partial(_result, strings),
        reads,
        show=lambda read: f"{read.words} of MyStrings({short(list(strings))})",
    )


def _judge_size(packed_class: type[Any], extra: str) -> None:
    """Refuse a list that holds more than the text and two integers per string after reading."""

    def read_all() -> Strings:
        packed: Strings = packed_class([*names_like(4000), extra])
        for index in range(len(packed)):
            packed[index]
        return packed

    names = [*names_like(4000), extra]
    text = sum(len(name.encode()) for name in names)
    packed, held, _ = memory_of(read_all)
    expect(
        held <= SPARE * text + PER_STRING * len(names) + ROOM,
        f"For {len(names):,} strings with {text:,} bytes of text, {held:,} bytes are held after "
        "all were read. An object per string, a cache, a str, or an array of fixed width needs "
        "more memory than the text.",
        "Join the encoded strings in one bytes object, and keep the positions in one array.",
    )
    for kept in getattr(packed, "__dict__", {}).values():
        array = np.asarray(kept)
        narrow = array.ndim == 1 and array.dtype.kind in "iu" and array.itemsize < 8
        expect(
            not narrow or len(array) < len(names) or array[-1] < text // 2,
            f"Your positions are {array.dtype}. They overflow at 2 or 4 GB of text.",
            "Use 64 bits: np.cumsum(lengths, dtype=np.int64).",
        )


def _judge_speed(packed_class: type[Any]) -> None:
    many = ["/long" * 40] * 5_000
    expect_as_fast(
        lambda: packed_class(many),
        lambda: ("".join(many).encode(), [*accumulate(map(len, many))]),
        advice="Join all strings at once: b''.join(...). With +=, each string copies all before.",
    )
    strings = [*[""] * 300_000, *["/long" * 40] * READS]  # no read may pass over all of them
    text, places = "".join(strings).encode(), [*accumulate(map(len, strings), initial=0)]
    packed = packed_class(list(strings))
    expect_as_fast(
        lambda: [packed[index] for index in range(-READS, 0)],
        lambda: [text[begin:end].decode() for begin, end in pairwise(places[-READS - 1 :])],
        times=100,
        advice="Compute the positions once, in __init__. Read and decode only the bytes of the "
        "string that is wanted.",
    )
