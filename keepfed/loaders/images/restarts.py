"""Put restart markers into JPEGs, so that a part can be cut out of one without decoding the rest.

In a JPEG the code of a block has no fixed length, and its mean brightness is told as the difference
from the block before: so whoever wants the last block has to go through all. A restart marker
(ITU-T T.81, B.2.4.4) begins at a whole byte and tells the brightness anew. No pixel changes: the
codes stay as they are, but for the first differences behind a marker, and the file grows by some
percent.

To find the codes, hundreds of images are gone through at once, one code of each at a time: a step
of NumPy for one image takes nearly as long. It is still many times as long as decoding takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FRAME, TABLES, SCAN, INTERVAL = 0xC0, 0xC4, 0xDA, 0xDD  # markers; a frame that is not progressive
LONGEST = 4  # of an interval, in units of the codec: 8 x 8 pixels, or 16 x 16 with shared colours
_LOOK = 64  # codes between two looks which images are through
Table = tuple[NDArray[np.int64], NDArray[np.int64]]  # symbols, and the length of the code of each


class NotPlain(ValueError):
    """A JPEG of a kind that is left as it is."""


@dataclass
class _Image:
    """The codes of an image, and what is needed to read them."""

    head: bytes  # all before the frame of the scan
    scan: bytes  # from there to the codes
    codes: bytes  # without the zeros that follow each 255
    blocks: list[int]  # the component of each block of a unit
    tables: list[tuple[Table, Table]]  # of each component: for differences, for the rest
    width: int  # of a unit, in pixels
    height: int
    across: int  # units
    down: int
    starts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class Restarting:
    """A JPEG with restart markers, and where its intervals are."""

    jpeg: bytes
    starts: NDArray[np.uint32]  # the byte where each interval begins, and where the last one ends
    across: int  # intervals beside each other
    width: int  # of an interval, in pixels
    height: int


def with_restarts(jpegs: Sequence[bytes]) -> list[Restarting | None]:
    """Return each JPEG with restart markers; None: it is progressive, or cannot have them."""
    images: list[_Image | None] = []
    for jpeg in jpegs:
        try:
            images.append(_parse(jpeg))
        except NotPlain:
            images.append(None)
    _find_blocks([image for image in images if image is not None])
    return [None if image is None else _rewrite(image) for image in images]


def _parse(jpeg: bytes) -> _Image:
    """Take a JPEG apart, or say why that is not done."""
    tables: dict[int, Table] = {}
    at, sizes, samples = 2, (0, 0), dict[int, tuple[int, int]]()
    while True:
        if jpeg[at] != 0xFF:
            raise NotPlain("no marker where one should be")
        kind, end = jpeg[at + 1], at + 2 + int.from_bytes(jpeg[at + 2 : at + 4])
        body = jpeg[at + 4 : end]
        if kind == TABLES:
            tables |= _tables(body)
        elif kind == FRAME:
            sizes = int.from_bytes(body[1:3]), int.from_bytes(body[3:5])
            parts = [body[i : i + 3] for i in range(6, len(body), 3)]
            samples = {part[0]: divmod(part[1], 16) for part in parts}
        elif kind == SCAN:
            break
        elif kind == INTERVAL or 0xC1 <= kind <= 0xCF:
            raise NotPlain("progressive, arithmetic, or with restarts of its own")
        at = end
    ids = [body[i] for i in range(1, 1 + 2 * body[0], 2)]
    if ids != list(samples) or jpeg[-2:] != b"\xff\xd9":
        raise NotPlain("more than one scan, or something behind it")
    if len(ids) == 1:
        samples[ids[0]] = 1, 1  # a lone component has units of one block
    wide, high = (max(sample[i] for sample in samples.values()) for i in (0, 1))
    return _Image(
        head=jpeg[:at],
        scan=jpeg[at:end],
        codes=jpeg[end:-2].replace(b"\xff\x00", b"\xff"),
        blocks=[n for n, name in enumerate(ids) for _ in range(np.prod(samples[name]))],
        tables=[(tables[b >> 4], tables[0x10 | b & 15]) for b in body[2 : 2 + 2 * len(ids) : 2]],
        width=8 * wide,
        height=8 * high,
        across=-(-sizes[1] // (8 * wide)),
        down=-(-sizes[0] // (8 * high)),
    )


def _tables(body: bytes) -> dict[int, Table]:
    """Return the tables of a segment: the symbols from the shortest code to the longest."""
    found = {}
    while body:
        counts = list(body[1:17])
        symbols = np.frombuffer(body, np.uint8, sum(counts), 17).astype(np.int64)
        found[body[0]] = symbols, np.repeat(np.arange(1, 17), counts)
        body = body[17 + sum(counts) :]
    return found


@dataclass(frozen=True)
class _Codes:
    """A table of codes: what the next 16 bits of a stream begin with, and how a symbol is written.

    A code of n bits is what 2 ** (16 - n) different windows of 16 bits begin with, and they follow
    each other in the order of the table.
    """

    table: Table

    def of_windows(self, values: NDArray[np.int64], *, otherwise: int) -> NDArray[np.int64]:
        """Return, for each of the 65,536 windows, the value of the symbol that it begins with."""
        spread = np.repeat(values, 1 << (16 - self.table[1]))
        return np.append(spread, np.full(65536 - len(spread), otherwise))

    def steps(self, *, first: bool) -> NDArray[np.int16]:
        """Return how far each window leads: bits, and 256 times the numbers of the block."""
        symbols, lengths = self.table
        size = symbols & 15  # bits behind the code, which are a number
        numbers = np.where(size > 0, (symbols >> 4) + 1, np.where(symbols == 0xF0, 16, 64))
        step = (lengths + size) | (1 if first else numbers) << 8
        return self.of_windows(step, otherwise=1).astype(np.int16)

    def written(self) -> dict[int, tuple[int, int]]:
        """Return the code of each symbol, and its length in bits."""
        symbols, lengths = self.table
        places = np.cumsum(1 << (16 - lengths)) - (1 << (16 - lengths))
        codes = places >> (16 - lengths)
        pairs = zip(codes.tolist(), lengths.tolist(), strict=True)
        return dict(zip(symbols.tolist(), pairs, strict=True))


def _find_blocks(images: list[_Image]) -> None:
    """Find the bit where each block of each image begins, and the one behind the last."""
    if not images:
        return
    lengths = np.array([len(image.codes) for image in images])
    words = _windows(b"".join(image.codes for image in images) + bytes(4 * _LOOK))
    begun = 8 * (np.cumsum(lengths) - lengths)
    steps, which = _all_steps(images)
    per_unit = np.array([len(image.blocks) for image in images])
    count = np.array([image.across * image.down for image in images]) * per_unit
    starts = np.zeros((len(images), int(count.max()) + _LOOK + 1), np.int64)
    row, pos = np.arange(len(images)), begun.copy()
    number, in_unit, block = (np.zeros(len(images), np.int64) for _ in range(3))
    while len(row):
        for _ in range(_LOOK):
            new = np.flatnonzero(number == 0)
            starts[row[new], block[new]] = pos[new]
            window = (words[pos >> 3] >> (8 - (pos & 7))) & 0xFFFF
            step = steps[which[row, 2 * in_unit + (number > 0)], window]
            pos += step & 0xFF
            number += step >> 8
            over = number >= 64
            number[over] = 0
            block += over
            in_unit = (in_unit + over) % per_unit
        left = np.flatnonzero((block < count) | ((block == count) & (number == 0)))
        state = row, pos, number, in_unit, block, per_unit, count
        row, pos, number, in_unit, block, per_unit, count = (values[left] for values in state)
    for image, found, start in zip(images, starts, begun, strict=True):
        blocks = image.across * image.down * len(image.blocks)
        image.starts = found[: blocks + 1] - start


def _windows(stream: bytes) -> NDArray[np.int64]:
    """Return the 24 bits that begin at each byte."""
    ahead = np.frombuffer(stream + bytes(2), np.uint8).astype(np.int64)
    return ahead[:-2] << 16 | ahead[1:-1] << 8 | ahead[2:]


def _all_steps(images: list[_Image]) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Return the different tables of steps, and which one each image takes.

    The second is (images, 2 x blocks of a unit): for the difference of each block, and for its
    other numbers. Most images share the tables of the standard.
    """
    steps: dict[tuple[bytes, bytes, bool], NDArray[np.int16]] = {}
    which = np.zeros((len(images), 2 * max(len(image.blocks) for image in images)), np.int64)
    for row, image in zip(which, images, strict=True):
        for place, part in enumerate(image.blocks):
            for kind, table in enumerate(image.tables[part]):
                key = table[0].tobytes(), table[1].tobytes(), kind == 0
                if key not in steps:
                    steps[key] = _Codes(table).steps(first=kind == 0)
                row[2 * place + kind] = list(steps).index(key)
    return np.stack(list(steps.values())), which


