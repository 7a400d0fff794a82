"""The audit finds each fault in the samples, and reports what an intention may explain as facts."""

from __future__ import annotations

import json
import os
import random
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
from keepfed.auditing import api, loops
from keepfed.auditing.account import Account, describe
from keepfed.auditing.checks import check
from keepfed.auditing.record import LoaderRecord
from keepfed.auditing.report import AuditReport, kinds
from keepfed.auditing.resume import check_resume
from keepfed.errors import KeepfedError
from keepfed.measure.hook import Hook
from keepfed.measure.watch import attach
from keepfed.measure.watch.timing import failsafe
from tests.auditing.trainings import RIGHT, WRONG, Mixed, OneIterator, Own, loader
from tests.fixtures import PROJECT

Audited = Callable[[Callable[[], None]], AuditReport]


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> Audited:
    """Return a function that runs a training in this process under the audit."""
    iterators: Any = dataloader._BaseDataLoaderIter
    monkeypatch.setattr(iterators, "__next__", iterators.__next__)  # to be restored
    monkeypatch.setattr(DataLoader, "_get_iterator", DataLoader._get_iterator)
    monkeypatch.setattr(iterators, "_step_timer", None, raising=False)
    monkeypatch.setenv("KEEPFED_OBSERVER", "keepfed.auditing.loops")
    attach._patch(dataloader)
    monkeypatch.setattr(loops, "_write", lambda pause_s=0: None)

    def run(training: Callable[[], None]) -> AuditReport:
        monkeypatch.setattr(loops, "_process", loops._Process())
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        training()
        return check([record for _, record in loops._process.loaders])

    return run


