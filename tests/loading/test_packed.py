"""Strings in one buffer."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from course_utils.loading.workers import PackedStrings

STRINGS = ["", "a", "νµ → µ", "\0", "emoji 🔭", "\udcff not UTF-8", "a\nb", "", "é", "é", ""]


def test_each_string_comes_out_as_it_went_in() -> None:
    packed = PackedStrings(STRINGS)
    assert list(packed) == STRINGS
    assert len(packed) == len(STRINGS)
    assert [packed[i] for i in range(-11, 11)] == STRINGS + STRINGS
    assert packed[np.int64(2)] == STRINGS[2]
    assert "é" in packed
    assert packed.index("a") == 1
    assert list(reversed(packed)) == STRINGS[::-1]


@pytest.mark.parametrize("first", [None, 0, 3, -4, 20])
@pytest.mark.parametrize("last", [None, 0, 2, 9, -1, 20])
@pytest.mark.parametrize("step", [None, 1, 2, -1, -3])
def test_slices_are_those_of_a_list(first: int | None, last: int | None, step: int | None) -> None:
    part = PackedStrings(STRINGS)[first:last:step]
    assert isinstance(part, PackedStrings)
    assert list(part) == STRINGS[first:last:step]
    assert list(part[1:]) == STRINGS[first:last:step][1:]
    assert part == PackedStrings(STRINGS[first:last:step])
    assert list(pickle.loads(pickle.dumps(part))) == list(part)


def test_equality_is_that_of_the_strings() -> None:
    packed = PackedStrings(["ab", "c"])
    assert packed == PackedStrings(iter(["ab", "c"]))
    assert packed != PackedStrings(["a", "bc"])
    assert packed != PackedStrings(["ab"])
    assert packed != ["ab", "c"]


def test_it_takes_little_more_memory_than_the_text_and_is_sent_so() -> None:
    names = [f"run_{i:09d}/event_{i:09d}.npz" for i in range(10_000)]
    packed, text = PackedStrings(names), sum(map(len, names))
    assert packed.nbytes == text + 4 * 10_001
    assert len(pickle.dumps(packed)) < packed.nbytes + 1000
    assert len(pickle.dumps(packed[:100])) < 6000


def test_an_empty_list_can_be_packed() -> None:
    assert list(PackedStrings([])) == []
    assert PackedStrings([]) == PackedStrings(["a"])[1:]


@pytest.mark.parametrize("index", [2, -3])
def test_an_index_behind_the_end_is_refused(index: int) -> None:
    with pytest.raises(IndexError, match=f"no string {index} among 2"):
        PackedStrings(["a", "b"])[index]


def test_what_is_no_string_is_named() -> None:
    with pytest.raises(TypeError, match="Item 1 is bytes; make it a str"):
        PackedStrings(["a", b"b"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="give it a list"):
        PackedStrings("abc")


def test_it_says_how_much_there_is() -> None:
    assert repr(PackedStrings(["a", "b"])) == "PackedStrings of 2 strings, 14 bytes"
