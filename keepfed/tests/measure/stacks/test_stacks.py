"""The sampled lines: every part of a loop, every start method, and what is not the user's code."""

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType

import pytest
import torch
from torch.utils.data import DataLoader, dataloader

from keepfed.measure import hook
from keepfed.measure.diagnosis import diagnose
from keepfed.measure.hook import loader_hook, timed_sampler
from keepfed.measure.stacks import HotLine, OutsideSampler, StackSampler, read_lines
from keepfed.measure.stacks.place import PARTS, Frame, StackRow, find_row
from keepfed.measure.watch.timing import step_timer
from tests.fixtures import PROJECT, run_python
from tests.measure.stacks import slow_dataset
from tests.measure.stacks.slow_dataset import Slow, SlowOrder, collate, step

SOURCE = Path(slow_dataset.__file__).read_text("utf-8").splitlines()


def line_with(comment: str) -> int:
    return next(number for number, text in enumerate(SOURCE, 1) if comment in text)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.full), 1])
def test_a_diagnosis_names_the_line_of_each_part(workers: int) -> None:
    loader = DataLoader(Slow(), batch_sampler=SlowOrder(), collate_fn=collate, num_workers=workers)
    lines = diagnose(loader, step, seconds=5).measurements.lines
    for part, comment in (
        ("fetch", "the line of the fetch"),
        ("collate", "the line of collating"),
        ("sampler", "the line of the sampler"),
        ("loop", "the line of the loop"),
    ):
        first = lines[part][0]
        assert (first.line, Path(first.file).name) == (line_with(comment), "slow_dataset.py")
        assert first.share > 0.7


def test_few_samples_and_broken_files_name_no_line(tmp_path: Path) -> None:
    row = StackRow("loop", __file__, "f", 1, 0, "", (), seconds=0.05)
    (tmp_path / "stacks-a-1.json").write_text(json.dumps({"files": [], "rows": [row]}), "utf-8")
    (tmp_path / "stacks-a-2.json").write_text("[{", "utf-8")
    assert read_lines(tmp_path, "a") == {"loop": ()}


def test_a_full_disk_costs_the_lines_and_not_the_program(tmp_path: Path) -> None:
    sampler = StackSampler(tmp_path / "missing", "here")
    with sampler:
        time.sleep(0.05)
    assert read_lines(tmp_path / "missing", "here") == {}


