"""Create tokens from texts installed with Python and its packages: three uint16 corpora.

    python -m data_scripts.make_tokens --size M
    python -m data_scripts.make_tokens --size M --check

`code` contains modules of the standard library and of the packages below, `docs` contains
docstrings of these packages, and `prose` contains READMEs of all installed packages and the pages
of `help()`. A tokenizer with 8,192 tokens (byte-pair encoding) is trained on a part of each.
Nothing is downloaded. The same seed gives the same bytes as long as Python and its packages stay
the same.

tokenizer.json     for the library `tokenizers`
code/tokens.npy    uint16 (tokens,): concatenated documents, each followed by token 0
code/offsets.npy   int64 (documents + 1,): document i is tokens[offsets[i] : offsets[i + 1]]
"""

import ast
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import distributions
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from pydoc_data.topics import topics
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tqdm import tqdm

from course_utils.errors import CourseError
from course_utils.loading.tokens import END, END_TEXT
from data_scripts import files
from data_scripts.command import DatasetScript

COUNTS = {"S": 300_000, "M": 3_000_000, "L": 10_000_000}
SHARES = {"code": 0.77, "docs": 0.20, "prose": 0.03}  # unequal, like real corpora
PACKAGES = ("scipy", "numpy", "networkx", "skimage", "matplotlib", "pandas", "torch")
VOCABULARY = 8192
TRAINED_ON = 2_000_000  # characters
SHORTEST = 200  # characters; shorter texts contain little
AT_ONCE = 64  # documents encoded together
_LEFT_OUT = {"dist-packages", "site-packages", "test", "tests"}
_HEADING = re.compile(r"\n(?=##+ |.+\n[=~-]{4,}\n)")  # Markdown headings, or underlined ones

T = TypeVar("T")


def build(folder: Path, size: str, seed: int) -> files.Facts:
    """Fill an empty folder with the corpora of `size` and their tokenizer."""
    # Its threads do not survive a fork, so it would warn when a loader starts workers later.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    texts = {
        "code": _usable(_code(np.random.default_rng([seed, 0]))),
        "docs": _usable(_docs(np.random.default_rng([seed, 1]))),
        "prose": _usable(_prose(np.random.default_rng([seed, 2]))),
    }
    first = {name: _take(texts[name], share * TRAINED_ON) for name, share in SHARES.items()}
    tokenizer = train(chain(*first.values()))
    tokenizer.save(str(folder / "tokenizer.json"))
    counts = {}
    for name, share in SHARES.items():
        wanted = round(share * COUNTS[size])
        documents = _encode(tokenizer, chain(first[name], texts[name]), wanted, name)
        _write(folder / name, documents)
        counts[name] = {"documents": len(documents), "tokens": wanted}
    return {"counts": counts}


def train(texts: Iterable[str]) -> Tokenizer:
    """Return a tokenizer trained on these texts. It can encode any other text too."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_TEXT],  # becomes token 0
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _encode(
    tokenizer: Tokenizer, texts: Iterator[str], wanted: int, name: str
) -> list[NDArray[np.uint16]]:
    """Return documents with `wanted` tokens in total. The last one is truncated."""
    documents, left = list[NDArray[np.uint16]](), wanted
    with tqdm(total=wanted, desc=name, unit="token", unit_scale=True, disable=None) as bar:
        while left and (some := [text + END_TEXT for text in islice(texts, AT_ONCE)]):
            for encoded in tokenizer.encode_batch_fast(some):
                if left:
                    documents.append(np.array(encoded.ids[:left], np.uint16))
                    left -= len(documents[-1])
                    bar.update(len(documents[-1]))
    if left:
        raise CourseError(
            f"The {name} on this machine has only {wanted - left:,} of the required {wanted:,} "
            "tokens. Choose a smaller --size."
        )
    documents[-1][-1] = END
    return documents


def _write(folder: Path, documents: Sequence[NDArray[np.uint16]]) -> None:
    folder.mkdir()
    np.save(folder / "tokens.npy", np.concatenate(documents))
    np.save(folder / "offsets.npy", np.cumsum([0, *map(len, documents)], dtype=np.int64))


def _code(rng: np.random.Generator) -> Iterator[str]:
    """Yield modules, those of the standard library first."""
    for root in (Path(sysconfig.get_path("stdlib")), *_packages()):
        yield from map(_read, _shuffled(_modules(root), rng))


def _docs(rng: np.random.Generator) -> Iterator[str]:
    """Yield the docstrings of modules, classes and functions."""
    for path in _shuffled(chain(*map(_modules, _packages())), rng):
        with warnings.catch_warnings(), suppress(SyntaxError):
            warnings.simplefilter("ignore")  # invalid escapes in strings of these packages
            for node in ast.walk(ast.parse(_read(path))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    yield ast.get_docstring(node) or ""


def _prose(rng: np.random.Generator) -> Iterator[str]:
    """Yield sections of READMEs and pages of the Python manual."""
    installed = {one.name: one.metadata.json for one in distributions() if one.metadata}
    for ours in ("fast-data-loaders", "keepfed"):  # our own READMEs change
        installed.pop(ours, None)
    readmes = [str(installed[name].get("description", "")) for name in sorted(installed)]
    yield from _shuffled(chain(*map(_HEADING.split, readmes), topics.values()), rng)


def _usable(texts: Iterable[str]) -> Iterator[str]:
    return (text for text in texts if len(text) >= SHORTEST and END_TEXT not in text)


def _take(texts: Iterator[str], characters: float) -> list[str]:
    """Return the next texts, with at least `characters` in total if there are enough."""
    taken, left = [], characters
    while left > 0 and (text := next(texts, "")):
        taken.append(text)
        left -= len(text)
    return taken


def _shuffled(things: Iterable[T], rng: np.random.Generator) -> list[T]:
    known = [*things]
    return [known[index] for index in rng.permutation(len(known))]


def _packages() -> list[Path]:
    specs = filter(None, map(find_spec, PACKAGES))
    return [Path(place) for spec in specs for place in spec.submodule_search_locations or ()]


def _modules(root: Path) -> Iterator[Path]:
    """Yield the modules below a folder, in an order that does not depend on the disk."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted({*inner} - _LEFT_OUT)
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):  # a few files use a different encoding
        return ""


SCRIPT = DatasetScript(
    name="tokens",
    version=1,
    counts=COUNTS,
    bytes_each=dict.fromkeys("SML", 5),  # with a tokenizer as large as a small corpus
    seconds={"S": 5, "M": 10, "L": 32},
    build=build,
    usage=__doc__,
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
