import pickle

import numpy as np
import pytest

from keepfed.loaders.workers import PackedStrings

STRINGS = ["", "a", "νµ → µ", "\0", "emoji 🔭", "\udcff not UTF-8", "a\nb", "", "é", "é", ""]


def test_each_string_is_returned_alone_in_order_and_in_a_slice() -> None:
    packed = PackedStrings(iter(STRINGS))
    assert list(packed) == list(pickle.loads(pickle.dumps(packed))) == STRINGS
    assert [packed[i] for i in range(-11, 0)] == STRINGS
    assert list(reversed(packed)) == STRINGS[::-1]
    assert packed[np.int64(2)] == STRINGS[2]
    assert "é" in packed
    assert list(PackedStrings([])) == []
    for part in (slice(2, 5), slice(-4, None), slice(None, None, -3), slice(9, 2)):
        assert list(packed[part]) == STRINGS[part]


def test_packed_strings_use_little_more_memory_than_their_text() -> None:
    names = [f"run_{i:09d}/event_{i:09d}.npz" for i in range(10_000)]
    packed, text = PackedStrings(names), sum(map(len, names))
    assert len(pickle.dumps(packed)) < text + 4 * 10_001 + 1000
    assert len(pickle.dumps(packed[:100])) < 6000


def test_invalid_string_and_index_are_named() -> None:
    with pytest.raises(TypeError, match=r"Item 1 is of type bytes\. Convert it"):
        PackedStrings(["a", b"b"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="Give a list of strings"):
        PackedStrings("abc")
    for index in (2, -3):
        with pytest.raises(IndexError):
            PackedStrings(["a", "b"])[index]
