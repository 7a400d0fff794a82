"""Typical answers to the exercises of notebook 06, in a file as the check wants them."""

import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pulses = NDArray[np.float32]
PER_SHARD = 100
ROW = 16  # bytes

_kept: dict[str, list[Pulses]] = {}


def _shards(events: Sequence[Pulses]) -> dict[str, Sequence[Pulses]]:
    firsts = range(0, len(events), PER_SHARD)
    return {f"{first // PER_SHARD}.bin": events[first : first + PER_SHARD] for first in firsts}


def _offsets(events: Sequence[Pulses]) -> NDArray[np.int64]:
    sizes = [event.nbytes for event in events]
    return 8 * (len(events) + 1) + np.cumsum([0, *sizes], dtype=np.int64)


def _write(path: Path, offsets: NDArray[np.int64], events: Sequence[Pulses]) -> None:
    path.write_bytes(offsets.tobytes() + b"".join(event.tobytes() for event in events))


def _find(file: Any, place: int) -> tuple[int, int]:
    file.seek(8 * place)
    start, stop = np.frombuffer(file.read(16), np.int64).tolist()
    return start, stop


def _pulses(content: bytes) -> Pulses:
    return np.frombuffer(content, np.float32).reshape(-1, 4)


def write_shards(events: Sequence[Pulses], folder: str) -> None:
    """Right: offsets in bytes stand at the head of each shard."""
    for name, some in _shards(events).items():
        _write(Path(folder, name), _offsets(some), some)


def read_event(fs: Any, folder: str, index: int) -> Pulses:
    shard, place = divmod(index, PER_SHARD)
    with fs.open(f"{folder}/{shard}.bin") as file:
        start, stop = _find(file, place)
        file.seek(start)
        return _pulses(file.read(stop - start))


def write_with_index(events: Sequence[Pulses], folder: str) -> None:
    """Right too: the offsets have a file of their own."""
    for name, some in _shards(events).items():
        offsets = _offsets(some) - 8 * (len(some) + 1)
        Path(folder, name).write_bytes(b"".join(event.tobytes() for event in some))
        Path(folder, f"{name}.offsets").write_bytes(offsets.tobytes())


def read_with_index(fs: Any, folder: str, index: int) -> Pulses:
    shard, place = divmod(index, PER_SHARD)
    with fs.open(f"{folder}/{shard}.bin.offsets") as file:
        offsets = np.frombuffer(file.read(), np.int64).tolist()
    with fs.open(f"{folder}/{shard}.bin") as file:
        file.seek(offsets[place])
        return _pulses(file.read(offsets[place + 1] - offsets[place]))


def write_a_file_each(events: Sequence[Pulses], folder: str) -> None:
    for index, event in enumerate(events):
        np.save(Path(folder, f"{index}.npy"), event)


def write_one_file(events: Sequence[Pulses], folder: str) -> None:
    _write(Path(folder, "0.bin"), _offsets(events), events)


def write_nothing(events: Sequence[Pulses], folder: str) -> None:
    _offsets(events)


def write_without_the_end(events: Sequence[Pulses], folder: str) -> None:
    """Forgets that n events have n + 1 offsets."""
    write_with_index(events, folder)
    for path in Path(folder).glob("*.offsets"):
        path.write_bytes(path.read_bytes()[:-8])


def read_three_times(fs: Any, folder: str, index: int) -> Pulses:
    shard, place = divmod(index, PER_SHARD)
    with fs.open(f"{folder}/{shard}.bin") as file:
        file.seek(8 * place)
        start, stop = (int(np.frombuffer(file.read(8), np.int64)[0]) for _ in range(2))
        file.seek(start)
        return _pulses(file.read(stop - start))


def read_whole_shard(fs: Any, folder: str, index: int) -> Pulses:
    shard, place = divmod(index, PER_SHARD)
    with fs.open(f"{folder}/{shard}.bin") as file:
        content = io.BytesIO(file.read())
        start, stop = _find(content, place)
        return _pulses(content.getvalue()[start:stop])


def read_past_the_storage(fs: Any, folder: str, index: int) -> Pulses:
    shard, place = divmod(index, PER_SHARD)
    with open(f"{folder}/{shard}.bin", "rb") as file:
        start, stop = _find(file, place)
        file.seek(start)
        return _pulses(file.read(stop - start))


def read_flat(fs: Any, folder: str, index: int) -> Pulses:
    return read_event(fs, folder, index).ravel()


def read_double(fs: Any, folder: str, index: int) -> NDArray[np.float64]:
    return read_event(fs, folder, index).astype(np.float64)


def read_next(fs: Any, folder: str, index: int) -> Pulses:
    """Takes the offset of the head to be the event's."""
    shard, place = divmod(index, PER_SHARD)
    with fs.open(f"{folder}/{shard}.bin") as file:
        start, stop = _find(file, place)
        file.seek(start - 8)
        return _pulses(file.read(stop - start))


