"""Look up error messages and symptoms of data loading in the field guide.

    look_up("DataLoader worker (pid 4711) is killed by signal: Bus error.")

Each TOML file in this folder is one entry: messages, cause, fix, and a program that shows both.
"""

import re
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
NOT_KNOWN = (
    "The field guide has no entry for this text. It may have nothing to do with data loading. Run "
    "again with num_workers=0, so that the traceback leads to your own line. If the loop is slow "
    "but prints no message, call diagnose(loader, step)."
)
ANY = "…"  # placeholder in a message for text that differs from case to case
_PART = 8  # minimum length, in characters, of a part of a message that finds its entry
_FAR = 300  # maximum number of characters that ANY matches, so that it spans no whole log
_LOG = 2_000_000  # number of characters that are read from the end of a log
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_QUOTES = dict.fromkeys(map(ord, '`\u2018\u2019\u201c\u201d"'), "'")
_IS_MESSAGE = re.compile(r"(Error|Exception|Warning|Interrupt)\b|Traceback")
_WORD = re.compile(r"[a-z][a-z0-9]{2,}?(?=s?\b|_)")
SMALL_WORDS = (
    "all and are but can dataloader does each for from get have how its not only than that the "
    "them they this too what when which why with you your"
)


@dataclass(frozen=True)
class Entry:
    """One problem: how to recognise it, its cause, its fix, and a program that shows it.

    In `program`, lines that start with `-` are faulty and lines that start with `+` are the fix.
    """

    name: str
    topic: str  # a key of TOPICS
    title: str  # one sentence about what happened
    why: str
    fix: tuple[str, ...]  # steps
    notebook: str  # number of the notebook that teaches it
    program: str
    prints: str  # part of the output of the faulty program
    prints_fixed: str  # part of the output of the fixed program
    messages: tuple[str, ...] = ()  # the most important one first
    general: bool = False  # has many causes, so it is listed only if no other entry matches
    threads: tuple[str, ...] = ()  # public discussions: "owner/repository#number"
    needs: str = ""  # requirement of the program, such as "a GPU" or "Linux"
    method: str = ""  # start method of the program's workers, "" for any
    seconds: float = 30  # time limit of the program

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
        more = f"notebook {self.notebook}. Notebook A runs this case: show({self.name!r})"
        parts = [
            *(("", message) for message in self.messages[:3]),
            ("What happened: ", f"{self.title}."),
            ("Why: ", self.why),
            ("Fix:", ""),
            *(("  ", step) for step in steps),
            ("More: ", more),
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


def look_up(text: str) -> list[Entry]:
    """Return the entries whose message occurs in a text or log, the best match first.

    If the text is only a few words, return the entries that contain all of them, those with the
    words in the title first. Return an empty list for an unknown message.
    """
    plain = _plain(text[-_LOG:])
    found = {entry: _matched(entry, plain) for entry in entries().values()}
    found = {entry: length for entry, length in found.items() if length}
    if not found:
        return [] if _IS_MESSAGE.search(text) else _about(plain)
    special = [entry for entry in found if not entry.general]
    return sorted(special or found, key=lambda entry: -found[entry])


def _matched(entry: Entry, plain: str) -> int:
    """Return the length of the entry's longest message that occurs in the text, or 0."""
    lengths = [len(message) for message in entry.messages if _pattern(message).search(plain)]
    return max(lengths, default=0)


@cache
def _pattern(message: str) -> re.Pattern[str]:
    parts = (re.escape(part.strip()) for part in _plain(message).split(ANY))
    return re.compile(f".{{0,{_FAR}}}?".join(parts))


def _plain(text: str) -> str:
    """Return the text in lower case, without colours and line breaks, with plain quotes."""
    return " ".join(_COLOURS.sub("", text).translate(_QUOTES).lower().split())


def _about(plain: str) -> list[Entry]:
    """Return the entries whose message contains the text, else those with all of its words."""
    every = entries().values()
    of_message = [e for e in every if any(plain in _plain(text) for text in e.messages)]
    if len(plain) >= _PART and of_message:
        return of_message
    words = set(_WORD.findall(plain)) - set(SMALL_WORDS.split())
    found = [e for e in every if words <= _words_of(e, e.why, *e.fix)]
    return sorted(found, key=lambda entry: -len(words & _words_of(entry))) if words else []


def _words_of(entry: Entry, *more: str) -> set[str]:
    """Return the words of the entry's name, topic, title and messages, and of more texts."""
    texts = [entry.name, TOPICS[entry.topic], entry.title, *entry.messages, *more]
    return set(_WORD.findall(_plain(" ".join(texts))))
