"""A corpus: all its tokens in one memory-mapped file, and the start of each document.

    code = Corpus(data_path("tokens"), "code")
    code.tokens[:128]  # uint16; reads only this part of the file
    code[7]  # the tokens of document 7, followed by END

A token takes two bytes if the vocabulary has at most 65,536 entries. Embeddings do not accept
uint16, so convert to int64 as late as possible, one window at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keepfed.loaders.workers import LazyFile

Tokens = NDArray[np.uint16]
END = 0  # token after each document
END_TEXT = "<|endoftext|>"  # text of this token in the tokenizer


class Corpus(Sequence[Tokens]):
    """The documents of one corpus, in the order on disk."""

    def __init__(self, folder: str | Path, name: str):
        """Read the offsets of the documents, but no tokens.

        Args:
            folder: Folder that make_tokens has written.
            name: Name of the corpus, such as "code".

        Raises:
            FileNotFoundError: If there is no such corpus.
            ValueError: If the offsets do not fit the tokens.
        """
        self.folder, self.name = Path(folder), name
        path = self.folder / name
        if not (path / "tokens.npy").is_file():
            raise FileNotFoundError(
                f"There is no corpus {name!r} in {folder}. Choose one of its folders, or create "
                f"them with `python -m data_scripts.make_tokens --out {folder}`."
            )
        self.offsets: NDArray[np.int64] = LazyFile(np.load, path / "offsets.npy").file
        # Each process maps the file itself, because pickling a memory map copies its contents.
        self._map: LazyFile[Tokens] = LazyFile(np.load, path / "tokens.npy", mmap_mode="r")
        at, count = self.offsets, self.tokens.size
        whole = all(x.ndim == 1 and x.dtype.kind in "iu" for x in (at, self.tokens))
        if not whole or len(at) < 2 or at[0] or at[-1] != count or (np.diff(at) < 0).any():
            raise ValueError(
                f"{path / 'offsets.npy'} does not fit the {count:,} tokens of this folder. Write "
                "whole numbers to both files. Offsets increase from 0 to the number of tokens."
            )

    @property
    def tokens(self) -> Tokens:
        """All tokens of all documents, concatenated."""
        return self._map.file

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Tokens:  # type: ignore[override]
        index = range(len(self))[index]
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]
