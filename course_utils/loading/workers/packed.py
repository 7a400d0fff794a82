"""Keep many strings as one: workers share them instead of copying them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray

_CODE = "utf-8", "surrogatepass"  # surrogates stand in file names that are not valid UTF-8


class PackedStrings(Sequence[str]):
    """Strings in one buffer of bytes, with the places where each begins and ends.

        paths = PackedStrings(paths)  # paths[i], paths[10:20], len(paths) as before

    Each str of a list is an object with a reference count, and to look at it writes that count: the
    pages of a forked worker are copied one by one. Here are two arrays, however many strings.
    It cannot be changed. A slice without a step shares the memory.
    """

    def __init__(self, strings: Iterable[str]):
        """Pack the strings; each comes out as it went in, whatever characters it has.

        Raises:
            TypeError: one of them is no str, or all of it is one str.
        """
        if isinstance(strings, str):
            raise TypeError("PackedStrings packs many strings; give it a list of them.")
        packed, places = bytearray(), array("q", [0])
        for index, string in enumerate(strings):
            if not isinstance(string, str):
                kind = type(string).__name__
                raise TypeError(f"Item {index} is {kind}; make it a str, for instance by str(...).")
            packed += string.encode(*_CODE)
            places.append(len(packed))
        self._bytes: NDArray[np.uint8] = np.frombuffer(bytes(packed), np.uint8)
        # half as much to keep and to send, wherever 4 GB are enough
        kind = np.uint32 if len(packed) < 2**32 else np.int64
        self._places: NDArray[np.integer] = np.array(places, kind)

    def __len__(self) -> int:
        return len(self._places) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> PackedStrings: ...
    def __getitem__(self, index: int | slice) -> str | PackedStrings:
        if isinstance(index, slice):
            return self._slice(range(len(self))[index])
        try:
            place = range(len(self))[index]
        except IndexError:
            raise IndexError(f"There is no string {index} among {len(self):,}.") from None
        return self._string(int(self._places[place]), int(self._places[place + 1]))

    def __iter__(self) -> Iterator[str]:
        return (self._string(int(begin), int(end)) for begin, end in pairwise(self._places))

    def __eq__(self, other: object) -> bool:
        """Tell whether `other` is packed too and has the same strings."""
        if not isinstance(other, PackedStrings):
            return NotImplemented
        return len(self) == len(other) and all(map(str.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show how much there is, not all of it."""
        return f"PackedStrings of {len(self):,} strings, {self.nbytes:,} bytes"

    @property
    def nbytes(self) -> int:
        """The bytes that the strings and their places take."""
        return self._bytes.nbytes + self._places.nbytes

    def _slice(self, chosen: range) -> PackedStrings:
        if chosen.step != 1:
            return PackedStrings(self[index] for index in chosen)
        part = PackedStrings.__new__(PackedStrings)
        part._places = self._places[chosen.start : max(chosen.start, chosen.stop) + 1]
        first = int(self._places[0])
        part._bytes = self._bytes[int(part._places[0]) - first : int(part._places[-1]) - first]
        return part

    def _string(self, begin: int, end: int) -> str:
        first = int(self._places[0])  # not 0 in a slice, whose places stay those of the whole
        return self._bytes[begin - first : end - first].tobytes().decode(*_CODE)
