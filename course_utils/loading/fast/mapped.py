"""Map a .npy file into memory, and tell the system how it will be read."""

from __future__ import annotations

import mmap
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_utils.hardware.machine import memory_free


def map_array(path: str | Path) -> NDArray[Any]:
    """Return the array of a .npy file, to be read at random places.

    The file is not changed by what is written into the array: pages that are written are copied
    first. So torch takes it as it is, and it can be a file that this user may not write.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it is no .npy file of numbers, or not as long as its header says.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"There is no {path}; name a .npy file that exists.")
    try:
        array = np.lib.format.open_memmap(path, mode="c")
        if Path(path).stat().st_size != array.offset + array.nbytes:
            raise ValueError("it is longer than its header says")
    except OSError:
        raise
    except Exception as error:  # a header of other bytes makes numpy fail in many ways
        raise OSError(
            f"{path} is no whole .npy file ({error}); write it again, or copy it again from where "
            "it came."
        ) from error
    _advise(array)
    return array


def _advise(array: np.memmap[Any, Any]) -> None:
    """Ask for large pages where memory has room for all of it, else for no more than is read.

    Each place of a mapping is found through a table of its pages. Pages of 2 MB need a table 512
    times smaller than those of 4 kB, one that stays in the processor. They are read whole, which is
    no loss if they stay in memory, and 1,000 times too much if they do not.
    """
    fits = array.nbytes < memory_free()
    advice = getattr(mmap, "MADV_HUGEPAGE" if fits else "MADV_RANDOM", None)
    if advice is not None and isinstance(array.base, mmap.mmap):
        with suppress(OSError):  # a system without large pages
            array.base.madvise(advice)
