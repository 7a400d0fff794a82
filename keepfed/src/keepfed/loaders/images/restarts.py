"""Insert restart markers into JPEGs, so that a part can be decoded without the rest.

In a JPEG, blocks have codes of variable length, and the mean brightness (DC value) of a block is
stored as the difference from the previous block. To decode the last block, all blocks must be read.
A restart marker (ITU-T T.81, B.2.4.4) begins at a byte boundary and resets the DC prediction. No
pixel changes, because only the first differences after a marker get new codes. To find the codes,
hundreds of images are processed at once, one code of each image per NumPy step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FRAME, TABLES, SCAN, INTERVAL = 0xC0, 0xC4, 0xDA, 0xDD  # markers (FRAME is a baseline frame)
LONGEST = 4  # maximum length of an interval, in codec units of 8 x 8 or 16 x 16 pixels
_LOOK = 64  # codes between two checks for finished images
Table = tuple[NDArray[np.int64], NDArray[np.int64]]  # symbols, and lengths of their codes


@dataclass
class _Image:
    """The entropy-coded data of an image, and the tables that decode it."""

    head: bytes  # everything before the scan header
    scan: bytes  # scan header
    codes: bytes  # entropy-coded data without stuffed zeros
    blocks: list[int]  # component of each block of a unit
    tables: list[tuple[Table, Table]]  # DC and AC table of each component
    width: int  # pixels of a unit
    height: int
    across: int  # units in a row
    down: int  # rows of units
    starts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class RestartedJpeg:
    """A JPEG with restart markers, and the positions of its intervals."""

    jpeg: bytes
    starts: NDArray[np.uint32]  # first byte of each interval, then the end of the last one
    across: int  # intervals in a row of the image
    width: int  # pixels of an interval
    height: int


def with_restarts(jpegs: Sequence[bytes]) -> list[RestartedJpeg | None]:
    """Return each JPEG with restart markers, or None if it is progressive or not supported."""
    images = [_parse(jpeg) for jpeg in jpegs]
    _find_blocks([image for image in images if image is not None])
    return [None if image is None else _rewrite(image) for image in images]


def _parse(jpeg: bytes) -> _Image | None:
    """Split a JPEG into its parts, or return None if it cannot get restart markers.

    It may be progressive or arithmetic, have several scans, or already have markers.
    """
    tables: dict[int, Table] = {}
    at, sizes, samples = 2, (0, 0), dict[int, tuple[int, int]]()
    while True:
        if jpeg[at] != 0xFF:
            return None
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
            return None
        at = end
    ids = [body[i] for i in range(1, 1 + 2 * body[0], 2)]
    if ids != list(samples) or jpeg[-2:] != b"\xff\xd9":
        return None
    if len(ids) == 1:
        samples[ids[0]] = 1, 1  # with one component, a unit is one block
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
    """Return the tables of a segment, with symbols in order of code length."""
    found = {}
    while body:
        counts = list(body[1:17])
        symbols = np.frombuffer(body, np.uint8, sum(counts), 17).astype(np.int64)
        found[body[0]] = symbols, np.repeat(np.arange(1, 17), counts)
        body = body[17 + sum(counts) :]
    return found


def _of_windows(table: Table, values: NDArray[np.int64], otherwise: int) -> NDArray[np.int64]:
    """Return, for each of the 65,536 windows of 16 bits, the value of its first symbol.

    A code of n bits is the prefix of 2 ** (16 - n) windows. They are contiguous, in the order of
    the table.
    """
    spread = np.repeat(values, 1 << (16 - table[1]))
    return np.append(spread, np.full(65536 - len(spread), otherwise))


def _steps(table: Table, *, first: bool) -> NDArray[np.int16]:
    """Return the effect of the first code of each window, as bits + 256 * coefficients.

    Bits are those of the code and of the number after it. For example, a code of 4 bits for the
    symbol 0x12 stands for one zero and a number of 2 bits, so its step is 6 + 256 * 2. The code for
    the end of a block counts as 64 coefficients, which completes every block.
    """
    symbols, lengths = table
    size = symbols & 15  # bits of the number after the code
    numbers = np.where(size > 0, (symbols >> 4) + 1, np.where(symbols == 0xF0, 16, 64))
    step = (lengths + size) | (1 if first else numbers) << 8
    return _of_windows(table, step, 1).astype(np.int16)


def _encodings(table: Table) -> dict[int, tuple[int, int]]:
    """Return code and length in bits of each symbol."""
    symbols, lengths = table
    widths = 1 << (16 - lengths)
    codes = (np.cumsum(widths) - widths) >> (16 - lengths)
    pairs = zip(codes.tolist(), lengths.tolist(), strict=True)
    return dict(zip(symbols.tolist(), pairs, strict=True))


def _find_blocks(images: list[_Image]) -> None:
    """Find the first bit of each block of each image, and the end of the last block."""
    if not images:
        return
    lengths = np.array([len(image.codes) for image in images])
    words = _windows(b"".join(image.codes for image in images) + bytes(4 * _LOOK))
    begun = 8 * (np.cumsum(lengths) - lengths)
    steps, which = _all_steps(images)
    per_unit = np.array([len(image.blocks) for image in images])
    count = np.array([image.across * image.down for image in images]) * per_unit
    starts = np.zeros((len(images), int(count.max()) + _LOOK + 1), np.int64)
    # One column per unfinished image: its row in `starts`, the current bit, the coefficients found
    # in the current block, the index of the block in its unit, the index of the block, and the
    # numbers of blocks of a unit and of the image.
    zeros = np.zeros(len(images), np.int64)
    state = np.stack([np.arange(len(images)), begun, zeros, zeros, zeros, per_unit, count])
    while state.size:
        row, bit, coefficient, in_unit, block, per_unit, count = state
        for _ in range(_LOOK):
            new = np.flatnonzero(coefficient == 0)
            starts[row[new], block[new]] = bit[new]
            window = (words[bit >> 3] >> (8 - (bit & 7))) & 0xFFFF
            step = steps[which[row, 2 * in_unit + (coefficient > 0)], window]
            bit += step & 0xFF
            coefficient += step >> 8
            over = coefficient >= 64
            coefficient[over] = 0
            block += over
            in_unit[:] = (in_unit + over) % per_unit
        state = state[:, (block < count) | ((block == count) & (coefficient == 0))]
    for image, found, start in zip(images, starts, begun, strict=True):
        blocks = image.across * image.down * len(image.blocks)
        image.starts = found[: blocks + 1] - start


def _windows(stream: bytes) -> NDArray[np.int64]:
    """Return the 24 bits that start at each byte."""
    ahead = np.frombuffer(stream + bytes(2), np.uint8).astype(np.int64)
    return ahead[:-2] << 16 | ahead[1:-1] << 8 | ahead[2:]


def _all_steps(images: list[_Image]) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Return the distinct step tables, and (images, 2 x blocks of a unit) indices of them."""
    steps: dict[tuple[bytes, bytes, bool], NDArray[np.int16]] = {}
    which = np.zeros((len(images), 2 * max(len(image.blocks) for image in images)), np.int64)
    for row, image in zip(which, images, strict=True):
        for place, part in enumerate(image.blocks):
            for kind, table in enumerate(image.tables[part]):
                key = table[0].tobytes(), table[1].tobytes(), kind == 0
                if key not in steps:
                    steps[key] = _steps(table, first=kind == 0)
                row[2 * place + kind] = list(steps).index(key)
    return np.stack(list(steps.values())), which


