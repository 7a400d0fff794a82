"""Find out what a message means, in the field guide of what people meet when they load data.

    look_up("DataLoader worker (pid 4711) is killed by signal: Bus error.")

An entry is a file in this folder: what is said, why, what to do, and a program that shows it.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Any

TOPICS = {
    "dies": "It dies, or ends with an error",
    "hangs": "It hangs, or is stuck",
    "wrong": "The data are wrong, and nothing is said",
    "slow": "It is slow",
    "memory": "Memory runs full",
    "noise": "It warns, and goes on",
}
NOT_KNOWN = (
    "No entry of the field guide says this, and perhaps it is not about loading data. Run again "
    "with num_workers=0: then the traceback leads to a line of yours. A loop that is only slow has "
    "no message: diagnose(loader, step) says why it waits."
)
ANY = "…"  # stands in a text for what differs from case to case
_PART = 8  # characters of a message by which it is found
_FAR = 300  # characters that it stands for at most, so that a log is not matched across
_LOG = 2_000_000  # characters of a log, from its end
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
    """One thing that people meet.

    Its program is a difference: lines with `-` are what people write, those with `+` mend it.
    """

    name: str
    topic: str  # one of TOPICS
    title: str  # what is seen, in a sentence
    why: str
    do: str
    notebook: str  # where the course teaches it
    program: str
    shows: str  # what the program prints as people write it
    then: str  # what it prints once it is mended
    says: tuple[str, ...] = ()  # the messages by which it is found
    general: bool = False  # many causes say so: only told where nothing else is found
    threads: tuple[str, ...] = ()  # public ones about it: "owner/repository#number"
    needs: str = ""  # such as "a GPU" or "Linux"; without it, it is not run
    method: str = ""  # the start method that it is about; empty: any
    seconds: float = 30  # it is stopped after so long

    @property
    def broken(self) -> str:
        """The program as people write it."""
        return self._without("+")

    @property
    def mended(self) -> str:
        """The program with what matters changed."""
        return self._without("-")

    def __str__(self) -> str:
        """Say what it is and what to do, for a terminal."""
        more = f"notebook {self.notebook}, and to run it: entry {self.name!r} of notebook A"
        parts = {
            "It says": "  |  ".join(self.says[:3]),
            "Why": self.why,
            "Do": self.do,
            "More": more,
        }
        lines = [f"{name + ':':9}{text}" for name, text in parts.items() if text]
        return "\n".join(
            [self.title, *(fill(line, 98, subsequent_indent=" " * 9) for line in lines)]
        )

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
    """Return the entries whose message stands in a text or a log, the closest one first.

    A few words that are no message find the entries that have all of them, first those that have
    them in the title. What is not known finds nothing.
    """
    said = _plain(text[-_LOG:])
    found = {entry: _matched(entry, said) for entry in entries().values()}
    found = {entry: length for entry, length in found.items() if length}
    if not found:
        return [] if _IS_MESSAGE.search(text) else _about(said)
    special = [entry for entry in found if not entry.general]
    return sorted(special or found, key=lambda entry: -found[entry])


def _matched(entry: Entry, said: str) -> int:
    """Return how many characters of its longest message stand in what was said."""
    lengths = [len(message) for message in entry.says if _pattern(message).search(said)]
    return max(lengths, default=0)


@cache
def _pattern(message: str) -> re.Pattern[str]:
    parts = (re.escape(part.strip()) for part in _plain(message).split(ANY))
    return re.compile(f".{{0,{_FAR}}}?".join(parts))


def _plain(text: str) -> str:
    """Return a text without colours, breaks and the several kinds of quotation marks."""
    return " ".join(_COLOURS.sub("", text).translate(_QUOTES).lower().split())


def _about(said: str) -> list[Entry]:
    """Return the entries with a message of which this is a part, or else with all of its words."""
    of_message = [e for e in entries().values() if any(said in _plain(text) for text in e.says)]
    if len(said) >= _PART and of_message:
        return of_message
    words = set(_WORD.findall(said)) - set(SMALL_WORDS.split())
    found = [e for e in entries().values() if words <= _words_of(e, e.why, e.do)]
    return sorted(found, key=lambda entry: -len(words & _words_of(entry))) if words else []


def _words_of(entry: Entry, *more: str) -> set[str]:
    """Return the words of its heading, title and messages, and of more texts."""
    texts = [entry.name, TOPICS[entry.topic], entry.title, *entry.says, *more]
    return set(_WORD.findall(_plain(" ".join(texts))))
