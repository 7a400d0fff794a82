r"""Count phrases that make our prose read like a translation.

    python docs/plain_english.py                        # hits of each area, with its limit
    python docs/plain_english.py --strict               # the same; fail above a limit
    python docs/plain_english.py docs README.md --show all    # list the hits in some paths

The checker reads Markdown, TOML (title, why, do) and Python (docstrings, comments, strings and
Markdown cells), but no code. It finds about one awkward sentence in three. Habits, such as
semicolons, are listed but not counted, because a single use is fine.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).parents[1]
LIMITS = {  # hits per 1,000 words, by area
    "notebooks": 1.0,
    "docs": 1.0,
    "slides": 1.0,
    "keepfed": 2.0,
    "course_utils": 2.0,
    "data_scripts": 2.0,
    "benchmarks": 2.0,
    "tests": 3.0,
}
SUFFIXES = (".md", ".py", ".toml")
# build outputs, and this file, which contains the phrases
EXCLUDED = {
    "__pycache__",
    "assembled",
    "build",
    "built",
    "node_modules",
    "work",
    Path(__file__).name,
}

Row = tuple[int, str]  # line number, text
START = r"(?:(?<=^)|(?<=[.!?:;(] ))(?:- |\d+\. |\*\*)?"  # beginning of a sentence or clause
BE = r"(?:is|are|was|were)"


class Pattern(NamedTuple):
    """A phrase to avoid, and what to write instead."""

    name: str
    expression: str
    advice: str
    kind: str = ""  # the only kind of block with this pattern, or "" for all
    counted: bool = True  # whether hits count for the limits


PATTERNS = (
    Pattern(
        "whoever",
        r"\b[Ww]ho(?:m|se)?ever\b|(?<!do )(?<!what )"
        r"\b[Aa]ll (?:that|those who|who)\b(?!'s| is left| once| with| are|$)",
        "name the actor; 'if you ...'; everything",
    ),
    Pattern(
        "what-subject",
        START + r"What (?!if\b|does\b|do\b|did\b)[^.?!:;]{8,}[.;](?= |$)",
        "start with the noun",
    ),
    Pattern(
        "what-participle",
        rf"\bwhat (?:{BE}|has|had) (?:not |been |no longer )*(?!called|described)(?:\w+ed|read|"
        r"kept|held|sent|made|written|known|taken|given|lost|cut|extra|told|begun|there)\b",
        "name the thing",
    ),
    Pattern("fronted-of", START + r"Of (?!course|what)\w+", "put the noun first"),
    Pattern(
        "where-if",
        r"\b[Ww]here (?:there|nothing|nobody|no|none|one|only|each) (?:\w+ )?"
        r"(?:is|are|has|can|does|do|was|were|needs?)\b|" + START + r"Where (?!is|are|do|does|to|it|"
        r"code|the \w+ (?:keeps|is|are)\b)[^?.,]{4,60}, (?!and|how)",
        "if, when",
    ),
    Pattern(
        "no-noun",
        START + r"No (?!longer|need|GPU|matter|one\b)(?:[\w-]+ ){1,4}(?:is|are|has|have|can|will|"
        r"needs?|does|leaves?|reads?|knows?|stays?|tells?|serves?|gets?|opens|shows)\b"
        r"(?! (?:faster|slower|too|good|best|better|left|named))|"
        r"\b(?:that|which|what|by|for|of|tells|told|whom) nobody\b(?! (?:reads|asked))|"
        r"\bnobody (?:else )?(?:waits|listens|looks|needs|asks|removes|tells|told|holds|"
        r"has (?:begun|asked|had)|is (?:told|served))",
        "negate the verb; unused",
    ),
    Pattern(
        "is-no",
        rf"(?<!here ){BE} no (?!longer|more\b|less|better|faster|slower|use|doubt|need|way|point|"
        r"such|effect|idea|different|trick|catastrophe|GPU|CUDA)[`\w]+|"
        r"\b(?:cannot|could not) be[;,.](?= |$)",
        "is not a; is not possible because ...",
    ),
    Pattern(
        "archaic",
        r"\b(?:[Mm]end(?:s|ed|ing)?|[Bb]eside|anew|meanwhile|amid|lest|in earnest|in vain|for ever|"
        r"in place of|dear\b(?=[.,;])|reckoned|for want of|all the same|as a rule|be it|ailments?|"
        r"cures?|remedy|headspace|keep the books|the books\b|whole or not at all|"
        rf"{BE} through\b(?! the| which)|(?:came|comes?) to (?:its|their) end|half way)\b",
        "use the common word",
    ),
    Pattern(
        "lie-stand",
        r"(?<!that )\b(?:lies?|lay|lying|stands?|stood)\b"
        r"(?!-| (?:for|out|in for|in front|alone|still|up|between)\b)",
        "is, is stored, is listed",
    ),
    Pattern(
        "of-its-own",
        r"\bof (?:(?:its|their|our|your|my|one's|his) own\b(?! accord)|(?:yours|ours|theirs)\b)",
        "its own X; separate",
    ),
    Pattern(
        "also-even",
        r"\balso (?:without|where|if|when|while|after|those|under)\b|"
        r"(?<=, )also (?:for|with|by|an?|in)\b",
        "even, including",
    ),
    Pattern(
        "is-there",
        rf"\b(?:that|who|what|[Ww]hatever) {BE} (?:not )?to [a-z]+|"
        r"\b(?:is|are) to be \w+(?:ed|n)\b|"
        rf"\b(?:that|which|what|and) {BE} (?:not )?(?:yet |already )?there\b|"
        rf"\b{BE} there (?:already|yet)\b",
        "must, should; exists, is available",
    ),
    Pattern(
        "told",
        rf"\b(?:says so|saying so|{BE} (?:told|said)(?! to| apart)|be told(?! apart))\b",
        "reports, is labeled, is documented",
    ),
    Pattern(
        "goes-on",
        r"(?<!what )\b(?:goes|go|went|gone) on\b(?!\?)|"
        r"\b[Ff]rom (?!then|now|there|here|that|this point)(?:[\w:,]+ ){1,4}on\b"
        r"(?=[,.;:)]| again|$)",
        "continue, resume; starting at",
    ),
    Pattern(
        "lecture-notes",
        r"\b(?:lecture notes|[Tt]he (?:same )?notes (?:say|call|print|go|give|of|that|are)|"
        r"[Tt]hese notes)\b",
        "state the fact; cite the source once",
    ),
    Pattern(
        "clause-docstring",
        r"^(?:Tells?|Says?|Notes?|Is told|What|Where|Who|How(?! many| much| long)|Which)\b",
        "Return / Record / Report; a noun",
        kind="docstring",
    ),
    Pattern(
        "telegram-comment",
        r"^(?:and )?(?:of|whose|which|that|what|who|(?:in|for|with|from|by) which)\b",
        "start with a noun",
        kind="comment",
    ),
    Pattern(
        "so-start",
        r"(?:(?<=^)|(?<=[.!?] ))So (?!far|that|on\b|called)",
        "at most one in a section",
        counted=False,
    ),
    Pattern(
        "of-which",
        r"\b(?:of|for|in|from|with|to|by|at|on) which\b",
        "split the sentence",
        counted=False,
    ),
    Pattern(
        "colon-clause",
        r"(?<=[a-z)]): (?:it|they|the|a|an|this|that|each|every|no|nothing|what|where|who|if|all|"
        r"you|then)\b",
        "because; a full stop",
        counted=False,
    ),
    Pattern("semicolon", r"[a-z)];(?= [a-z])", "a full stop", counted=False),
)

_CODE = re.compile(r"`[^`]*`|\$[^$]*\$|https?://\S+|<!--.*?-->|(?<=\])\([^)]*\)|\{[^{}]*\}")
_ITEM = ("#", "|", "- ", "* ", "+ ")  # rows that start a new paragraph
_NO_PROSE = ("```", "---", "|--", "<", "%", ">>>", "jupyter:", ":::")


class Block(NamedTuple):
    """A paragraph of prose."""

    kind: str  # "text", "docstring" (its first paragraph), "comment" or "literal"
    rows: list[Row]


class Hit(NamedTuple):
    """A phrase to avoid, with its line number and its context."""

    pattern: Pattern
    line: int
    quote: str


def main(argv: Sequence[str] | None = None) -> int:
    """Print the hits; with --strict, return 1 if an area exceeds its limit."""
    parser = argparse.ArgumentParser(description="Count phrases that read like a translation.")
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders (default: all areas)")
    parser.add_argument("--show", metavar="NAME", help="list the hits of one pattern, or 'all'")
    parser.add_argument("--strict", action="store_true", help="fail if an area exceeds its limit")
    options = parser.parse_args(argv)
    if options.paths:
        words, hits = _scan_files(_prose_files(options.paths), options.show)
        _print_patterns(words, Counter(hit.pattern for hit in hits))
        return 0
    above = [area for area, rate in _print_areas(options.show) if rate > LIMITS[area]]
    if options.strict and above:
        print(f"Too many hits in {', '.join(above)}. List them: python {sys.argv[0]} --show all")
    return int(options.strict and bool(above))


def scan(path: Path) -> tuple[int, list[Hit]]:
    """Return the number of words in a file, and its hits."""
    return find(_blocks(path.suffix, path.read_text("utf-8")))


def find(blocks: Iterable[Block]) -> tuple[int, list[Hit]]:
    """Return the number of words in some blocks, and their hits."""
    words, hits = 0, list[Hit]()
    for kind, rows in blocks:
        parts = [_CODE.sub("X", row).strip() + " " for _, row in rows]
        text, ends = "".join(parts), [*accumulate(map(len, parts))]
        words += len(re.findall(r"[A-Za-z][\w'-]*", text))
        for pattern in PATTERNS:
            if pattern.kind not in ("", kind):
                continue
            for match in re.finditer(pattern.expression, text.rstrip()):
                line = next(
                    n for (n, _), end in zip(rows, ends, strict=True) if match.start() < end
                )
                quote = text[max(0, match.start() - 50) : match.end() + 50].strip()
                hits.append(Hit(pattern, line, quote))
    return words, hits


def area_of(path: Path) -> str:
    """Return the area of a file in the repository, or "" if it belongs to none."""
    parts = path.relative_to(REPO).parts
    return "docs" if len(parts) == 1 or path.name == "README.md" else parts[0]


def _print_areas(show: str | None) -> Iterator[tuple[str, float]]:
    """Print and yield the hits per 1,000 words of each area."""
    files = [*_prose_files([REPO / area for area in LIMITS]), *REPO.glob("*.md")]
    print(f"{'area':<18}{'words':>9}{'hits':>7}{'per 1,000':>11}{'limit':>7}")
    for area, limit in LIMITS.items():
        words, hits = _scan_files([file for file in files if area_of(file) == area], show)
        count = sum(hit.pattern.counted for hit in hits)
        rate = 1000 * count / max(words, 1)
        print(f"{area:<18}{words:>9,}{count:>7}{rate:>11.2f}{limit:>7.1f}")
        yield area, rate


def _print_patterns(words: int, counts: Counter[Pattern]) -> None:
    """Print the hits of each pattern, and their sum."""
    for pattern in PATTERNS:
        advice = pattern.advice if pattern.counted else f"{pattern.advice} (not counted)"
        print(f"{counts[pattern]:6} {1000 * counts[pattern] / max(words, 1):7.2f}  ", end="")
        print(f"{pattern.name:17} {advice}")
    total = sum(count for pattern, count in counts.items() if pattern.counted)
    print(f"{total:6} {1000 * total / max(words, 1):7.2f}  total             in {words:,} words")


def _scan_files(files: Iterable[Path], show: str | None) -> tuple[int, list[Hit]]:
    words, hits = 0, list[Hit]()
    for file in files:
        more, found = scan(file)
        words, hits = words + more, hits + found
        for pattern, line, quote in found:
            if show in (pattern.name, "all"):
                print(f"{file}:{line}: {pattern.name}: {quote}")
    return words, hits


def _prose_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            below = file.relative_to(path).parts if path.is_dir() else (file.name,)
            hidden = any(part.startswith(".") for part in below)
            if file.suffix in SUFFIXES and not hidden and not EXCLUDED & set(below):
                yield file


def _blocks(suffix: str, text: str) -> Iterator[Block]:
    """Yield the prose of a file with this suffix."""
    rows = list(enumerate(text.splitlines(), 1))
    if suffix == ".py":
        yield from _python_blocks(rows, text)
    elif suffix == ".md":
        yield from (Block("text", rows) for rows in _paragraphs(rows))
    else:
        fields = ((n, re.match(r'(?:title|why|do) = "(.*)"$', row)) for n, row in rows)
        yield from (Block("text", [(n, field[1])]) for n, field in fields if field)


def _paragraphs(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Group the rows of Markdown into paragraphs, without code."""
    paragraph: list[Row] = []
    fenced = False
    for number, row in [*((n, row.strip()) for n, row in rows), (0, "")]:
        fenced ^= row.startswith("```")
        if paragraph and (fenced or not row or row.startswith(_ITEM + _NO_PROSE)):
            yield paragraph
            paragraph = []
        if row and not fenced and not row.startswith(_NO_PROSE):
            paragraph.append((number, row.lstrip("-*+#| ") if row.startswith(_ITEM) else row))


