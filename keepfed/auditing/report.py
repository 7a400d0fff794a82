"""Findings of an audit, and its report."""

from __future__ import annotations

from dataclasses import dataclass

from keepfed.auditing.record import Audited, EpochRecord


@dataclass(frozen=True)
class AuditFinding:
    """One fault of the samples of a loader, or a useful note about them."""

    kind: str
    says: str  # what is wrong, with the evidence
    change: str  # what to change
    entry: str = ""  # entry of the field guide
    fault: bool = True

    def __str__(self) -> str:
        more = f" See: keepfed why {self.entry}" if self.entry else ""
        return f"{self.says}\n  Change: {self.change}{more}"


@dataclass(frozen=True)
class AuditReport:
    """Result of an audit: the faults, then notes, then what was checked and what was not."""

    findings: tuple[AuditFinding, ...]
    checked: tuple[str, ...]
    unchecked: tuple[str, ...]

    @property
    def right(self) -> bool:
        """Whether no fault was found."""
        return not any(finding.fault for finding in self.findings)

    def __str__(self) -> str:
        faults = [finding for finding in self.findings if finding.fault]
        notes = [finding for finding in self.findings if not finding.fault]
        head = "Right: no fault in the samples was found." if not faults else ""
        lines = [head, *map(str, faults), *(f"Note: {note}" for note in notes)]
        lines.append(f"Checked: {'; '.join(self.checked)}.")
        if self.unchecked:
            lines.append(f"Not checked: {'; '.join(self.unchecked)}.")
        return "\n".join(filter(None, lines))

    __repr__ = __str__


def name_of(audited: Audited, epoch: EpochRecord | None = None) -> str:
    """Return the name of a loader with its rank and epoch, for a finding."""
    rank = f", rank {audited.rank}" if audited.ranks > 1 else ""
    number = f", epoch {epoch.number}" if epoch else ""
    return f"{audited.name}{rank}{number}"
