"""Find entries by plain words, such as "the GPU is idle"."""

import re
from collections import Counter
from functools import cache
from math import log

from keepfed.field_guide.entry import TOPICS, Entry, entries

_SMALL = """
after all also although always and any are at be because been but by can dataloader do does each
every for from get gets goes had has have how if in into is it its just made makes me more most much
my nearly no not of on one only or our out over per same since some still takes than that the their
them then there they this time to too use using utils very was we what when which while why will
with without you your python pytorch torch
"""
SMALL = _SMALL.split()
# each line: words that people use for the same thing
SYNONYMS = tuple(
    line.split()
    for line in """\
hang stuck freeze frozen forever never deadlock blocks blocked unresponsive stops stall stalls
idle starved starving waits waiting underutilized utilization utilization bored
slow slowly slows slowdown lag bottleneck
fast quick quicker quickly
memory ram leak oom
grow increase climb rise fill
again twice repeat repeated
duplicate duplicated identical copies
resume restart continue checkpoint
start begin beginning first
random augmentation seed
image photo picture jpeg jpg png
rank ranks ddp distributed multi node nodes
gpu cuda device
crash die killed dies died
mixed mix shuffle shuffled unmixed
differ different changes change
container docker kubernetes pod
validation val valid evaluation eval test
bucket s3 cloud
disk storage nfs
leak overlap share common
nan inf infinite
""".splitlines()
)
_WORD = re.compile(r"[a-z][a-z0-9]+")
_SUFFIX = re.compile(r"(?<=..[a-z])(ers?|ing|ed|es|e|(?<!s)s)$")
_WEAK = 0.4  # weight of a word that only the explanation of an entry contains
_UNKNOWN = 3.0  # weight of a word that no entry contains
_COVERED = 0.45  # share of the words that an entry has to contain
_LEAST = 1.0  # score below which an entry is not listed
_NEAR = 0.85  # share of the best score that another entry needs to be listed
_MOST = 3  # entries


def by_words(plain: str) -> list[Entry]:
    """Return the entries that fit the words best. `plain` is in lower case."""
    asked = words_of(plain)
    if not asked:
        return []
    weight = {word: _weight(word) for word in asked}
    total = sum(weight.values())
    scores = {}
    for entry, (strong, weak, symptoms) in _vocabulary().items():
        of_bag = sum(weight[word] * (1 if word in strong else _WEAK) for word in asked & weak)
        of_symptom = max((_likeness(asked, words) for words in symptoms), default=0.0)
        covered = of_bag / total
        scores[entry] = covered + 1.5 * of_symptom if covered > _COVERED else 0.0
    best = sorted(scores, key=lambda entry: -scores[entry])[:_MOST]
    least = max(_LEAST, _NEAR * scores[best[0]])
    return [entry for entry in best if scores[entry] >= least]


def words_of(text: str) -> frozenset[str]:
    """Return the stems of the words of a text, with one word for all its synonyms."""
    found = (word for word in _WORD.findall(text.lower()) if word not in SMALL)
    return frozenset(_same().get(stem, stem) for stem in map(_stem, found))


def _likeness(asked: frozenset[str], words: frozenset[str]) -> float:
    """Return how much two sets of words have in common, from 0 to 1."""
    both, sizes = (sum(map(_weight, asked & words)), sum(map(_weight, (*asked, *words))))
    return 2 * both / sizes if sizes else 0.0


def _stem(word: str) -> str:
    return _SUFFIX.sub("", word)


@cache
def _same() -> dict[str, str]:
    return {_stem(word): _stem(line[0]) for line in SYNONYMS for word in line}


@cache
def _vocabulary() -> dict[Entry, tuple[frozenset[str], frozenset[str], list[frozenset[str]]]]:
    """Return the words of each entry: of its title and symptoms, all, and of each symptom."""
    found = {}
    for entry in entries().values():
        symptoms = [entry.title, *entry.symptoms]
        strong = words_of(" ".join([entry.name.replace("_", " "), *symptoms, *entry.messages]))
        weak = words_of(" ".join([TOPICS[entry.topic], entry.why, *entry.fix]))
        found[entry] = strong, strong | weak, [words_of(symptom) for symptom in symptoms]
    return found


@cache
def _weight(word: str) -> float:
    """Return how much a word tells: a rare one more than a frequent one, an unknown one little."""
    if not (count := _frequency()[word]):
        return _UNKNOWN
    return log((len(_vocabulary()) + 1) / (count + 0.5))


@cache
def _frequency() -> Counter[str]:
    return Counter(word for _, weak, _ in _vocabulary().values() for word in weak)
