"""The sampled lines: every part of a loop, every start method, and what is not the user's code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from keepfed.measure.diagnosis import diagnose
from keepfed.measure.stacks import StackSampler, read_lines
from tests.fixtures import PROJECT
from tests.measure.stacks import slow_dataset
from tests.measure.stacks.slow_dataset import Slow, SlowOrder, collate, step

SOURCE = Path(slow_dataset.__file__).read_text("utf-8").splitlines()


def line_with(comment: str) -> int:
    return next(number for number, text in enumerate(SOURCE, 1) if comment in text)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.full), 1])
def test_a_diagnosis_names_the_line_of_each_part(workers: int) -> None:
    loader = DataLoader(Slow(), batch_sampler=SlowOrder(), collate_fn=collate, num_workers=workers)
    lines = diagnose(loader, step, seconds=3).measurements.lines
    for part, comment in (
        ("fetch", "the line of the fetch"),
        ("collate", "the line of collating"),
        ("sampler", "the line of the sampler"),
        ("loop", "the line of the loop"),
    ):
        first = lines[part][0]
        assert (first.line, Path(first.file).name) == (line_with(comment), "slow_dataset.py")
        assert first.share > 0.7
    said = f"is spent in `time.sleep`, called at slow_dataset.py:{lines['fetch'][0].line}"
    assert said in str(lines["fetch"][0])


def test_the_sampler_stops_its_thread_and_counts_the_calling_line(tmp_path: Path) -> None:
    before = threading.active_count()
    with StackSampler(tmp_path, "here"):
        end = time.perf_counter() + 0.4
        while time.perf_counter() < end:
            sum(range(20_000))
    assert threading.active_count() == before
    (line, *_) = read_lines(tmp_path, "here")["loop"]
    assert line.function.endswith("counts_the_calling_line")
    assert "sum(range(20_000))" in (line.source, line.call) or line.call == "sum"


def test_few_samples_and_broken_files_name_no_line(tmp_path: Path) -> None:
    row = {
        "part": "loop", "file": __file__, "function": "f", "position": [1, 1, -1, -1],
        "library": "", "seconds": 0.05,
    }  # fmt: skip
    (tmp_path / "stacks-a-1.json").write_text(json.dumps([row]), "utf-8")
    (tmp_path / "stacks-a-2.json").write_text("[{", "utf-8")
    assert read_lines(tmp_path, "a") == {"loop": ()}


def test_a_full_disk_costs_the_lines_and_not_the_program(tmp_path: Path) -> None:
    sampler = StackSampler(tmp_path / "missing", "here")
    with sampler:
        time.sleep(0.05)
    assert read_lines(tmp_path / "missing", "here") == {}


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
    words = [sys.executable, str(script), str(tmp_path), method]
    ran = subprocess.run(words, env=os.environ | {"PYTHONPATH": PROJECT})
    assert ran.returncode == 0
    (file,) = tmp_path.glob("stacks-short-*.json")
    assert any(row["function"] == "sample" for row in json.loads(file.read_text("utf-8")))
