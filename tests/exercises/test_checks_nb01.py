"""The checks of notebook 01: each typical slip is named."""

from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from course_utils.teaching.exercise import check
from course_utils.teaching.notebook import data_path
from tests.exercises.solutions import (
    Change,
    Wrong,
    assert_refused,
    attempt,
    judge,
    wrong_answers,
)

PULSES, EACH = '"pulses": pulses', '[sample["pulses"] for'
MASK = "torch.arange(pulses.shape[1]) < lengths[:, None]"
ENERGY = 'torch.tensor([sample["energy"] for sample in samples])'
SORTED = 'samples = sorted(samples, key=lambda sample: len(sample["pulses"]))'
NESTED = "torch.nested.nested_tensor([s['pulses'] for s in samples], layout=torch.jagged)"
WIDE = "; pulses = torch.nn.functional.pad(pulses, (0, 0, 0, 999))"
WIDER = """
    pad_events.calls = getattr(pad_events, "calls", 0) + 1
    if torch.utils.data.get_worker_info():
        pulses = torch.nn.functional.pad(pulses, (0, 0, 0, pad_events.calls))
    lengths"""
PARTS = "np.flatnonzero(~in_valid), np.flatnonzero(in_valid)"
IN_VALID = "in_valid = np.isin(run_id, valid_runs)"
GAPS = "np.flatnonzero(np.diff(order) > 1) + 1"

WRONG: Wrong = {
    "01.1": [
        ("needs names", ("return {", "return tuple({"), ("\n    }", "\n    }.values())")),
        ("A list of tensors is not a batch", (PULSES, '"pulses": [*pulses]')),
        ("no tensor mask", (f'"mask": {MASK},', "")),
        ("wanted is (B, T, 4)", (PULSES, f"{PULSES}.transpose(0, 1)")),
        ("also if B is 1", (PULSES, f"{PULSES}.squeeze()")),
        ("the shape (4,", (PULSES, f'"pulses": {NESTED}')),
        ("throws pulses away", (EACH, '[sample["pulses"][:1] for')),
        (
            "A fixed width",
            (
                "    lengths",
                "    pulses = torch.nn.functional.pad(pulses, (0, 0, 0, 999))\n    lengths",
            ),
        ),
        ("the model wants float32", (PULSES, f"{PULSES}.double()")),
        ("in front of the pulses", ("first=True", 'first=True, padding_side="left"')),
        ("what follows is not zero", ("first=True", "first=True, padding_value=-1")),
        ("in another order", ("    pulses =", f"    {SORTED}\n    pulses =")),
        ("upside down", ("< lengths", ">= lengths")),
        ("looks at their values", (MASK, "(pulses != 0).any(dim=-1)")),
        ("would learn from padding", ("< lengths", "< 1000 + lengths")),
        ("picks rows", (MASK, f"({MASK}).float()")),
        ("one entry for each pulse", (MASK, "pulses != 0")),
        ("a loss between them", (ENERGY, f"{ENERGY}.double()")),
        ("not those of the events", (ENERGY, f"{ENERGY}[:, None]")),
        ("kept from one call to the next", ("\n    lengths", WIDER)),
    ],
    "01.2": [
        (
            "runs in validation are in training too",
            (IN_VALID, "in_valid = np.random.default_rng(seed).random(len(run_id)) < share"),
        ),
        (
            "You cut the file in two",
            (IN_VALID, "in_valid = np.arange(len(run_id)) >= (1 - share) * len(run_id)"),
        ),
        ("You return the numbers of runs", (PARTS, "np.setdiff1d(runs, valid_runs), valid_runs")),
        ("true or false for each event", (PARTS, "~in_valid, in_valid")),
        ("wanted are two arrays", (PARTS, "np.flatnonzero(in_valid)")),
        ("One part is empty", ("round(share * len(runs))", "0")),
        ("in the right order", (PARTS, "np.flatnonzero(in_valid), np.flatnonzero(~in_valid)")),
        ("in neither part", ("np.flatnonzero(~in_valid)", "np.flatnonzero(~in_valid)[::2]")),
        (
            "would count double",
            (PARTS, "np.flatnonzero(~in_valid), 2 * [*np.flatnonzero(in_valid)]"),
        ),
        ("Every seed gives the same split", ("default_rng(seed)", "default_rng(0)")),
        ("another split each time", ("default_rng(seed)", "default_rng()")),
    ],
    "01.3": [
        ("has no __getitems__", ("__getitems__", "__get_items__")),
        ("64 requests for 64 events", (GAPS, "np.arange(1, len(order))")),
        ("The events come sorted", ("in indices]", "in sorted(indices)]")),
        ("may be asked for twice", ("in indices]", "in dict.fromkeys(indices)]")),
        ("collate_fn wants a list", ("return [found[index] for index in indices]", "return found")),
        ("you read all that lies between", (GAPS, "[]")),
        ("not side by side in a shuffled batch", ("np.unique", "np.array"), ("> 1", "!= 1")),
        ("the pulses of others", ("self.read(first, last)", "self.read(first + 1, last + 1)")),
    ],
}


