"""The entries of the field guide, read from the TOML files of this folder."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from keepfed.formatting import wrap

_FOLDER = Path(__file__).parent
# "own code" reports an error of the caller's code, "consequence" only follows from another problem
ROLES = ("cause", "own code", "consequence", "noise")


@cache
def table(name: str) -> dict[str, Any]:
    """Return what a file of the folder `tables` contains."""
    return tomllib.loads((_FOLDER / "tables" / f"{name}.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Entry:
    """One problem: how to recognize it, its cause, its fix, and a program that shows it."""

    name: str
    topic: str  # a key of TOPICS, or "elsewhere": it has nothing to do with loading data
    title: str  # one sentence about what happened
    why: str = ""
    fix: tuple[str, ...] = ()  # steps
    notebook: str = ""  # number of the notebook that teaches it
    program: str = ""  # lines that start with "-" are faulty, lines that start with "+" are the fix
    prints: str = ""  # part of the output of the faulty program
    prints_fixed: str = ""  # part of the output of the fixed program
    no_program: str = ""  # why there is no program
    messages: tuple[str, ...] = ()  # only this problem prints them; the most important one first
    hints: tuple[str, ...] = ()  # messages that other problems print too
    symptoms: tuple[str, ...] = ()  # what people say who have no message
    role: str = ""  # one of ROLES, "" for the usual one of the topic
    threads: tuple[str, ...] = ()  # public discussions: "owner/repository#number"
    needs: str = ""  # requirement of the program, such as "a GPU" or "Linux"
    method: str = ""  # start method of the program's workers, "" for any
    seconds: float = 30  # time limit of the program

    @property
    def rank(self) -> int:
        """Position in ROLES, which decides between several entries of a log."""
        return ROLES.index(self.role or ("noise" if self.topic == "noise" else "cause"))

    def without(self, sign: str) -> str:
        """Return the faulty program, without the lines of the fix ("+"), or the fixed one ("-")."""
        lines = self.program.splitlines()
        return "".join(f"{line[1:]}\n" for line in lines if not line.startswith(sign))

    def __str__(self) -> str:
        """Return the entry as text for a terminal: message, what happened, why, fix."""
        steps = [f"  {number}. {step}" for number, step in enumerate(self.fix, 1)]
        why = f"What happened: {self.title}.\nWhy: {self.why}\nFix:"
        parts = (*self.messages[:3], *why.splitlines(), *steps, f"More: notebook {self.notebook}.")
        return "\n".join(wrap(part, indent=5, most=98) for part in parts)


@cache
def entries() -> dict[str, Entry]:
    """Return all entries by name, by topic and then in the order of their titles."""
    files, topics = sorted(_FOLDER.glob("*.toml")), [*table("words")["topics"]]
    rows = [_entry(tomllib.loads(file.read_text("utf-8")), file.stem) for file in files]
    rows.sort(key=lambda row: (topics.index(row.topic), row.title))
    return {row.name: row for row in rows}


@cache
def elsewhere() -> list[Entry]:
    """Return the frequent messages that have nothing to do with loading data."""
    return [_entry({"topic": "elsewhere", **row}) for row in table("elsewhere")["message"]]


def _entry(row: dict[str, Any], name: str = "") -> Entry:
    fields: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in row.items()}
    return Entry(name, **fields)
