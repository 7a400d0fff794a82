"""The audit finds each fault in the samples, and reports what an intention may explain as facts."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset, dataloader

import keepfed
from keepfed import command
from keepfed.auditing import loops
from keepfed.auditing.checks import check
from keepfed.auditing.record import Account, Audited, describe
from keepfed.auditing.report import AuditFinding, AuditReport
from keepfed.auditing.resume import check_resume
from keepfed.errors import KeepfedError
from keepfed.measure.watch import attach
from tests.auditing.loaders import CORRECT, Mixed, OwnGenerator, Table, loader
from tests.auditing.trainings import RIGHT, WRONG, OneIterator
from tests.fixtures import PROJECT


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], AuditReport]:
    """Return a function that runs a training in this process under the audit."""
    iterators: Any = dataloader._BaseDataLoaderIter
    monkeypatch.setattr(iterators, "__next__", iterators.__next__)  # to be restored
    monkeypatch.setattr(DataLoader, "_get_iterator", DataLoader._get_iterator)
    monkeypatch.setattr(iterators, "_step_timer", None, raising=False)
    monkeypatch.setenv("KEEPFED_OBSERVER", "keepfed.auditing.loops")
    attach._patch(dataloader)
    monkeypatch.setattr(loops, "_write", lambda pid: None)

    def run(training: Callable[[], None]) -> AuditReport:
        monkeypatch.setattr(loops, "_process", loops._Process())
        random.seed(0)
        torch.manual_seed(0)
        training()
        return check([known.audited for known in loops._process.known])

    return run


@pytest.mark.slow
def test_right_trainings_have_facts_but_no_fault(
    audited: Callable[[Callable[[], None]], AuditReport],
) -> None:
    for training, kinds in RIGHT.items():
        report = audited(training)
        assert report.right, (training, report)
        assert {finding.kind for finding in report.findings} == kinds, (training, report)
        assert str(report).startswith("Checked "), report
        assert "no fault of the kinds that the audit looks for" in str(report)
        assert str(report).count("\n  Right if ") == len(kinds)


def test_each_fault_is_named_with_evidence_and_a_change(
    audited: Callable[[Callable[[], None]], AuditReport],
) -> None:
    for training, (kind, says) in WRONG.items():
        report = audited(training)
        (fault,) = report.faults
        assert (fault.kind, says in fault.says) == (kind, True), report
        assert "1 fault of the kinds" in str(report)
        assert str(report).count("\n  Change: ") == 1


@pytest.mark.slow
def test_correct_loaders_have_no_fault() -> None:
    for name, make in CORRECT.items():
        report = keepfed.audit(make(), epochs=3)
        assert report.right, (name, report)


def test_an_audit_of_a_loader_calls_set_epoch() -> None:
    report = keepfed.audit(loader(Mixed(), sampler=DistributedSampler(Mixed(), 2, 0)))
    assert report.findings == ()


def test_an_audit_sees_a_loader_whose_workers_run_already() -> None:
    persistent = loader(Mixed(), shuffle=True, num_workers=1, persistent_workers=True)
    next(iter(persistent))
    lazy = OneIterator(Mixed(), lazy=True, shuffle=True)
    for batches in (persistent, OneIterator(Mixed(), shuffle=True), lazy):
        report = keepfed.audit(batches)
        assert report.checked == ("640 samples in 2 epochs of Mixed of training",)
        assert report.findings == ()
    assert len([*persistent]) == 20


def test_all_samples_of_a_validation_are_compared_with_the_training() -> None:
    rows = torch.rand(2560, 4)
    train, other = TensorDataset(rows[:2000]), TensorDataset(rows[1500:])
    report = keepfed.audit(DataLoader(train, 8, shuffle=True), validation=DataLoader(other, 8))
    (leak,) = report.faults
    assert "share 500 of 1060 samples of the second" in leak.says
    parts = Subset(train, range(1000)), Subset(train, range(1000, 2000))
    assert keepfed.audit(DataLoader(parts[0], 8), validation=DataLoader(parts[1], 8)).right


def test_samples_that_are_none_are_not_counted() -> None:
    def collate(samples: list[Any]) -> Any:
        return torch.tensor([one for one in samples if one is not None])

    numbers = [None if n % 10 == 0 else n for n in range(320)]
    report = keepfed.audit(loader(numbers, shuffle=True, collate_fn=collate))
    assert report.checked == ("576 samples in 2 epochs of list of training",)
    (fact,) = report.findings
    assert "288 different ones of 320; the dataset returned None for 32 samples" in fact.says


def recorded(indices: list[int], rank: int = 0, ranks: int = 1, **about: Any) -> Audited:
    """Return the record of a training on one rank."""
    record = describe(loader(Mixed(), sampler=indices), "Mixed")
    record.rank, record.ranks = rank, ranks
    for name, value in about.items():
        setattr(record, name, value)
    account = Account(record, one := loader(Mixed(), sampler=indices), training=True)
    for received in account.begin(one):
        account.take(received)
    account.epoch.complete = True
    return record


def test_ranks_may_serve_the_same_only_on_purpose() -> None:
    half, other = [*range(0, 320, 2)], [*range(1, 320, 2)]
    drawn = [[int(i) for i in np.random.default_rng(n).integers(0, 64, 320)] for n in range(2)]
    cases: list[tuple[list[list[int]], int, bool | None]] = [
        ([half, other], 1, None),
        ([half, half], 1, True),
        ([half, half[::-1]], 1, True),
        ([half, half], 2, False),
        ([half, half], 0, False),
        (drawn, 1, False),
    ]
    for orders, groups, fault in cases:
        ranks = [recorded(order, rank, 2, groups=groups) for rank, order in enumerate(orders)]
        report = check(ranks)
        found = [one.fault for one in report.findings if one.kind.startswith("ranks ")]
        assert found == ([] if fault is None else [fault]), report
        assert report.checked[0].endswith("on 2 ranks")
    ranks = [recorded(order, rank, 2) for rank, order in enumerate((half, half))]
    for epoch in (epoch for record in ranks for epoch in record.epochs):
        epoch.training = False  # every rank may evaluate all samples
    assert check(ranks).findings == ()
    uneven = check([recorded([*range(160)], 0, 2), recorded([*range(160, 320, 2)], 1, 2)])
    assert [(one.kind, one.fault) for one in uneven.findings] == [("uneven ranks", False)]


def test_a_record_does_not_grow_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("record", "checks"):
        monkeypatch.setattr(f"keepfed.auditing.{module}.MAX_SAMPLES", 400)
    report = keepfed.audit(loader(Mixed(), shuffle=True), epochs=4)
    assert report.checked == ("400 samples in 4 epochs of Mixed of training",)
    assert report.findings == ()
    assert "batches after the first 400 samples" in str(report)


def test_many_findings_of_one_kind_are_listed_once_with_one_advice() -> None:
    findings = [AuditFinding("leak", (f"a{n}", "b"), f"a{n} and b.") for n in range(30)]
    report = check([], findings)
    assert len(report.findings) == 30
    *listed, advice = str(report).splitlines()[1:]
    assert listed == [*(f"Fault: a{n} and b." for n in range(4)), "and 26 more, which --json lists"]
    assert advice.startswith("  Change: split the dataset once")


def test_an_audit_changes_no_batch_and_no_random_number() -> None:
    def epochs(audits: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        one = loader(OwnGenerator(), shuffle=True, num_workers=2)
        account = Account(describe(one, "one"), one) if audits else None
        found = []
        for _ in range(2):
            batches = account.begin(one) if account else iter(one)
            found += [(account.take(b) if account else b)[0] for b in batches]
        return [*found, torch.rand(2)]

    for plain, seen in zip(epochs(False), epochs(True), strict=True):
        assert torch.equal(plain, seen)


def resumed(samples: list[int], *, drop_last: bool = False) -> list[AuditFinding]:
    """Return the findings of a resume, after a run that served samples 0 to 99 of 320."""
    rows = [
        {"loader": "Mixed", "epoch": 1, "samples": [*map(str, range(n, n + 10))]}
        for n in range(0, 100, 10)
    ]
    return [*check_resume(rows, [recorded(samples, drop_last=drop_last)])]


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


def test_a_log_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"loader": "L", "rank": 0, "step": 0, "epoch": 0, "batch": 0, "worker": -1}
    contents = {
        "": "No batch in .* matches. It has 0 batches",
        "[1]": "Line 1 of",
        json.dumps(row): "Line 1 of",
        json.dumps({**row, "samples": 3}): "Line 1 of",
        json.dumps({**row, "samples": [], "step": "x"}): "Line 1 of",
        json.dumps({**row, "samples": []}) + "\n{": "Line 2 of",
    }
    log = tmp_path / "log"
    for content, says in contents.items():
        log.write_text(content, "utf-8")
        for words in (["show", str(log)], ["--after", str(log), "python", "-c", "1"]):
            if content or words[0] == "show":
                assert command.main(["audit", *words]) == 1
                assert re.search(says, " ".join(capsys.readouterr().err.split()))
    nowhere = str(tmp_path / "none" / "log")
    assert command.main(["audit", "--log", nowhere, "python", "-c", "1"]) == 1
    assert "Choose a file in a folder that exists" in capsys.readouterr().err
    with pytest.raises(KeepfedError, match="without a DataLoader"):
        keepfed.audit([1, 2])


def test_a_torch_without_a_private_name_leaves_the_training_unaudited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("keepfed.measure.hook.loader_hook.missing", lambda: ("a name",))
    monkeypatch.setattr(loops, "_process", loops._Process())
    monkeypatch.setattr("keepfed.measure.watch.timing.failsafe._errors", [])
    batches = loops.watch_iterator(loader(Table()), iter)
    assert len([*batches]) == 20
    assert "a name" in capsys.readouterr().err


TRAIN = """
import sys, shutil, torch
from tests.auditing.loaders import Mixed, loader
if __name__ == "__main__":
    what, code = sys.argv[1:]
    if what == "ranks":
        torch.distributed.init_process_group("gloo")
    order = torch.randperm(320, generator=torch.Generator().manual_seed(0)).tolist()
    batches = {
        "resumed": lambda: loader(Mixed(), sampler=order[112:]),
    }.get(what, lambda: loader(Mixed(), sampler=order))()
    validation = loader(Mixed(50))
    for number, batch in enumerate(batches):
        if number % 4 == 0:
            for _ in validation:
                with torch.no_grad():
                    pass
        if what == "folder" and number == 9:
            shutil.rmtree("logs")
        if what == "stopped" and number == 4:
            break
    print("trained")
    sys.exit(int(code))
