from collections.abc import Iterator
from pathlib import Path

import pytest

from course_utils.paths import scratch_folder


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The scratch folder of a notebook that lies in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    scratch_folder.cache_clear()
    yield scratch_folder()
    scratch_folder.cache_clear()
