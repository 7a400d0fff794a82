"""Kinds of findings of an audit, and its report."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from keepfed.formatting import plural

MOST = 4  # findings of one kind that the text lists


class FindingKind(NamedTuple):
    """What a kind of finding advises, and what would make it right."""

    change: str  # what to change if it is wrong
    entry: str = ""  # entry of the field guide
    right_if: str = ""  # intention that makes it right; without one, the kind is a fault


KINDS = {
    "workers overlap": FindingKind(
        "share the data in __iter__: worker `get_worker_info().id` of "
        "`get_worker_info().num_workers` takes every n-th sample or shard.",
        "duplicated samples",
    ),
    "ranks overlap": FindingKind(
        "use a DistributedSampler. In a stream, take every n-th shard of the rank.", "ranks overlap"
    ),
    "same random numbers": FindingKind(
        "create the generator in the worker (worker_init_fn, or at the first use) and seed it with "
        "`torch.initial_seed()`, which differs in each worker and epoch.",
        "same random numbers",
    ),
    "stale epoch": FindingKind(
        "call `set_epoch` before `iter(loader)`. For persistent workers, keep the number in shared "
        "memory, such as torch.zeros(1).share_memory_().",
        "stale epoch",
    ),
    "no set_epoch": FindingKind(
        "call `loader.sampler.set_epoch(epoch)` before each epoch.", "same order"
    ),
    "damaged": FindingKind("look at the samples of this batch.", "NaN in a batch"),
    "leak": FindingKind(
        "split the dataset once, by groups that belong together.",
        "validation leak",
    ),
    "starts over": FindingKind(
        "store the state of the loader with the model, for example with a StatefulDataLoader, and "
        "load it before the first batch.",
        "repeated samples",
    ),
    "skipped by the resume": FindingKind(
        "count the batches that the loop has taken, not those that the workers have prepared."
    ),
    "served again": FindingKind(
        "store the state of the loader with each checkpoint.",
        right_if="the checkpoint is older than the last batch of the log",
    ),
    "workers draw from all": FindingKind(
        "share the data in __iter__ by `get_worker_info()`.",
        "duplicated samples",
        "every worker draws from all data on purpose",
    ),
    "ranks draw from all": FindingKind(
        "use a DistributedSampler. In a stream, take every n-th shard of the rank.",
        "ranks overlap",
        "the ranks share one copy of the model, or each draws from all data or trains alone",
    ),
    "uneven ranks": FindingKind(
        "give every rank the same number of batches.",
        "uneven ranks",
        "the ranks do not wait for each other, or `Join` ends them",
    ),
    "not each once": FindingKind(
        "let the sampler yield every index once. To see the batches of a sample, use `--log FILE`, "
        "then `audit show FILE --sample N`.",
        "repeated samples",
        "this is the purpose, as in class balance, repeated augmentation, an endless order or a "
        "part of the data",
    ),
    "same order": FindingKind(
        "use `shuffle=True`, and do not seed the sampler again.",
        "same order",
        "the order is fixed on purpose",
    ),
    "repeated epoch": FindingKind(
        "write a generator: `while True: yield from loader`.",
        "itertools.cycle",
        "the batches should repeat, and fit in memory",
    ),
    "shared samples": FindingKind(
        "split the dataset once, by groups that belong together.",
        "validation leak",
        "the second evaluates the training data, or the split changes, as in cross-validation",
    ),
    "not mixed": FindingKind(
        "shuffle (`shuffle=True`), or use a larger shuffle buffer over several files.",
        "unmixed batches",
        "the batches are sorted on purpose",
    ),
    "not finite": FindingKind(
        "look at the samples of this batch.",
        "NaN in a batch",
        "such numbers mark missing values or a mask",
    ),
    "changing dtype": FindingKind(
        "let the dataset convert every sample to the same dtype.",
        right_if="there are several kinds of batches",
    ),
}


@dataclass(frozen=True)
class AuditFinding:
    """A fault of the samples of a loader, or a fact that an intention may explain."""

    kind: str  # one of `KINDS`
    loaders: tuple[str, ...]  # names
    says: str  # what was seen, with the evidence

    @property
    def fault(self) -> bool:
        """Whether no intention explains the finding."""
        return not KINDS[self.kind].right_if

    def __str__(self) -> str:
        return f"{'Fault' if self.fault else 'Fact'}: {self.says}"


@dataclass(frozen=True)
class AuditReport:
    """Result of an audit: what was checked, the faults, the facts, and what was not checked."""

    findings: tuple[AuditFinding, ...]
    checked: tuple[str, ...]
    unchecked: tuple[str, ...]

    @property
    def faults(self) -> tuple[AuditFinding, ...]:
        """Findings that no intention explains."""
        return tuple(finding for finding in self.findings if finding.fault)

    @property
    def right(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    def as_dict(self) -> dict[str, Any]:
        """Return the report for `json.dumps`."""
        found = [{**asdict(one), **KINDS[one.kind]._asdict()} for one in self.findings]
        return {**asdict(self), "right": self.right, "findings": found}

    def __str__(self) -> str:
        count = plural(len(self.faults), "fault") if self.faults else "no fault"
        checked = "; ".join(_short(self.checked))
        lines = [f"Checked {checked}: {count} of the kinds that the audit looks for."]
        kinds = defaultdict[str, list[AuditFinding]](list)
        for finding in sorted(self.findings, key=lambda finding: not finding.fault):
            kinds[finding.kind].append(finding)
        for name, alike in kinds.items():  # the advice comes once for each kind
            change, entry, right_if = KINDS[name]
            see = f" See: keepfed why {entry}" if entry else ""
            intended = f"Right if {right_if}. If not: " if right_if else "Change: "
            lines += [*_short(tuple(map(str, alike))), f"  {intended}{change}{see}"]
        if self.unchecked:
            lines.append(f"Not checked: {'; '.join(_short(self.unchecked))}.")
        return "\n".join(lines)

    __repr__ = __str__


def _short(parts: tuple[str, ...]) -> tuple[str, ...]:
    more = f"and {len(parts) - MOST} more, which --json lists"
    return parts if len(parts) <= MOST + 1 else (*parts[:MOST], more)
