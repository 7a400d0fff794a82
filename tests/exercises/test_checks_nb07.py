"""The checks of notebook 07: other right answers pass, typical slips are named."""

import builtins
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from course_utils.teaching.exercise import check
from notebooks.exercises.nb07 import ex1_stage_a_file as staging
from notebooks.exercises.nb07 import job as staging_job
from tests.exercises.solutions import Change, assert_refused, judge

TARGET = "target = Path(place, Path(source).name)\n"
LOCK = 'with FileLock(f"{target}.lock"):'
SAME = "(now.st_size, now.st_mtime_ns) == (was.st_size, was.st_mtime_ns)"
COPY = "            shutil.copy2(source, half)\n            os.replace(half, target)\n"
CLEAN = "        finally:\n            half.unlink(missing_ok=True)"
IN_PIECES = """\
with open(source, "rb") as old, open(half, "wb") as new:
                while piece := old.read(4096):
                    new.write(piece)
            os.utime(half, ns=(was.st_atime_ns, was.st_mtime_ns))"""
LOCK_FILE = """\
from contextlib import contextmanager

@contextmanager
def lock_file(path):
    while path.exists():
        pass
    path.touch()
    yield
    path.unlink()

def stage("""


def instead(*lines: str) -> list[Change]:
    """Do this in place of all that the solution does with its target."""
    return [(TARGET, TARGET + "".join(f"    {line}\n" for line in lines))]


@pytest.mark.slow
def test_another_way_to_stage_is_right_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "SETTLE_S", 0.3)
    elsewhere = ('{target}.lock"', '{place}/.lock"'), ('f"{target.name}.part"', '"unfinished"')
    verdict = judge("07.1", folder, *elsewhere, ("shutil.copy2(source, half)", IN_PIECES))
    assert verdict.status == "right", verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("misconception", "changes"),
    [
        (
            "The next one took what lay there for the file",  # as in the lecture
            instead("if not target.exists():", "    shutil.copy(source, target)", "return target"),
        ),
        ("The copy has 0 bytes", instead('os.system(f"cp {source} {place}")', "return target")),
        (
            "stage returned as if all were well",
            instead(
                "import subprocess",
                'target.exists() or subprocess.run(["cp", source, str(target)])',
                "return target",
            ),
        ),
        (
            "a link to the source",
            instead("target.exists() or target.symlink_to(source)", "return target"),
        ),
        ("the copy belongs into", instead("return source")),
        ("reads the whole source again", [(SAME, "False")]),
        (
            "reads the whole source again",
            [(SAME, "Path(source).read_bytes() == target.read_bytes()")],
        ),
        ("reads the whole source again", [("copy2", "copyfile")]),
        ("(newer), and stage returned the old ones", [(SAME, "now.st_size == was.st_size")]),
        ("dated earlier", [(SAME, "now.st_mtime >= was.st_mtime")]),
        (
            "half a file lies under the final name",
            [
                (COPY, "            shutil.copy2(source, target)\n"),
                (CLEAN, "        except OSError:\n            target.unlink()\n            raise"),
            ],
        ),
        ("nobody gives it back", [('f"{target.name}.part"', 'f"{os.getpid()}.part"')]),
        ("the full /dev/shm stays full", [("half.unlink(missing_ok=True)", "pass")]),
        (
            "There was room for half of the file, and stage returned",
            [("finally:", "except OSError:")],
        ),
        ("both copied", [(LOCK, "if True:")]),
        (
            "both copied",  # locks after it has looked
            [(LOCK, "if True:"), (COPY, f"          {LOCK}\n{COPY}")],
        ),
        (
            '`raise ValueError("no such thing")`: ValueError: no such thing',
            instead('raise ValueError("no such thing")'),
        ),
        ("nobody had killed it", instead("os._exit(0)")),
        (
            "only in the notebook",
            [
                (
                    "import os\n",
                    "import os, sys\nassert 'pytest' in sys.modules, 'only in the notebook'\n",
                )
            ],
        ),
    ],
)
def test_a_wrong_way_to_stage_is_explained(
    misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge("07.1", folder, *changes), misconception)