def read_bytes(fs: Any, folder: str, index: int) -> bytes:
    return read_event(fs, folder, index).tobytes()


def read_refusing_nothing(fs: Any, folder: str, index: int) -> Pulses:
    found = read_event(fs, folder, index)
    if not len(found):
        raise ValueError("no pulses")
    return found


def write_padded(events: Sequence[Pulses], folder: str) -> None:
    longest = max(len(event) for event in events)
    for name, some in _shards(events).items():
        padded = np.zeros((len(some), longest, 4), np.float32)
        for row, event in zip(padded, some, strict=True):
            row[: len(event)] = event
        np.save(Path(folder, name), padded)
        Path(folder, name + ".npy").replace(Path(folder, name))


def read_padded(fs: Any, folder: str, index: int) -> Pulses:
    shard, place = divmod(index, PER_SHARD)
    with fs.open(f"{folder}/{shard}.bin") as file:
        found: Pulses = np.load(io.BytesIO(file.read()))[place]
        return found


def write_pickled(events: Sequence[Pulses], folder: str) -> None:
    for name, some in _shards(events).items():
        Path(folder, name).write_bytes(pickle.dumps([np.ascontiguousarray(e) for e in some]))


def read_pickled(fs: Any, folder: str, index: int) -> Pulses:
    shard, place = divmod(index, PER_SHARD)
    with fs.open(f"{folder}/{shard}.bin") as file:
        found: Pulses = pickle.load(file)[place]
        return found


def write_and_keep(events: Sequence[Pulses], folder: str) -> None:
    write_shards(events, folder)
    _kept[folder] = list(events)


def read_kept(fs: Any, folder: str, index: int) -> Pulses:
    return _kept[folder][index]


def read_kept_offsets(fs: Any, folder: str, index: int) -> Pulses:
    """Knows from the writing how long each event is."""
    length = _kept[folder][index].nbytes
    shard, place = divmod(index, PER_SHARD)
    with fs.open(f"{folder}/{shard}.bin") as file:
        file.seek(_find(file, place)[0])
        return _pulses(file.read(length))


def to_uint16(values: NDArray[Any]) -> NDArray[np.uint16]:
    """Right in another way than the solution: looks before it converts."""
    if values.size and not (values.min() >= 0 and values.max() <= 65_535):
        raise ValueError("below 0, above 65,535, or not a number")
    if values.dtype.kind == "f" and (values != np.floor(values)).any():
        raise ValueError("not whole")
    return values.astype(np.uint16)


def cast(values: NDArray[Any]) -> NDArray[np.uint16]:
    return values.astype(np.uint16)


def clip(values: NDArray[Any]) -> NDArray[np.uint16]:
    return np.clip(values, 0, 65_535).astype(np.uint16)


def only_the_top(values: NDArray[Any]) -> NDArray[np.uint16]:
    if values.size and values.max() > 65_535:
        raise ValueError("too large")
    return values.astype(np.uint16)


def only_the_limits(values: NDArray[Any]) -> NDArray[np.uint16]:
    if values.size and (values.min() < 0 or values.max() > 65_535):
        raise ValueError("out of range")
    return values.astype(np.uint16)


def not_nan(values: NDArray[Any]) -> NDArray[np.uint16]:
    """All is looked at but NaN, which no comparison finds."""
    if values.size and (values.min() < 0 or values.max() > 65_535 or (values % 1 > 0).any()):
        raise ValueError("out of range")
    return values.astype(np.uint16)


def limit_too_low(values: NDArray[Any]) -> NDArray[np.uint16]:
    if values.size and not (values.min() >= 0 and values.max() < 65_535):
        raise ValueError("out of range")
    return values.astype(np.uint16)


def asserting(values: NDArray[Any]) -> NDArray[np.uint16]:
    small = values.astype(np.uint16)
    assert np.array_equal(small, values)
    return small


def max_of_nothing(values: NDArray[Any]) -> NDArray[np.uint16]:
    if not (values.min() >= 0 and values.max() <= 65_535):
        raise ValueError("out of range")
    return to_uint16(values)


def by_dtype(values: NDArray[Any]) -> NDArray[np.uint16]:
    if values.dtype.kind not in "iu":
        raise ValueError("no integers")
    return to_uint16(values)


def to_int32(values: NDArray[Any]) -> NDArray[np.int32]:
    return to_uint16(values).astype(np.int32)


def to_list(values: NDArray[Any]) -> list[int]:
    found: list[int] = to_uint16(values).tolist()
    return found


def flattened(values: NDArray[Any]) -> NDArray[np.uint16]:
    return to_uint16(values).ravel()


def rounding(values: NDArray[Any]) -> NDArray[np.uint16]:
    return to_uint16(np.round(values))


def in_place(values: NDArray[Any]) -> NDArray[np.uint16]:
    small = to_uint16(values)
    values *= 0
    return small


def refuse_all(values: NDArray[Any]) -> NDArray[np.uint16]:
    raise ValueError("no")