def _rewrite(image: _Image) -> RestartedJpeg | None:
    """Return an image with restart markers, or None if its table lacks a required code."""
    across = next(n for n in range(LONGEST, 0, -1) if image.across % n == 0)
    per_interval = across * len(image.blocks)
    bits, brightness = _differences(image)
    firsts = [image.blocks.index(part) for part in range(len(image.tables))]
    encodings = [_encodings(table[0]) for table in image.tables]
    head = image.head + b"\xff\xdd\x00\x04" + across.to_bytes(2) + image.scan
    pieces, places = [head], [len(head)]
    starts = image.starts.tolist()
    for number, block in enumerate(range(0, len(starts) - 1, per_interval)):
        stream, length, cursor = 0, 0, starts[block]
        for first, codes in zip(firsts, encodings, strict=True):
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
    return RestartedJpeg(
        b"".join(pieces),
        np.array(places, np.uint32),
        image.across // across,
        across * image.width,
        image.height,
    )


def _differences(image: _Image) -> tuple[list[int], list[int]]:
    """Return the DC code length in bits and the DC value of each block."""
    stream = np.frombuffer(image.codes + bytes(8), np.uint8).astype(np.int64)
    begin = image.starts[:-1]
    words = np.zeros(len(begin), np.int64)  # the 40 bits from the first byte of each block
    for place in range(5):
        words = words << 8 | stream[(begin >> 3) + place]
    lengths, values = np.zeros_like(words), np.zeros_like(words)
    of_unit = np.resize(image.blocks, len(begin))
    for part, (table, _) in enumerate(image.tables):
        mine = np.flatnonzero(of_unit == part)
        word = words[mine] << (begin[mine] & 7)
        window = word >> 24 & 0xFFFF
        size = _of_windows(table, table[0], 0)[window]
        lengths[mine] = _of_windows(table, table[1], 1)[window] + size
        number = word >> (40 - lengths[mine]) & ((1 << size) - 1)
        number -= np.where((size > 0) & (number < 1 << np.maximum(size - 1, 0)), (1 << size) - 1, 0)
        values[mine] = np.cumsum(number)
    return lengths.tolist(), values.tolist()


def _bits(codes: bytes, start: int, count: int) -> int:
    """Return `count` bits, starting at bit `start`."""
    end = start + count
    return int.from_bytes(codes[start >> 3 : (end + 7) >> 3]) >> (-end % 8) & ((1 << count) - 1)