def test_a_bug_of_the_audit_never_reaches_the_loop(
    audited: Audited, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def training() -> None:
        labels = [n for _, some in loader(Mixed(), num_workers=1) for n in some.tolist()]
        assert labels == [0, 1, 2, 3] * 80

    account = loops.LoopAccount
    for owner, name in (
        (loops, "describe"),
        (account, "_ask"),
        (account, "ask"),
        (account, "take"),
    ):
        with monkeypatch.context() as bug:
            bug.setattr(failsafe, "_errors", [])
            bug.setattr(owner, name, lambda *_: 1 / 0)
            audited(training)
        assert capfd.readouterr().err.count("continues unaudited (ZeroDivisionError") == 1


@pytest.mark.slow
def test_right_trainings_have_facts_but_no_fault(audited: Audited) -> None:
    for training, facts in RIGHT.items():
        report = audited(training)
        assert report.right, (training, report)
        assert {finding.id for finding in report.findings} == facts, (training, report)
        assert str(report).startswith("Checked "), report
        assert "no fault of the kinds that it looks for" in str(report)
        assert all(f"Meant? `--allow {fact}`" in str(report) for fact in facts), report


@pytest.mark.slow
def test_each_wrong_training_is_named_with_numbers(audited: Audited) -> None:
    for training, (name, says) in WRONG.items():
        report = audited(training)
        findings = {one.id: one for one in report.findings}
        assert {one.id for one in report.faults} <= {name} <= findings.keys(), report
        assert says in findings[name].says, report
        assert report.right == (not findings[name].kind.fault), report
        assert json.loads(json.dumps(report.as_dict()))["findings"]


def test_an_audit_of_a_loader_calls_set_epoch_and_allows_what_is_meant() -> None:
    assert keepfed.audit(loader(Mixed(), sampler=DistributedSampler(Mixed(), 2, 0))).findings == ()
    assert keepfed.audit(loader(Mixed()), allow=["same-order"]).findings == ()
    batches = loader(Mixed(), shuffle=True).batch_sampler  # as Accelerate passes it
    assert keepfed.audit(DataLoader(Mixed(), batch_sampler=batches)).unchecked == ()
    with pytest.raises(KeepfedError, match=r"No finding has the ID .order.\. Choose"):
        keepfed.audit(loader(Mixed()), allow=["order"])
    with pytest.raises(KeepfedError, match=r"validation loader is a list .* Audit the DataLoader"):
        keepfed.audit(loader(Mixed()), validation=[1])


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
    alone = loader(other, collate_fn=list)  # no array has a row for each sample
    for validation in (DataLoader(other, 8), alone):
        report = keepfed.audit(DataLoader(train, 8, shuffle=True), validation=validation)
        (leak,) = report.faults
        assert leak.says.endswith("500 of 1,060 samples of the validation are in training")
    parts = Subset(train, range(1000)), Subset(train, range(1000, 2000))
    assert keepfed.audit(DataLoader(parts[0], 8), validation=DataLoader(parts[1], 8)).right


def recorded(indices: list[int], rank: int = 0, ranks: int = 1, **about: Any) -> LoaderRecord:
    """Return the record of an epoch of training on one rank."""
    record = api._run(loader(Mixed(), sampler=indices), "training", 1)
    for name, value in {"rank": rank, "ranks": ranks, **about}.items():
        setattr(record, name, value)
    return record


def test_ranks_may_serve_the_same_only_on_purpose() -> None:
    half, other = [*range(0, 320, 2)], [*range(1, 320, 2)]
    drawn = [[int(i) for i in np.random.default_rng(n).integers(0, 64, 320)] for n in range(2)]
    cases: list[tuple[list[list[int]], int, set[str]]] = [
        ([half, other], 1, set()),
        ([half, half], 1, {"ranks-overlap"}),
        ([half, half[::-1]], 1, {"ranks-overlap"}),
        ([half, half], 2, set()),
        ([half, half], 0, set()),
        (drawn, 1, {"repeats", "left-out"}),
        ([half, other[:-16]], 1, {"uneven-ranks"}),
    ]
    for orders, groups, ids in cases:
        ranks = [recorded(order, rank, 2, groups=groups) for rank, order in enumerate(orders)]
        report = check(ranks)
        assert {one.id for one in report.findings} == ids, report
        assert report.checked[0].endswith("on 2 ranks")
    ranks = [recorded(half, rank, 2, groups=1) for rank in range(2)]
    for epoch in (epoch for record in ranks for epoch in record.epochs):
        epoch.training = False  # every rank may evaluate all samples
    assert check(ranks).findings == ()


def test_a_record_does_not_grow_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepfed.auditing.record.MAX_SAMPLES", 1200)  # and 32 for each batch
    report = keepfed.audit(loader(Mixed(), shuffle=True), epochs=4)
    assert report.checked == ("400 samples in 4 epochs of Mixed of training",)
    assert report.findings == ()
    assert "Not checked: some batches" in str(report)


def test_an_audit_changes_no_batch_and_no_random_number() -> None:
    def epochs(audits: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        batches = loader(Own(), shuffle=True, num_workers=2)
        account = Account(describe(batches, "one"), batches)
        found = []
        for _ in range(2):
            account.start_epoch()
            iterator = Hook(batches, [account.listener]).begin(batches) if audits else iter(batches)
            found += [(account.take(b)[0] if audits else b)[0] for b in iterator]
        return [*found, torch.rand(2)]

    for plain, seen in zip(epochs(False), epochs(True), strict=True):
        assert torch.equal(plain, seen)


def test_a_resume_serves_the_rest_or_is_reported() -> None:
    before = [("Mixed of training", 1, [*map(str, range(n, n + 10))]) for n in range(0, 100, 10)]
    for samples, spare, ids in (
        (range(100, 320), 0, []),
        (range(100, 310), 15, []),
        (range(130, 320), 0, ["resume-skips"]),
        (range(90, 320), 0, ["resume-behind"]),
        ([*range(40, 60), *range(100, 320)], 0, ["resume-repeats"]),
        (range(320), 0, ["resume-repeats"]),
    ):
        records = [recorded([*samples], spare=spare)]
        assert [one.id for one in check_resume(before, records)] == ids, ids
    (skips,) = check_resume(before, [recorded([*range(130, 320)])])
    assert "30 of 320 samples are served neither" in skips.says
    assert (skips.kind.fault, kinds()["resume-behind"].fault) == (True, False)


def test_a_log_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, program = tmp_path / "log", ["python", "-c", "1"]
    for content in ("[1]", "{", '{"loader": "L", "epoch": 0, "samples": 3}'):
        log.write_text(content, "utf-8")
        assert command.main(["audit", "--after", str(log), *program]) == 1
        assert "Pass the file of" in capsys.readouterr().err
    for option in "--after", "--log":
        assert command.main(["audit", option, str(tmp_path / "no" / "log"), *program]) == 1
        assert str(tmp_path / "no") in capsys.readouterr().err


TRAIN = """
import sys, shutil, torch
from tests.auditing.trainings import Mixed, loader
if __name__ == "__main__":
    what, code = sys.argv[1:]
    if what == "ranks":
        torch.distributed.init_process_group("gloo")
    order = torch.randperm(320, generator=torch.Generator().manual_seed(0)).tolist()
    validation = loader(Mixed(50))
    for number, batch in enumerate(loader(Mixed(), sampler=order[112 * (what == "resumed"):])):
        with torch.no_grad():
            number % 4 or [*validation]
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
    assert report["checked"][0].startswith("80 samples in 1 epoch of Mixed at train.py:10")
    assert report["unchecked"]
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