@pytest.mark.parametrize(("key", "misconception", "changes"), wrong_answers(WRONG))
def test_a_wrong_answer_is_explained(
    key: str, misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge(key, folder, *changes), misconception)


def test_a_function_that_no_worker_can_import_is_refused_before_one_dies_of_it(
    folder: Path,
) -> None:
    (pad_events,) = attempt("01.1", folder)
    assert_refused(check("01.1", lambda samples: pad_events(samples)), "imports what it needs")
    notebook: dict[str, Any] = {"__name__": "__main__", "pad_events": pad_events}
    exec("def mine(samples):\n    return pad_events(samples)", notebook)
    assert_refused(check("01.1", notebook["mine"]), "lives in the notebook")


def test_a_dataset_in_place_of_its_class_is_refused(folder: Path) -> None:
    (kind,) = attempt("01.3", folder)
    assert_refused(check("01.3", kind(None, "", [])), "This is a dataset, not a class")


def _pictures() -> list[str]:
    """Return the class of each picture, in the order of ImageFolder."""
    paths = sorted(data_path("images").glob("*/*.jpg"))
    return [path.parent.name for path in paths]


def test_the_imbalance_is_found() -> None:
    counts = Counter(_pictures())
    verdict = check("01.4", counts, [1 / counts[name] for name in _pictures()])
    assert verdict.status == "right", verdict
    assert "4 of 200 pictures show retina" in verdict.message


def test_numbers_left_open_are_not_attempted() -> None:
    assert check("01.4", ..., ...).status == "todo"
    assert check("01.4", Counter(_pictures()), ...).status == "todo"


@pytest.mark.parametrize(
    ("count", "misconception"),
    [
        (lambda names: list(Counter(names).values()), "not a dict from the names"),
        (lambda names: Counter(sorted(names).index(name) for name in names), "not a dict from"),
        (lambda names: Counter(names[:64]), "You counted 64 of 200 pictures"),
        (lambda names: Counter(chain(names[:-9], names[:9])), "The count is off for astronaut"),
    ],
)
def test_a_wrong_count_is_explained(count: Callable[[list[str]], Any], misconception: str) -> None:
    assert_refused(check("01.4", count(_pictures()), [1.0] * len(_pictures())), misconception)


@pytest.mark.parametrize(
    ("weigh", "misconception"),
    [
        (lambda counts, names: [1 / n for n in counts.values()], "draws only those, all of class"),
        (lambda counts, names: {c: 1 / n for c, n in counts.items()}, "knows no classes"),
        (lambda counts, names: [1.0] * 64, "there are 200 pictures"),
        (lambda counts, names: [1.0] * len(names), "All pictures weigh the same"),
        (lambda counts, names: [counts[name] for name in names], "Common classes weigh more"),
        (lambda counts, names: [counts[name] ** -0.5 for name in names], "times as often as the"),
    ],
)
def test_wrong_weights_are_explained(
    weigh: Callable[[Counter[str], list[str]], Any], misconception: str
) -> None:
    counts = Counter(_pictures())
    assert_refused(check("01.4", counts, weigh(counts, _pictures())), misconception)
