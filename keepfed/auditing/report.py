"""Findings of an audit, and its report."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from keepfed.formatting import plural

MOST = 4  # findings of one kind that the text lists


@dataclass(frozen=True)
class AuditFinding:
    """A fault of the samples of a loader, or a fact that an intention may explain."""

    kind: str
    loaders: tuple[str, ...]  # names
    says: str  # what was seen, with the evidence
    change: str  # what to change if it is a fault
    right_if: str = ""  # intention that makes it right; without one, it is a fault
    entry: str = ""  # entry of the field guide

    @property
    def fault(self) -> bool:
        """Whether no intention explains the finding."""
        return not self.right_if

    def __str__(self) -> str:
        return f"{'Fault' if self.fault else 'Fact'}: {self.says}"

    def next_step(self) -> str:
        """Return what to do about the finding."""
        see = f" See: keepfed why {self.entry}" if self.entry else ""
        intended = f"Right if {self.right_if}. If not: " if self.right_if else "Change: "
        return f"  {intended}{self.change}{see}"


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
        found = [{**asdict(finding), "fault": finding.fault} for finding in self.findings]
        return {**asdict(self), "right": self.right, "findings": found}

    def __str__(self) -> str:
        count = plural(len(self.faults), "fault") if self.faults else "no fault"
        checked = "; ".join(_short(self.checked))
        lines = [f"Checked {checked}: {count} of the kinds that the audit looks for."]
        kinds = defaultdict[tuple[bool, str], list[AuditFinding]](list)
        for finding in sorted(self.findings, key=lambda finding: not finding.fault):
            kinds[finding.fault, finding.kind].append(finding)
        for alike in kinds.values():  # the advice comes once for each kind
            lines += [*_short(tuple(map(str, alike))), alike[0].next_step()]
        if self.unchecked:
            lines.append(f"Not checked: {'; '.join(_short(self.unchecked))}.")
        return "\n".join(lines)

    __repr__ = __str__


def _short(parts: tuple[str, ...]) -> tuple[str, ...]:
    more = f"and {len(parts) - MOST} more, which --json lists"
    return parts if len(parts) <= MOST + 1 else (*parts[:MOST], more)
