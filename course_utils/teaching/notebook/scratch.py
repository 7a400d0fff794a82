"""Where a notebook keeps what must outlive a cell: its modules and the learner's predictions."""

import os
import tempfile
from functools import cache
from pathlib import Path

FOLDER = ".course_cells"


@cache
def state_folder() -> Path:
    """Return a writable folder beside the notebook, or a temporary one where there is none."""
    folder = Path.cwd() / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        (folder / ".gitignore").write_text("*\n", "utf-8")
    except OSError:
        return Path(tempfile.mkdtemp(suffix=FOLDER))
    return folder


def replace_text(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old text or the new one, never a part."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.write_text(text, "utf-8")
    os.replace(partial, path)
