"""Find a free folder for a report, and the folders of earlier reports beside it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

REPORT = "report.json"
NO_BATCH = (
    "No DataLoader returned a batch. This program builds its batches itself, or built none. Write "
    "`for batch in keepfed.watch(batches)` in its loop and run it again. If a function builds each "
    "batch, `batches` is `iter(function, None)`."
)
RECORD = "program.json"  # file with the `ProgramRun` of a record without a report


def claim_folder(out: Path) -> tuple[Path, list[Path]]:
    """Create `out`, or the first free one of `out`-2, `out`-3, ..., and list the ones before.

    A folder is free if it is empty. Its first file, a .gitignore, can be created only once, so two
    programs that end together get two folders.

    Raises:
        OSError: If a folder cannot be created.
    """
    earlier = list[Path]()
    for number in count(1):
        folder = out if number == 1 else out.with_name(f"{out.name}-{number}")
        if not folder.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            if not any(folder.iterdir()):
                try:
                    with (folder / ".gitignore").open("x") as file:
                        file.write("*\n")
                    return folder, earlier[::-1]
                except FileExistsError:  # the other program was faster
                    pass
        earlier.append(folder)
    raise AssertionError
