"""Find the entries whose messages occur in a text or log, and name the cause first."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from keepfed.field_guide.elsewhere import ELSEWHERE
from keepfed.field_guide.entry import ROLES, Entry, entries
from keepfed.field_guide.words import by_words
from keepfed.formatting import wrap

NOT_KNOWN = (
    "The field guide has no entry for this text. It may have nothing to do with data loading. Run "
    "again with num_workers=0, so that the traceback leads to your own line. If the loop is slow "
    "but prints no message, call diagnose(loader, step)."
)
ANY = "…"  # placeholder in a message for text that differs from case to case
_FAR = 300  # maximum number of characters that ANY matches, so that it spans no whole log
_LOG = 2_000_000  # number of characters that are read from the end of a log
_PART = 8  # minimum length, in characters, of a part of a message that finds its entry
_SHORT = 40  # maximum number of words of a text that describes a problem in plain words
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_QUOTES = dict.fromkeys(map(ord, '`\u2018\u2019\u201c\u201d"'), "'")
_IS_MESSAGE = re.compile(r"(Error|Exception|Warning|Interrupt)\b|Traceback")
# what launchers and pytest write before a line, such as "[rank1]: " or "(Worker pid=7) "
_RANK = r"(?:(?:\[[^\]\n]{1,40}\]|\([^)\n]{1,60}\)|\d+:|E  |<std\w+>)[: ]*)*"
_ERROR = re.compile(rf"^{_RANK}((?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?::.*)?)$", re.M)
_FRAME = re.compile(rf'^{_RANK}\s*File "([^"\n]+)", line (\d+), in (\S+)', re.M)
_IGNORED = re.compile(r"^Exception ignored in.*\n(?:(?:  .*|Traceback.*)\n)*.*$", re.M)
# errors that only report that another process ended or that wrap another error
_WRAPPER = re.compile(
    r"(ChildFailedError|ProcessRaisedException|RayTaskError|DatasetGenerationError|EOFError"
    r"|BrokenPipeError|ConnectionResetError|KeyboardInterrupt|Dist\w*Error)\b"
    r"|\w+: (Caught \w+ in DataLoader worker|Traceback \(most recent)"
)
_LIBRARY = re.compile(r"(site|dist)-packages|[/\\][Ll]ib(64)?[/\\]|^<|[/\\]bin[/\\]")


def look_up(text: str) -> list[Entry]:
    """Return the entries that explain a text or log, the best match first.

    In a log, the cause wins: messages that only follow from another problem, and warnings, count
    only if nothing else explains the log. A few plain words find the entries that fit them best.
    Return an empty list for an unknown message.
    """
    plain = _plain(text[-_LOG:])
    found = {entry: spans for entry in entries().values() if (spans := _spans(entry, plain))}
    if not found:
        is_log = _IS_MESSAGE.search(text) or len(plain.split()) > _SHORT
        return [] if is_log or _elsewhere(plain) else _about(plain)
    best = min(entry.rank for entry in found)
    follows = ROLES[best] in ("consequence", "noise")
    if follows and (_elsewhere(plain) or _unexplained(text, found)):
        return []
    listed = [entry for entry in found if entry.rank == best]
    listed.sort(key=lambda entry: -sum(map(len, found[entry])))
    return [
        entry
        for place, entry in enumerate(listed)
        if not _covered(found[entry], [span for one in listed[:place] for span in found[one]])
    ]


def explain(text: str) -> str:
    """Return what `keepfed why` prints: the entries, or the next thing to look at."""
    if not (found := look_up(text)):
        return wrap(not_known(text), most=98)
    more = []
    if found[0].role == "own code" and (origin := _origin(text)):
        more = [wrap(f"In this text: {origin}.", indent=5, most=98)]
    return "\n\n".join([*more, *map(str, found)])


def not_known(text: str) -> str:
    """Return the next step for a text that no entry explains."""
    if sentence := _elsewhere(_plain(text[-_LOG:])):
        return f"Not about loading data: {sentence}"
    if origin := _origin(text):
        return (
            f"Not known. The first error is {origin}. Start there. Warnings and timeouts around it "
            "usually only follow from it."
        )
    return f"Not known. {NOT_KNOWN}"


def _elsewhere(plain: str) -> str:
    """Return what a text is about that has nothing to do with loading, or ""."""
    return next((says for message, says in ELSEWHERE.items() if _search(message, plain)), "")


def _spans(entry: Entry, plain: str) -> list[str]:
    """Return the parts of the text that match the messages of an entry."""
    matches = (_search(message, plain) for message in entry.messages)
    return [match[0] for match in matches if match]


def _search(message: str, plain: str) -> re.Match[str] | None:
    """Return where the message occurs. Looking for its parts first is a hundred times faster."""
    pattern, parts = _pattern(message)
    return pattern.search(plain) if all(part in plain for part in parts) else None


def _covered(spans: Sequence[str], others: Sequence[str]) -> bool:
    """Return whether longer messages of other entries contain all the parts."""
    return all(any(span in other and span != other for other in others) for span in spans)


def _unexplained(text: str, found: Mapping[Entry, Sequence[str]]) -> list[str]:
    """Return the errors of a log that neither wrap another one nor belong to a known message."""
    return [
        error
        for error, _ in _errors(text)
        if not any(
            _spans(entry, _plain(error)) or any(_plain(error) in span for span in spans)
            for entry, spans in found.items()
        )
    ]


def _errors(text: str) -> Iterator[tuple[str, int]]:
    """Yield the errors of a log that do not wrap another one, with their positions."""
    lines = _lines(text)
    for match in _ERROR.finditer(lines):
        if not _WRAPPER.search(match[1]):
            yield match[1].strip(), match.start()


def _lines(text: str) -> str:
    """Return the end of a log without colors, progress bars and ignored exceptions."""
    lines = _COLORS.sub("", text[-_LOG:]).replace("\r\n", "\n").replace("\r", "\n")
    return _IGNORED.sub("", lines)


def _origin(text: str) -> str:
    """Return the first error of a log, and the line of the caller's code that raised it."""
    error, place = next(_errors(text), ("", 0))
    if not error:
        return ""
    frames = [frame.groups() for frame in _FRAME.finditer(_lines(text)[:place])]
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])]
    short = error if len(error) <= 200 else f"{error[:200]}{ANY}"
    return f"{short} ({own[-1][0]}, line {own[-1][1]}, in {own[-1][2]})" if own else short


@cache
def _pattern(message: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Return the pattern of a message, and the parts between its placeholders."""
    parts = tuple(part.strip() for part in _plain(message).split(ANY))
    # a message that begins with a word does not begin within one
    start = r"(?<![a-z0-9])" if message[0].isalnum() else ""
    return re.compile(start + f".{{0,{_FAR}}}?".join(map(re.escape, parts))), parts


def _plain(text: str) -> str:
    """Return the text in lower case, without colors and line breaks, with plain quotes."""
    return " ".join(_COLORS.sub("", text).translate(_QUOTES).lower().split())


def _about(plain: str) -> list[Entry]:
    """Return the entry of this name, those whose message contains the text, or those that fit."""
    every = entries()
    if (name := plain.replace(" ", "_")) in every:
        return [every[name]]
    of_message = [e for e in every.values() if any(plain in _plain(one) for one in e.messages)]
    return of_message if len(plain) >= _PART and of_message else by_words(plain)
