"""The findings of an audit, and its report."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Collection
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from keepfed.errors import KeepfedError
from keepfed.formatting import plural

MOST = 4  # findings of one kind that the text lists


class FindingKind(NamedTuple):
    """A kind of finding, which kinds.toml describes."""

    words: str
    change: str
    entry: str = ""
    fault: bool = False


@cache
def kinds() -> dict[str, FindingKind]:
    """Return the kinds of findings by their ID."""
    table = tomllib.loads(Path(__file__).with_name("kinds.toml").read_text("utf-8"))
    return {name: FindingKind(**row) for name, row in table.items()}


class _Count(int):
    """A number that a format may end with the word for what it counts: `{n:sample}`."""

    def __format__(self, thing: str) -> str:
        return plural(int(self), thing) if thing else f"{int(self):,}"


@dataclass(frozen=True)
class AuditFinding:
    """What an audit measured of a loader."""

    id: str
    loader: str
    numbers: dict[str, Any]  # of the words of its kind, and perhaps of its rank and epoch

    @property
    def kind(self) -> FindingKind:
        """The kind of the finding."""
        return kinds()[self.id]

    @property
    def says(self) -> str:
        """What was measured, in words."""
        numbers = {k: _Count(n) if type(n) is int else n for k, n in self.numbers.items()}
        places = [f"{name} {numbers[name]}" for name in ("rank", "epoch") if name in numbers]
        where = ", ".join([self.loader, *places])
        return f"{where}: {self.kind.words.format_map(numbers)}"

    def __str__(self) -> str:
        if self.kind.fault:
            return f"Fault: {self.says}."
        return f"Fact: {self.says}. Meant? `--allow {self.id}`"


@dataclass(frozen=True)
class AuditReport:
    """Result of an audit: what was checked, the faults, the facts, and what was not checked."""

    findings: tuple[AuditFinding, ...]  # faults first
    checked: tuple[str, ...]
    unchecked: tuple[str, ...]

    @property
    def faults(self) -> tuple[AuditFinding, ...]:
        """Findings that no intention explains."""
        return tuple(finding for finding in self.findings if finding.kind.fault)

    @property
    def right(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    def as_dict(self) -> dict[str, Any]:
        """Return the report for `json.dumps`."""
        rows = [{**asdict(one), "says": one.says} | one.kind._asdict() for one in self.findings]
        return {**asdict(self), "right": self.right, "findings": rows}

    def __str__(self) -> str:
        count = plural(len(self.faults), "fault") if self.faults else "no fault"
        checked = "; ".join(_short(self.checked)) or "nothing"
        lines = [f"Checked {checked}: {count} of the kinds that it looks for."]
        alike = defaultdict[str, list[AuditFinding]](list)
        for finding in self.findings:
            alike[finding.id].append(finding)
        for name, findings in alike.items():  # the advice comes once for each kind
            kind = kinds()[name]
            lead = "Change" if kind.fault else "If not"
            see = f" See: keepfed why {kind.entry}" if kind.entry else ""
            lines += [*_short(tuple(map(str, findings))), f"  {lead}: {kind.change}{see}"]
        if self.unchecked:
            lines.append(f"Not checked: {'; '.join(_short(self.unchecked))}.")
        return "\n".join(lines)

    __repr__ = __str__


def check_ids(allow: Collection[str]) -> None:
    """Raise a `KeepfedError` if a word is not the ID of a kind of findings."""
    for name in allow:
        if name not in kinds():
            raise KeepfedError(
                f"No finding has the ID {name!r}. Choose from: {', '.join(kinds())}."
            )


def _short(parts: tuple[str, ...]) -> tuple[str, ...]:
    more = f"and {len(parts) - MOST} more, which --json lists"
    return parts if len(parts) <= MOST + 1 else (*parts[:MOST], more)
