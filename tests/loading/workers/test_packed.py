"""Strings in one buffer."""

from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pytest

from course_utils.loading.workers import PackedStrings

STRINGS = ["", "a", "νµ → µ", "\0", "emoji 🔭", "\udcff not UTF-8", "a\nb", "", "é", "é", ""]


def test_each_string_comes_out_as_it_went_in() -> None:
    packed = PackedStrings(STRINGS)
    assert list(packed) == [packed[i] for i in range(11)] == STRINGS
    assert [packed[i] for i in range(-11, 0)] == STRINGS
    assert list(reversed(packed)) == STRINGS[::-1]
    assert packed[np.int64(2)] == STRINGS[2]
    assert "é" in packed
    assert packed.index("a") == 1
    assert list(PackedStrings([])) == []
    assert repr(PackedStrings(["a", "b"])) == "PackedStrings of 2 strings, 14 bytes"


def test_slices_are_those_of_a_list() -> None:
    ends = [None, 0, 2, 3, 9, -1, -4, 20]
    for first, last, step in product(ends, ends, [None, 1, 2, -1, -3]):
        part, wanted = PackedStrings(STRINGS)[first:last:step], STRINGS[first:last:step]
        assert list(part) == wanted
        assert list(part[1:]) == wanted[1:]
        assert part == PackedStrings(wanted) == pickle.loads(pickle.dumps(part))


def test_equality_is_that_of_the_strings() -> None:
    packed = PackedStrings(["ab", "c"])
    assert packed == PackedStrings(iter(["ab", "c"]))
    assert packed not in (PackedStrings(["a", "bc"]), PackedStrings(["ab"]), ["ab", "c"])


def test_it_takes_little_more_memory_than_the_text_and_is_sent_so() -> None:
    names = [f"run_{i:09d}/event_{i:09d}.npz" for i in range(10_000)]
    packed, text = PackedStrings(names), sum(map(len, names))
    assert packed.nbytes == text + 4 * 10_001
    assert len(pickle.dumps(packed)) < packed.nbytes + 1000
    assert len(pickle.dumps(packed[:100])) < 6000


def test_what_is_no_string_and_no_index_is_named() -> None:
    with pytest.raises(TypeError, match="Item 1 is bytes; make it a str"):
        PackedStrings(["a", b"b"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="give it a list"):
        PackedStrings("abc")
    for index in (2, -3):
        with pytest.raises(IndexError, match=f"no string {index} among 2"):
            PackedStrings(["a", "b"])[index]