@pytest.mark.slow
def test_a_lock_that_outlives_its_process_is_explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PATIENCE_S", 2.0)
    own = (LOCK, 'with lock_file(Path(f"{target}.lock")):')
    verdict = judge("07.1", folder, ("def stage(", LOCK_FILE), own)
    assert_refused(verdict, "a lock file that a killed process left behind")


def test_a_function_of_the_notebook_is_refused_before_a_process_dies_of_it() -> None:
    code: dict[str, Any] = {"__name__": "__main__"}
    exec("def stage(source, place):\n    return source\n", code)
    assert_refused(check("07.1", code["stage"]), "lives in the notebook")


def test_where_the_system_limits_no_files_what_open_returns_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtins, "open", open)  # to be undone
    staging_job.limit_open(10, deadly=False)
    with open(tmp_path / "file", "wb") as file:
        file.write(b"12345678")
        with pytest.raises(OSError, match="too large"):
            file.write(b"12345678")
    assert (tmp_path / "file").read_bytes() == b"1234567812"


ROOM = "budget // first.nbytes"
NOTE = "self.here[index] = True"
MINE = ("self.dataset = dataset\n", "self.dataset, self.found = dataset, {}\n")
GET = "        if index >= len(self.here):\n            return self.dataset[index]\n"
LAST_USED = """\
        sample = self.found.pop(index) if index in self.found else self.dataset[index]
        self.found[index] = sample
        while len(self.found) > len(self.here):
            del self.found[next(iter(self.found))]
        return sample.clone()
"""
IN_A_DICT = """\
        sample = self.found[index] if index in self.found else self.dataset[index]
        if len(self.found) < len(self.here):
            self.found[index] = sample
        return sample.clone()
"""
NO_PLACE = "self.used, self.place = 0, torch.full((len(dataset),), -1).share_memory_()"
NEXT_FREE_PLACE = """\
        if (place := int(self.place[index])) >= 0:
            return self.kept[place].clone()
        sample = self.dataset[index]
        if self.used < len(self.here):
            self.kept[self.used], self.place[index] = sample, self.used
            self.used += 1
        return sample
"""


@pytest.mark.slow
@pytest.mark.parametrize("filled", [False, True])
def test_a_right_cache_passes_however_workers_start_and_whoever_fills_it(
    filled: bool, folder: Path, start_method: str
) -> None:
    multiprocessing.set_start_method(start_method, force=True)
    fill = "\n        for index in range(1, places):\n            self[index]"
    here = "self.here = torch.zeros(places, dtype=torch.bool).share_memory_()"
    verdict = judge("07.2", folder, *[(here, here + fill)] * filled)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("misconception", "changes"),
    [
        ("nothing is kept", [(NOTE, "pass")]),
        (
            "the first epoch makes 121 requests",
            [(NOTE, f"{NOTE}\n            return self.dataset[index]")],
        ),
        ("you throw out the sample that is needed next", [MINE, (GET, LAST_USED)]),
        ("More is kept than that", [(f"min(len(dataset), {ROOM})", "len(dataset)")]),
        ("1 came without a request", [(ROOM, f"max(1, {ROOM})")]),
        ("room is unused", [("first.nbytes", "(4 * first.numel())")]),
        ("it gave away its own memory", [(".clone()", "")]),
        ("has 59 with your cache around it", [("len(self.dataset)", "len(self.dataset) - 1")]),
        ("is list; the dataset gives a tensor", [(".clone()", ".tolist()")]),
        pytest.param(
            "each had its own copy of the dataset", [MINE, (GET, IN_A_DICT)], marks=pytest.mark.slow
        ),
        pytest.param(
            "Two samples were kept in one place",
            [
                (MINE[0], f"{MINE[0]}        {NO_PLACE}\n"),
                (GET, NEXT_FREE_PLACE),
            ],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_wrong_cache_is_explained(
    misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge("07.2", folder, *changes), misconception)
