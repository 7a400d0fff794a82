"""Typical wrong answers to the exercises of notebook 04, importable by workers."""

import os
import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from course_utils.loading.workers import LazyFile, worker_rng


class AsAList:
    """Keeps the list."""

    def __init__(self, strings: list[str]):
        self.strings: Any = strings

    def __len__(self) -> int:
        return len(self.strings)

    def __getitem__(self, index: int) -> Any:
        return self.strings[index]


class AsBytesInAList(AsAList):
    def __init__(self, strings: list[str]):
        self.strings = [string.encode() for string in strings]

    def __getitem__(self, index: int) -> str:
        return self.strings[index].decode()  # type: ignore[no-any-return]


class AsObjects(AsAList):
    def __init__(self, strings: list[str]):
        self.strings = np.array(strings, object)


class AsNumpyStrings(AsAList):
    def __init__(self, strings: list[str]):
        self.strings = np.array(strings)

    def __getitem__(self, index: int) -> str:
        return str(self.strings[index])


class AsFixedBytes(AsAList):
    def __init__(self, strings: list[str]):
        self.strings = np.array([string.encode() for string in strings])

    def __getitem__(self, index: int) -> str:
        return bytes(self.strings[index]).decode()


class Joined:
    """Keeps one text and the places; what the others get wrong."""

    def __init__(self, strings: list[str]):
        self.text: Any = b"".join(string.encode() for string in strings)
        self.places: Any = np.cumsum([0, *(len(string.encode()) for string in strings)])

    def __len__(self) -> int:
        return len(self.places) - 1

    def __getitem__(self, index: int) -> Any:
        return self.text[self.places[index] : self.places[index + 1]].decode()


class PlacesInCharacters(Joined):
    def __init__(self, strings: list[str]):
        super().__init__(strings)
        self.places = np.cumsum([0, *map(len, strings)])

    def __getitem__(self, index: int) -> str:
        text = self.text[self.places[index] : self.places[index + 1]]
        return text.decode(errors="replace")  # type: ignore[no-any-return]


class ReturnsBytes(Joined):
    def __getitem__(self, index: int) -> Any:
        return self.text[self.places[index] : self.places[index + 1]]


class OneTooMany(Joined):
    def __len__(self) -> int:
        return len(self.places)


class OneFurther(Joined):
    def __getitem__(self, index: int) -> Any:
        index = (index + 1) % len(self)
        return super().__getitem__(index)


class PlacesInAList(Joined):
    def __init__(self, strings: list[str]):
        super().__init__(strings)
        self.places = self.places.tolist()


class InArrow(AsAList):
    """Keeps them in an Arrow array, which is as good."""

    def __init__(self, strings: list[str]):
        import pyarrow as pa

        self.strings = pa.array(strings)

    def __getitem__(self, index: int) -> str:
        return self.strings[int(index)].as_py()  # type: ignore[no-any-return]


class RowReader:
    """Reads rows of 8 numbers; the others get the handle wrong."""

    def __init__(self, path: str):
        self.path = path
        self._file: Any = None

    @property
    def file(self) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        return os.path.getsize(self.path) // 64

    def __getitem__(self, index: int) -> np.ndarray:
        self.file.seek(64 * index)
        return np.frombuffer(self.file.read(64), np.int64)


class OpensInInit(RowReader):
    def __init__(self, path: str):
        super().__init__(path)
        self._file = open(path, "rb")  # noqa: SIM115

    @property
    def file(self) -> Any:
        return self._file

    def __del__(self) -> None:
        self._file.close()


class OpensAlways(RowReader):
    def __getitem__(self, index: int) -> np.ndarray:
        with open(self.path, "rb") as file:
            file.seek(64 * index)
            return np.frombuffer(file.read(64), np.int64)


class OpensOnce(RowReader):
    """Opens on first use, in whatever process that is."""

    @property
    def file(self) -> Any:
        if self._file is None:
            self._file = open(self.path, "rb")  # noqa: SIM115
        return self._file