def _rewrite(image: _Image) -> Restarting | None:
    """Return an image with restart markers; None: its table has no code for a brightness."""
    across = next(n for n in range(LONGEST, 0, -1) if image.across % n == 0)
    per_interval = across * len(image.blocks)
    bits, brightness = _differences(image)
    firsts = [image.blocks.index(part) for part in range(len(image.tables))]
    written = [_Codes(table[0]).written() for table in image.tables]
    head = image.head + b"\xff\xdd\x00\x04" + across.to_bytes(2) + image.scan
    pieces, places = [head], [len(head)]
    starts = image.starts.tolist()
    for number, block in enumerate(range(0, len(starts) - 1, per_interval)):
        stream, length, cursor = 0, 0, starts[block]
        for first, codes in zip(firsts, written, strict=True):
            value = brightness[block + first]
            size = abs(value).bit_length()
            if size not in codes:
                return None
            code, code_bits = codes[size]
            before = starts[block + first] - cursor
            stream = stream << before | _bits(image.codes, cursor, before)
            stream = (stream << code_bits | code) << size | (
                value if value > 0 else value + (1 << size) - 1
            )
            length += before + code_bits + size
            cursor = starts[block + first] + bits[block + first]
        rest = starts[block + per_interval] - cursor
        stream = stream << rest | _bits(image.codes, cursor, rest)
        length += rest
        spare = -length % 8
        stream = stream << spare | (1 << spare) - 1
        last = block + per_interval == len(starts) - 1
        mark = 0xD9 if last else 0xD0 + number % 8
        piece = stream.to_bytes((length + spare) // 8).replace(b"\xff", b"\xff\0")
        pieces.append(piece + bytes([0xFF, mark]))
        places.append(places[-1] + len(pieces[-1]))
    return Restarting(
        b"".join(pieces),
        np.array(places, np.uint32),
        image.across // across,
        across * image.width,
        image.height,
    )


def _differences(image: _Image) -> tuple[list[int], list[int]]:
    """Return of each block the bits that tell its brightness, and that brightness."""
    stream = np.frombuffer(image.codes + bytes(8), np.uint8).astype(np.int64)
    begin = image.starts[:-1]
    words = np.zeros(len(begin), np.int64)  # the 40 bits from the byte on where a block begins
    for place in range(5):
        words = words << 8 | stream[(begin >> 3) + place]
    lengths, values = np.zeros_like(words), np.zeros_like(words)
    of_unit = np.resize(image.blocks, len(begin))
    for part, (table, _) in enumerate(image.tables):
        mine = np.flatnonzero(of_unit == part)
        word, codes = words[mine] << (begin[mine] & 7), _Codes(table)
        window = word >> 24 & 0xFFFF
        size = codes.of_windows(table[0], otherwise=0)[window]
        lengths[mine] = codes.of_windows(table[1], otherwise=1)[window] + size
        number = word >> (40 - lengths[mine]) & ((1 << size) - 1)
        number -= np.where((size > 0) & (number < 1 << np.maximum(size - 1, 0)), (1 << size) - 1, 0)
        values[mine] = np.cumsum(number)
    return lengths.tolist(), values.tolist()


def _bits(codes: bytes, start: int, count: int) -> int:
    """Return `count` bits from bit `start` on."""
    end = start + count
    return int.from_bytes(codes[start >> 3 : (end + 7) >> 3]) >> (-end % 8) & ((1 << count) - 1)
