"""The entries of the field guide, read from the TOML files of this folder."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from keepfed.formatting import wrap

TOPICS = {
    "dies": "The program stops with an error",
    "hangs": "The program hangs, or is stuck",
    "wrong": "The data are wrong, without an error",
    "slow": "Loading is slow",
    "memory": "Memory fills up",
    "noise": "A warning appears, and the program continues",
}
# "own code" reports an error of the caller's code, "consequence" only follows from another problem
ROLES = ("cause", "own code", "consequence", "noise")


@dataclass(frozen=True)
class Entry:
    """One problem: how to recognize it, its cause, its fix, and a program that shows it.

    In `program`, lines that start with `-` are faulty and lines that start with `+` are the fix.
    """

    name: str
    topic: str  # a key of TOPICS
    title: str  # one sentence about what happened
    why: str
    fix: tuple[str, ...]  # steps
    notebook: str  # number of the notebook that teaches it
    program: str = ""
    prints: str = ""  # part of the output of the faulty program
    prints_fixed: str = ""  # part of the output of the fixed program
    no_program: str = ""  # why there is no program
    messages: tuple[str, ...] = ()  # the most important one first
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

    @property
    def faulty(self) -> str:
        """The program with the mistake."""
        return self._without("+")

    @property
    def fixed(self) -> str:
        """The program with the fix."""
        return self._without("-")

    def __str__(self) -> str:
        """Return the entry as text for a terminal: message, what happened, why, fix."""
        steps = [f"{number}. {step}" for number, step in enumerate(self.fix, 1)]
        parts = [
            *(("", message) for message in self.messages[:3]),
            ("What happened: ", f"{self.title}."),
            ("Why: ", self.why),
            ("Fix:", ""),
            *(("  ", step) for step in steps),
            ("More: ", f"notebook {self.notebook}."),
        ]
        return "\n".join(wrap(name + text, indent=5, most=98) for name, text in parts)

    def _without(self, sign: str) -> str:
        lines = self.program.splitlines()
        return "".join(f"{line[1:]}\n" for line in lines if not line.startswith(sign))


@cache
def entries() -> dict[str, Entry]:
    """Return all entries by name, by topic and then in the order of their titles."""
    files = sorted(Path(__file__).parent.glob("*.toml"))
    read = [Entry(file.stem, **_lists(tomllib.loads(file.read_text("utf-8")))) for file in files]
    read.sort(key=lambda entry: ([*TOPICS].index(entry.topic), entry.title))
    return {entry.name: entry for entry in read}


def _lists(fields: dict[str, object]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