class Operators(Slow):
    """Each method takes its time in the first line, and gives the GIL away in the second."""

    known, samples = list(range(200_000)), list(range(200_000))

    def search(self) -> float:
        found = -1 in self.known
        return float(torch.tensor(float(found)))

    def cut(self) -> float:
        part = self.samples[1:] + self.samples
        return float(torch.tensor(float(part[0])))

    def sleep(self) -> float:
        time.sleep(0.3)
        return float(torch.tensor(1.0))

    def run(self, name: str, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            getattr(self, name)()


def test_thread_names_no_line_that_may_be_wrong_and_py_spy_the_right_one(tmp_path: Path) -> None:
    for name in ("search", "cut", "sleep"):
        right = getattr(Operators, name).__code__.co_firstlineno + 1
        for process in (0, os.getpid()) if allowed() else (0,):
            first = sample(name, tmp_path, process)
            assert first.line == right or not (process or first.is_exact), (name, process, first)
            assert first.function.endswith(f"Operators.{name}")
            assert ("at or just before" in str(first)) == (not first.is_exact)
            assert first.waits == (name == "sleep"), first


def sample(name: str, tmp_path: Path, process: int) -> HotLine:
    """Return the first line of an operator. The loop becomes longer until py-spy has read it."""
    for seconds in (1.5, 5, 20):
        folder = tmp_path / f"{name}-{process}-{seconds}"
        folder.mkdir()
        outside = OutsideSampler(folder, process) if process else nullcontext()
        threads = threading.active_count()
        with outside, StackSampler(folder, "here", process):
            Operators().run(name, seconds)
        assert threading.active_count() == threads
        lines = read_lines(folder, "here")["loop"]
        if lines and (lines[0].is_exact or not process):
            break
    return lines[0]


@cache
def allowed() -> bool:
    scripts = sysconfig.get_path("scripts"), os.environ.get("PATH", "")
    program = shutil.which("py-spy", path=os.pathsep.join(scripts))
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw"
        words = f"{program} record --duration 1 --format raw --nonblocking --idle --output {raw}"
        command = [*words.split(), "--pid", str(os.getpid())]
        return bool(program) and not subprocess.run(command, capture_output=True).returncode


SITE = f"{os.sep}env{os.sep}site-packages{os.sep}"
HOOK = str(Path(hook.__file__).parent / "loader_hook.py")
LOOP = Frame("/a/train.py", "<module>", 9)
FETCH = [
    Frame(f"{SITE}torch/utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch", 54),
    Frame(HOOK, "Hook.follow.<locals>.notifying_fetch", 1),
    Frame(f"{SITE}torch/utils/data/dataloader.py", "_BaseDataLoaderIter.__next__", 700),
    LOOP,
]
FOLDER = Frame(f"{SITE}torchvision/datasets/folder.py", "ImageFolder.__getitem__", 245)
CROP = Frame(f"{SITE}torchvision/transforms/transforms.py", "RandomResizedCrop.forward", 960)
RESIZE = Frame(f"{SITE}PIL/Image.py", "Image.resize", 2000)
ITEM = Frame("/a/keepfed_train/data.py", "Images.__getitem__", 5)

STACKS = [  # innermost frame first; part, file, line and library
    ([ITEM, *FETCH], ("fetch", ITEM.file, 5, "")),
    ([RESIZE, CROP, ITEM, *FETCH], ("fetch", ITEM.file, 5, "PIL")),
    ([RESIZE, CROP, FOLDER, *FETCH], ("fetch", FOLDER.file, 245, "PIL")),
    ([ITEM, Frame(HOOK, "Hook.collate", 1), *FETCH], ("collate", ITEM.file, 5, "")),
    ([ITEM, Frame(f"<{HOOK}>", "TimedSampler.__next__", 1)], ("sampler", ITEM.file, 5, "")),
    ([LOOP], ("loop", LOOP.file, 9, "")),
    (FETCH, None),  # between two samples
    (FETCH[2:], None),  # waits for a worker
    ([ITEM, Frame("/lib/threading.py", "Thread._bootstrap", 1)], None),
    ([RESIZE, Frame(HOOK, "run", 1), LOOP], None),  # this package works
    ([RESIZE, Frame(HOOK, "f", 1), Frame(HOOK, "Hook.collate", 1), *FETCH], None),
]


def test_the_part_and_the_line_of_a_stack() -> None:
    for stack, right in STACKS:
        row = find_row(stack)
        found = row and (row.part, row.file, row.line, row.library)
        assert found == right, stack
    codes = _codes(loader_hook, timed_sampler, step_timer, dataloader)
    assert {code.co_qualname for code in codes} >= set(PARTS)  # in the hook and in torch


def _codes(*modules: ModuleType) -> Iterator[CodeType]:
    texts = (Path(str(module.__file__)).read_text("utf-8") for module in modules)
    codes = [compile(text, "", "exec") for text in texts]
    while codes:
        yield (code := codes.pop())
        codes += [const for const in code.co_consts if isinstance(const, CodeType)]


def test_a_line_in_a_package_becomes_the_line_that_created_its_object(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import vision\ndata = vision.Compose([vision.RandomResizedCrop(224)])\n")
    item = ITEM._replace(file=str(script), line=1)
    for stack, says in (
        ([RESIZE, CROP, FOLDER, *FETCH], "in `RandomResizedCrop`, created at train.py:2."),
        ([RESIZE, CROP, item, *FETCH], "in `import vision` (mostly `RandomResizedCrop`), at "
            "train.py:1 in Images.__getitem__."),
    ):  # fmt: skip
        row = find_row(stack)
        row = row._replace(seconds=1.0)
        text = json.dumps({"files": [str(script)], "rows": [row]})
        (tmp_path / "stacks-a-1.json").write_text(text, "utf-8")
        (line,) = read_lines(tmp_path, "a")["fetch"]
        assert str(line) == f"100 % of loading samples is decoding an image {says}"


OTHERS = ("spawn", "forkserver")
SHORT = """
import sys
from multiprocessing import get_context
from pathlib import Path
from keepfed.measure.stacks import StackSampler

def sample(folder):
    StackSampler(Path(folder), "short").start()
    total = 0
    for number in range(3_000_000):
        total += number

if __name__ == "__main__":
    if sys.argv[2] == "main":
        sample(sys.argv[1])
    else:
        process = get_context(sys.argv[2]).Process(target=sample, args=sys.argv[1:2])
        process.start()
        process.join()
        sys.exit(process.exitcode)
"""


@pytest.mark.parametrize(
    "method", ["main", "fork", *(pytest.param(name, marks=pytest.mark.full) for name in OTHERS)]
)
def test_a_sampler_stops_and_writes_before_its_process_ends(tmp_path: Path, method: str) -> None:
    script = tmp_path / "short.py"
    script.write_text(SHORT, "utf-8")
    run_python(script, tmp_path, method, env=os.environ | {"PYTHONPATH": PROJECT}, check=True)
    (file,) = tmp_path.glob("stacks-short-*.json")
    assert any(row[2] == "sample" for row in json.loads(file.read_text("utf-8"))["rows"])