"""


Audit = Callable[..., tuple[int, str, str]]


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    """Return a function that audits a program in `tmp_path`: its status, output and errors."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN, "utf-8")

    def run(what: str, code: int, *options: str, by: tuple[str, ...] = ()) -> tuple[int, str, str]:
        words = [sys.executable, "-m", "keepfed.command", "audit", *options, *by]
        ran = subprocess.run(
            [*words, str(script), what, str(code)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": PROJECT},
            capture_output=True,
            text=True,
        )
        return ran.returncode, ran.stdout, ran.stderr

    return run


@pytest.mark.slow
def test_unchanged_programs_are_audited(tmp_path: Path, audit: Audit) -> None:
    log = tmp_path / "logs" / "log.jsonl"
    log.parent.mkdir()
    log.write_text("the log of an earlier run\n", "utf-8")
    status, out, said = audit("stopped", 5, "--log", str(log), "--json")
    trained, line = out.splitlines()
    report = json.loads(line)
    assert (status, report["right"], trained) == (5, True, "trained"), said
    assert report["checked"][0].startswith("80 samples in 1 epoch of Mixed at train.py:13")
    assert report["unchecked"]
    assert Path(f"{log}.before").read_text("utf-8") == "the log of an earlier run\n"
    rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    rows = [row for row in rows if row["loader"] == rows[0]["loader"]]
    assert [(row["step"], row["batch"], len(row["samples"])) for row in rows] == [
        (number, number, 16) for number in range(5)
    ]
    status, out, said = audit("resumed", 0, "--after", str(log))
    assert (status, "32 of 320 samples are served neither" in said) == (1, True), said
    assert out == "trained\n"


@pytest.mark.full
def test_a_lost_log_and_two_ranks_are_audited(tmp_path: Path, audit: Audit) -> None:
    (tmp_path / "logs").mkdir()
    status, _, said = audit("folder", 0, "--log", str(tmp_path / "logs" / "log.jsonl"))
    assert status == 1, said
    assert said.count("keepfed audit: The program continues unaudited") == 1
    assert "the rest of 1 process in which the audit failed" in " ".join(said.split())
    torchrun = sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"
    status, _, said = audit("ranks", 0, by=torchrun)
    assert (status, "ranks 0 and 1 serve 320 samples in common" in said) == (1, True), said
