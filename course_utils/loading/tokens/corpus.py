"""A corpus: all its tokens in one file, mapped into memory, and where each document begins.

    code = Corpus(data_path("tokens"), "code")
    code.tokens[:128]  # uint16: of the file, only what is looked at is read
    code[7]  # the tokens of document 7, with END behind them

Two bytes hold a token where the vocabulary has at most 65,536 of them. An embedding takes no
uint16: convert to int64 as late as you can, a window at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keepfed.loaders.workers import LazyFile

Tokens = NDArray[np.uint16]
END = 0  # behind each document
END_TEXT = "<|endoftext|>"  # how the tokenizer writes it


class Corpus(Sequence[Tokens]):
    """The documents of one corpus, in the order on disk."""

    def __init__(self, folder: str | Path, name: str):
        """Read where documents begin, and no token.

        Args:
            folder: tokens as make_tokens writes them.
            name: of the corpus, such as "code".

        Raises:
            FileNotFoundError: there is no such corpus.
        """
        self.folder, self.name = Path(folder), name
        path = self.folder / name
        if not (path / "tokens.npy").is_file():
            there = ", ".join(sorted(file.parent.name for file in self.folder.glob("*/tokens.npy")))
            raise FileNotFoundError(
                f"There is no corpus {name!r} in {folder}; "
                + (
                    f"choose one of {there}."
                    if there
                    else f"make some with `python -m course_data.make_tokens --out {folder}`."
                )
            )
        self.offsets: NDArray[np.int64] = np.load(path / "offsets.npy")
        # each process maps the file for itself: a map that is pickled would be copied whole
        self._map: LazyFile[Tokens] = LazyFile(np.load, path / "tokens.npy", mmap_mode="r")

    @property
    def tokens(self) -> Tokens:
        """All tokens of all documents, end to end."""
        return self._map.file

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Tokens:  # type: ignore[override]
        index = range(len(self))[index]
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]
