"""A small corpus whose tokens are their positions."""

from pathlib import Path

import numpy as np
import pytest

from course_utils.loading.tokens import END, Corpus

LENGTHS = {"numbers": (7, 1, 30, 12, 2, 48), "few": (5, 6)}


@pytest.fixture
def corpora(tmp_path: Path) -> dict[str, Corpus]:
    """Return corpora of tokens 1, 2, 3, ..., in which each document ends with END."""
    for name, lengths in LENGTHS.items():
        (tmp_path / name).mkdir()
        offsets = np.cumsum([0, *lengths])
        tokens = np.arange(1, offsets[-1] + 1).astype(np.uint16)
        tokens[offsets[1:] - 1] = END
        np.save(tmp_path / name / "tokens.npy", tokens)
        np.save(tmp_path / name / "offsets.npy", offsets)
    return {name: Corpus(tmp_path, name) for name in LENGTHS}