def _python_blocks(rows: Sequence[Row], text: str) -> Iterator[Block]:
    """Yield the Markdown cells, docstrings, strings and comments of a Python file."""
    is_notebook = "# %% [markdown]" in text
    if is_notebook:
        yield from (Block("text", cell) for cell in _paragraphs(_markdown_cells(rows)))
    tree = ast.parse(re.sub(r"(?m)^(\s*)[%!](?!=).*$", r"\1pass", text))  # without magic commands
    yield from _strings(tree)
    yield from (Block("comment", rows) for rows in _paragraphs(_comments(text, is_notebook)))


def _markdown_cells(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows of Markdown cells without `# `, and empty rows instead of code."""
    markdown = False
    for number, row in rows:
        if row.startswith("# %%"):
            markdown = "[markdown]" in row
            yield number, ""
        else:
            yield number, row[2:] if markdown else ""


def _strings(tree: ast.Module) -> Iterator[Block]:
    """Yield docstrings, and other strings of at least three words."""
    seen: set[ast.AST] = set()  # parts of strings that were already yielded
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            (statement, *_) = node.body
            assert isinstance(statement, ast.Expr)
            value = statement.value
            assert isinstance(value, ast.Constant)
            seen.add(value)
            rows = enumerate(str(value.value).split("\n"), value.lineno)
            for number, paragraph in enumerate(_paragraphs(rows)):
                yield Block("text" if number else "docstring", paragraph)
        elif isinstance(node, ast.JoinedStr):
            seen.update(node.values)
            parts = [str(v.value) if isinstance(v, ast.Constant) else "X" for v in node.values]
            yield Block("literal", [(node.lineno, "".join(parts))])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            wordy = len(re.findall(r"\b[a-z]{2,}\b", node.value)) > 2
            if wordy and node not in seen and "\n" not in node.value:
                yield Block("literal", [(node.lineno, node.value)])


def _comments(text: str, is_notebook: bool) -> list[Row]:
    """Return the comments, with empty rows between unrelated ones."""
    comments: list[Row] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        whole_line, line = token.line.strip().startswith("#"), token.start[0]
        is_cell = is_notebook and whole_line
        if token.type == tokenize.COMMENT and not is_cell and "noqa" not in token.string:
            if not (whole_line and comments and comments[-1][0] == line - 1):
                comments.append((line, ""))
            comments.append((line, token.string.lstrip("# ")))
    return comments


if __name__ == "__main__":
    sys.exit(main())
