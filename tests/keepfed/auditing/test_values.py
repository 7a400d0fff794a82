"""The audit reports scales, constant batches, read-only arrays, shared groups and bad resumes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

import keepfed
from keepfed.auditing.record import Audited, EpochRecord, describe
from keepfed.auditing.report import AuditFinding
from keepfed.auditing.resume import check_resume
from keepfed.errors import KeepfedError
from tests.keepfed.auditing.loaders import Mixed, Table, loader

N = 128
NORMAL = torch.randn(N, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def tensors(numbers: torch.Tensor, *, shuffle: bool = False) -> DataLoader[Any]:
    return DataLoader(TensorDataset(numbers, torch.arange(N) % 4), 16, shuffle=shuffle)


def findings(one: Any, other: Any = None, **options: Any) -> dict[str, AuditFinding]:
    report = keepfed.audit(one, validation=other, **options)
    return {finding.kind: finding for finding in report.findings}


def test_batches_in_pixels_and_in_shares_are_a_fault() -> None:
    numbers = torch.rand(N, 3, 8, 8)
    numbers[48:] *= 255
    found = findings(tensors(numbers))["changing scale"]
    assert found.fault
    assert "times as large" in found.says
    evenly = torch.arange(N).reshape(16, N // 16).T.flatten()  # each batch has 6 of 16 in shares
    assert "changing scale" not in findings(tensors(numbers[evenly]))


@pytest.mark.parametrize("heavy", [1.0, 3.0])
def test_noise_with_heavy_tails_is_not_a_changing_scale(heavy: float) -> None:
    found = findings(tensors(torch.exp(heavy * NORMAL), shuffle=True))
    assert "changing scale" not in found


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("constant", lambda numbers: numbers[:16].fill_(0)),
        ("not normalised", lambda numbers: numbers.mul_(60).add_(120)),
        ("not normalised", lambda numbers: numbers.mul_(0.01).add_(0.5)),
    ],
)
def test_odd_values_are_a_note(kind: str, change: Callable[[torch.Tensor], Any]) -> None:
    numbers = NORMAL.clone()
    assert kind not in findings(tensors(numbers))
    change(numbers)
    assert not findings(tensors(numbers))[kind].fault


def test_read_only_arrays_are_a_note() -> None:
    def views(samples: list[Any]) -> Any:
        array = np.stack([numbers.numpy() for numbers, _ in samples])
        array.flags.writeable = False
        return array

    found = findings(loader(Mixed(), shuffle=True, collate_fn=views))
    assert not found["read-only"].fault


def test_validation_in_another_scale_is_a_note() -> None:
    assert "other scale" not in findings(tensors(NORMAL), tensors(NORMAL.flip(0) * 1.5))
    found = findings(tensors(NORMAL), tensors(NORMAL.flip(0) * 58 + 120))["other scale"]
    assert not found.fault
    assert "in the other loader" in found.says


def test_groups_in_both_loaders_are_a_fault() -> None:
    runs = [index // 40 for index in range(320)]
    whole = Mixed()
    first, rest = Subset(whole, range(200)), Subset(whole, range(200, 320))
    right = findings(loader(first, shuffle=True), loader(rest), groups=runs)
    assert not [finding for finding in right.values() if finding.fault]
    early = Subset(whole, range(190))
    late = Subset(whole, range(190, 320))
    wrong = findings(loader(early, shuffle=True), loader(late), groups=runs)["shared groups"]
    assert wrong.fault
    assert "share 1 group, for example 4" in wrong.says
    with pytest.raises(KeepfedError, match="`groups` has 10 entries"):
        keepfed.audit(loader(early), validation=loader(late), groups=runs[:10])


def resumed(samples: list[int], *, drop_last: bool = False) -> list[AuditFinding]:
    """Return the findings of a resume, after a run that served samples 0 to 99 of 320."""
    rows = [
        {"loader": "Table", "epoch": 1, "samples": [*range(n, n + 10)]} for n in range(0, 100, 10)
    ]
    record: Audited = describe(loader(Table(), shuffle=True, drop_last=drop_last), "Table")
    indices: Any = np.array(samples)
    record.epochs = [EpochRecord(0, True, None, True, sizes=[len(samples)], indices=indices)]
    return [*check_resume(rows, [record])]


def test_a_resume_serves_the_rest_or_is_reported() -> None:
    assert resumed([*range(100, 320)]) == []
    assert resumed([*range(100, 310)], drop_last=True) == []
    (skips,) = resumed([*range(130, 320)])
    assert (skips.kind, skips.fault) == ("skipped by the resume", True)
    assert "30 of 320 samples" in skips.says
    (again,) = resumed([*range(90, 320)])
    assert (again.kind, again.fault) == ("served again", False)
    (over,) = resumed([*range(320)])
    assert (over.kind, over.fault) == ("starts over", True)


RESUMES = """
import sys, torch
from torch.utils.data import DataLoader
from tests.keepfed.auditing.loaders import Mixed
if __name__ == "__main__":
    start, stop = int(sys.argv[1]), int(sys.argv[2])
    order = torch.randperm(320, generator=torch.Generator().manual_seed(0)).tolist()
    for number, batch in enumerate(DataLoader(Mixed(), 16, sampler=order[16 * start:])):
        if number + 1 == stop:
            break
"""


@pytest.mark.slow
def test_two_runs_are_compared_by_the_log_of_the_first(tmp_path: Path) -> None:
    script, log = tmp_path / "train.py", tmp_path / "log.jsonl"
    script.write_text(RESUMES, "utf-8")

    def run(*options: str, start: int, stop: int) -> tuple[int, str]:
        words = [sys.executable, "-m", "keepfed.command", "audit", *options, str(script)]
        ran = subprocess.run(
            [*words, str(start), str(stop)],
            env=os.environ | {"PYTHONPATH": str(Path.cwd())},
            capture_output=True,
            text=True,
        )
        return ran.returncode, ran.stderr

    run("--log", str(log), start=0, stop=5)
    assert len(log.read_text("utf-8").splitlines()) == 5
    status, said = run("--after", str(log), start=7, stop=99)
    assert (status, "32 of 320 samples are served neither" in said) == (1, True), said
    status, said = run("--after", str(log), start=5, stop=99)
    assert "resume" not in said
    status, said = run("--after", str(tmp_path / "none"), start=5, stop=99)
    assert (status, "Pass the file of" in said) == (1, True), said


class Readings(Dataset[Any]):
    """Real-world values: padding, masks, constant columns and large energies."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        rng = np.random.default_rng(index)
        energies = np.zeros(40, np.float32)
        count = int(rng.integers(1, 40))
        energies[:count] = rng.pareto(1.5, count) * 1e3
        mask = (energies > 0).astype(np.float32)
        return {"energies": energies, "mask": mask, "weight": float(rng.normal()), "y": index % 2}


@pytest.mark.parametrize("workers", [0, 2])
def test_padded_events_with_large_numbers_are_not_accused(workers: int) -> None:
    report = keepfed.audit(loader(Readings(), shuffle=True, num_workers=workers))
    assert report.right, report
