"""The audit names each fault of the samples, and accuses no correct loader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import keepfed
from keepfed.auditing.checks import check
from keepfed.auditing.loops import audit_iterator
from keepfed.auditing.program import show
from keepfed.auditing.record import Account, EpochRecord, describe
from keepfed.errors import KeepfedError
from tests.keepfed.auditing.loaders import CORRECT, FAULTY, Mixed, OwnGenerator, Table, loader

TRAIN = """
import sys, torch
from itertools import cycle, islice
from torch.utils.data import DataLoader, DistributedSampler, Subset
from tests.keepfed.auditing.loaders import Mixed
if __name__ == "__main__":
    train = Mixed()
    valid = {valid}
    loader = DataLoader(train, 16, {how})
    for epoch in range(2):
        for batch in loader:
            pass
        with torch.no_grad():
            for batch in DataLoader(valid, 16):
                pass
    sys.exit({code})
"""


@pytest.mark.parametrize("name", FAULTY)
def test_each_fault_is_named_with_evidence_and_a_change(name: str) -> None:
    kind, make = FAULTY[name]
    report = keepfed.audit(make())
    faults = [finding for finding in report.findings if finding.fault]
    kinds = [finding.kind for finding in faults]
    assert kinds == ([kind, "left out"] if name == "repeated samples" else [kind]), report
    assert not report.right
    assert faults[0].change
    assert any(character.isdigit() for character in faults[0].says)


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_loader_is_not_accused(name: str) -> None:
    report = keepfed.audit(CORRECT[name](), epochs=3)
    assert report.right, report
    assert str(report).startswith("Right")


def test_an_audit_changes_no_batch_and_no_random_number() -> None:
    def epochs(audited: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        one = loader(OwnGenerator(), shuffle=True, num_workers=2)
        record = describe(one, "one")
        found = []
        for _ in range(2):
            account = Account(record, one) if audited else None
            batches = account.begin(one) if account else iter(one)
            found += [(account.take(b) if account else b)[0] for b in batches]
        return [*found, torch.rand(2)]

    for plain, audited in zip(epochs(False), epochs(True), strict=True):
        assert torch.equal(plain, audited)


def test_a_stale_epoch_number_is_found() -> None:
    dataset = Mixed()
    one = loader(dataset, shuffle=True, num_workers=1, persistent_workers=True)
    record = describe(one, "Mixed")
    for epoch in range(2):
        dataset.epoch = epoch
        account = Account(record, one)
        for received in account.begin(one):
            account.take(received)
        account.end(complete=True)
    (fault,) = (finding for finding in check([record]).findings if finding.fault)
    assert fault.kind == "stale epoch"
    del one  # ends its workers


def run(script: Path, *options: str, command: tuple[str, ...] = ()) -> tuple[int, str]:
    words = [sys.executable, "-m", "keepfed.command", "audit", *options]
    ran = subprocess.run(
        [*words, *command, str(script)],
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
    )
    return ran.returncode, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "valid", "code", "status", "says"),
    [
        ("shuffle=True", "Mixed(50)", 0, 0, "Right"),
        ("shuffle=True, num_workers=2", "Mixed(50)", 0, 0, "Right"),
        ("shuffle=True, num_workers=2", "Mixed(50)", 5, 5, "Right"),
        (
            "shuffle=True, num_workers=2, persistent_workers=True",
            "Subset(train, range(60))",
            0,
            1,
            "share 60 of 60 samples of validation",
        ),
        ("sampler=range(8, 320)", "Mixed(50)", 0, 0, "Right"),
        (
            "shuffle=True)\n    loader = islice(cycle(loader), 30",
            "Mixed(50)",
            0,
            1,
            "`itertools.cycle`",
        ),
    ],
)
def test_an_unchanged_program_is_audited(
    tmp_path: Path, how: str, valid: str, code: int, status: int, says: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN.format(how=how, valid=valid, code=code), "utf-8")
    returned, said = run(script, "--log", str(tmp_path / "log.jsonl"))
    assert (returned, says in said) == (status, True), said
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    training = [row for row in rows if row["loader"] == rows[0]["loader"]]
    assert [row["step"] for row in training] == [*range(len(training))]
    line = next(show(tmp_path / "log.jsonl", step=3, sample=str(training[3]["samples"][0])))
    assert f"batch 3, {'worker' if 'workers' in how else 'main process'}" in line


@pytest.mark.slow
def test_ranks_that_serve_the_same_are_found_under_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN.format(how="shuffle=True", valid="Mixed(50)", code=0), "utf-8")
    torchrun = sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"
    status, said = run(script, command=torchrun)
    assert (status, "ranks 0 and 1 serve 320 samples in common" in said) == (1, True), said
    right = "sampler=DistributedSampler(train, 2, int(__import__('os').environ['RANK']))"
    text = TRAIN.format(how=right, valid="Mixed(50)", code=0)
    script.write_text(
        text.replace(
            "        for batch in loader", "        loader.sampler.set_epoch(epoch)\n"
            "        for batch in loader",
        ),
        "utf-8",
    )  # fmt: skip
    status, said = run(script, command=torchrun)
    assert (status, "Right" in said) == (0, True), said


def test_ten_million_samples_stay_below_200_megabytes() -> None:
    count = 10_000_000
    prints: Any = np.arange(count, dtype=np.uint64)
    indices: Any = np.random.default_rng(0).permutation(count)
    assert prints.nbytes + indices.nbytes < 200e6
    epoch = EpochRecord(
        0, True, None, True, sizes=[count], workers=[0], prints=prints, indices=indices
    )
    audited = describe(DataLoader(Table(8)), "many")
    audited.expected, audited.total, audited.epochs = count, count, [epoch]
    assert check([audited]).right


def test_a_log_that_does_not_match_or_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(KeepfedError, match="Pass the file of"):
        list(show(tmp_path / "none"))
    (tmp_path / "log").write_text("", "utf-8")
    with pytest.raises(KeepfedError, match=r"No batch in .* matches\. It has 0 batches"):
        list(show(tmp_path / "log", step=1))
    with pytest.raises(KeepfedError, match="without a DataLoader"):
        keepfed.audit([1, 2])


def test_a_torch_without_a_private_name_leaves_the_training_unaudited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("keepfed.measure.hook.loader_hook.missing", lambda: ("a name",))
    batches = audit_iterator(loader(Table()), iter)
    assert len([*batches]) == 20
    assert "a name" in capsys.readouterr().err