class OpensOnceAndTravels(OpensOnce):
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}


class OpensByProcess(OpensOnce):
    """Knows the process, but cannot travel once it has opened."""

    opened_by = -1

    @property
    def file(self) -> Any:
        if self.opened_by != os.getpid():
            self._file, self.opened_by = open(self.path, "rb"), os.getpid()  # noqa: SIM115
        return self._file


class NextRow(OpensAlways):
    def __getitem__(self, index: int) -> np.ndarray:
        return super().__getitem__((index + 1) % len(self))


class HalfARow(OpensAlways):
    def __getitem__(self, index: int) -> np.ndarray:
        return super().__getitem__(index)[:4]


class OnLazyFile(RowReader):
    """Takes what the course has for it."""

    def __init__(self, path: str):
        super().__init__(path)
        self.lazy = LazyFile(open, path, "rb")

    @property
    def file(self) -> Any:
        return self.lazy.file

    def close(self) -> None:
        self.lazy.close()


class ByPosition(RowReader):
    """Reads without a position, through a descriptor of its own."""

    @property
    def file(self) -> int:
        if self._file is None or self._file[0] != os.getpid():
            self._file = os.getpid(), os.open(self.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        return int(self._file[1])

    def __getitem__(self, index: int) -> np.ndarray:
        os.lseek(self.file, 64 * index, os.SEEK_SET)
        return np.frombuffer(os.read(self.file, 64), np.int64)


class Drawing:
    """Draws a number for each sample."""

    def __init__(self, length: int):
        self.length = length
        self.rng: Any = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return int(self.generator(index).integers(1_000_000))

    def generator(self, index: int) -> np.random.Generator:
        raise NotImplementedError


class MadeInInit(Drawing):
    def __init__(self, length: int):
        super().__init__(length)
        self.rng = np.random.default_rng(0)

    def generator(self, index: int) -> Any:
        return self.rng


class MadeOnce(Drawing):
    def generator(self, index: int) -> Any:
        self.rng = self.rng or np.random.default_rng(torch.initial_seed())
        return self.rng


class MadeForEverySample(Drawing):
    def generator(self, index: int) -> Any:
        return np.random.default_rng(torch.initial_seed())


class SeededByWorker(Drawing):
    def generator(self, index: int) -> Any:
        info = get_worker_info()
        number = info.id if info else 0
        if self.rng is None or self.rng[0] != os.getpid():
            self.rng = os.getpid(), np.random.default_rng(number)
        return self.rng[1]


class SeededByIndex(Drawing):
    def generator(self, index: int) -> Any:
        return np.random.default_rng(index)


class SeededBySample(Drawing):
    """Right in workers; without them every epoch brings the same."""

    def generator(self, index: int) -> Any:
        return np.random.default_rng([torch.initial_seed(), index])


class SeededByNothing(Drawing):
    def generator(self, index: int) -> Any:
        if self.rng is None or self.rng[0] != os.getpid():
            self.rng = os.getpid(), np.random.default_rng()
        return self.rng[1]


class SeededByTheClock(Drawing):
    def generator(self, index: int) -> Any:
        return np.random.default_rng(time.time_ns() + os.getpid())


class LegacyNumpy(Drawing):
    """Right in workers; in the notebook torch.manual_seed does not reach it."""

    def __getitem__(self, index: int) -> int:
        return int(np.random.randint(1_000_000))


class PlainRandom(Drawing):
    def __getitem__(self, index: int) -> int:
        return random.randrange(1_000_000)


class ByTorch(Drawing):
    def __getitem__(self, index: int) -> int:
        return int(torch.randint(1_000_000, ()))


class ByWorkerRng(Drawing):
    def generator(self, index: int) -> Any:
        return worker_rng()


def first_of(strings: Sequence[str]) -> str:
    """Be no class."""
    return strings[0]
