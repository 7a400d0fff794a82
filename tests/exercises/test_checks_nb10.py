"""The checks of notebook 10: each typical slip in the solutions is named."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from course_utils.teaching.exercise import check
from notebooks.exercises.nb10.ex1_repair_six import same
from notebooks.exercises.nb10.problem import PRINTED, SHOWN
from tests.exercises.solutions import Change, assert_refused, attempt, judge, judge_stub

SIX = {printed.__name__: printed for printed in PRINTED}
LABELS = ("DataLoader(data, batch_size=None)", "DataLoader(data)")
IMAGES = [('decode("pil")', 'decode("torchrgb")'), ("small, int", "T.ToTensor(), int")]
ORDER = "shardshuffle=100, detshuffle=True"
MIXED = (".shuffle(1000).map(decode)", ".map(decode).shuffle(1000)")
MAKES_FOLDER = "    os.makedirs(folder, exist_ok=True)\n"
COMPLETE = "def complete(urls):\n    return wds.WebDataset(urls, shardshuffle=False"
AS_PRINTED = {
    "labels": [LABELS],
    "images": IMAGES,
    "epoch": [(ORDER, "resampled=True, shardshuffle=False")],
    "mixed": [MIXED],
    "cached": [(MAKES_FOLDER, ""), (", cache_size=10**10", "")],
    "complete": [(COMPLETE, f"{COMPLETE}, handler=wds.warn_and_continue")],
}


def test_snippets_as_printed_are_not_attempted(folder: Path) -> None:
    assert judge_stub("10.1", folder).status == "todo"


@pytest.mark.parametrize("name", SIX)
def test_a_mutation_is_what_the_notebook_prints(name: str, folder: Path) -> None:
    mutated = {one.__name__: one for one in attempt("10.1", folder, *AS_PRINTED[name])}
    assert [other for other in SIX if same(mutated[other], SIX[other])] == [name]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        [('("cls").batched(16)', '("cls")'), ("data, batch_size=None", "data, batch_size=16")],
        [('decode("pil")', 'decode("torchrgb")'), ("small, int", "T.Resize((16, 16)), int")],
        [(f"{ORDER})", "shardshuffle=False).shuffle(1000)")],
    ],
    ids=["torch makes the batches", "tensors are resized", "samples are mixed"],
)
def test_another_repair_is_right_too(changes: list[Change], folder: Path) -> None:
    verdict = judge("10.1", folder, *changes)
    assert verdict.status == "right", verdict


WRONG_REPAIRS = [
    ("`labels`, still as printed: a batch of labels has the shape (1, 16)", AS_PRINTED["labels"]),
    ("TypeError: pic should be PIL Image", AS_PRINTED["images"]),
    ("`epoch`, still as printed: after 405 of 135 samples there is no end", AS_PRINTED["epoch"]),
    ("`mixed`, still as printed: 100 samples are decoded before the first", AS_PRINTED["mixed"]),
    ("does not exist", AS_PRINTED["cached"]),
    ("as if all were well", AS_PRINTED["complete"]),
    ("batches of what it gets", [(LABELS[0], "DataLoader(data, batch_size=2, drop_last=True)")]),
    (
        "`labels`: 128 samples are served",
        [('"cls").batched(16', '"cls").batched(16, partial=False')],
    ),
    ("`images`: it stops: ", [IMAGES[1]]),
    ("a batch of images is a list, not a tensor", [("small, int", "T.Resize((16, 16)), int")]),
    ("still draws with replacement", [(f"{ORDER})", "resampled=True).with_epoch(140)")]),
    ("uses it again in every epoch", [(", detshuffle=True", "")]),
    ("`epoch`: two epochs have the same order", [(ORDER, "shardshuffle=False")]),
    ("nothing mixes them", [(MIXED[0], ".map(decode)")]),
    ("not every sample goes through decode", [(".map(decode)", "")]),
    ("`cached`: the folder may grow without end", [(", cache_size=10**10", "")]),
    ("nothing is kept in that folder", [(", cache_dir=folder, cache_size=10**10", "")]),
    ("nobody is told", [(COMPLETE, f"{COMPLETE}, handler=wds.ignore_and_continue")]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("misconception", "changes"), WRONG_REPAIRS)
def test_a_wrong_repair_is_explained(
    misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge("10.1", folder, *changes), misconception)


@pytest.mark.slow
def test_the_snippets_that_are_right_are_named_and_those_that_are_not(folder: Path) -> None:
    left = [change for name in SIX.keys() - {"epoch", "cached"} for change in AS_PRINTED[name]]
    verdict = judge("10.1", folder, *left)
    assert_refused(verdict, "Right: epoch, cached. `labels`, still as printed:")
    assert "To repair after it: images, mixed, complete." in verdict.message


def test_five_snippets_are_refused(folder: Path) -> None:
    assert_refused(check("10.1", *attempt("10.1", folder)[:5]), "The check gets labels")


def test_larger_shards_are_right_too(folder: Path) -> None:
    larger = (
        "round(samples * sample_mb / places / 256)",
        "int(samples * sample_mb / places / 500)",
    )
    verdict = judge("10.2", folder, larger)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("misconception", "changes"),
    [
        (
            "do not divide evenly among",
            [("places * max(1, each)", "max(1, round(samples * sample_mb / 256))")],
        ),
        ("a shard has 2,202 MB", [("places * max(1, each)", "places")]),
        ("do not divide evenly among", [(" * ranks", "")]),
        (
            "which is no number of shards",
            [("max(1, workers)", "workers"), ("/ places", "/ max(1, places)")],
        ),
        ("a shard has", [("max(1, each)", "1000")]),
        ("which is no number of shards", [("max(1, each)", "float(max(1, each))")]),
        ("there are more than the readers need", [("max(1, each)", "max(4, each)")]),
    ],
)
def test_a_wrong_number_of_shards_is_explained(
    misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge("10.2", folder, *changes), misconception)


def test_the_data_sets_that_are_shown_differ_in_what_limits_them(folder: Path) -> None:
    (choose,) = attempt("10.2", folder)
    shown = SHOWN.values()
    found = [choose(one.samples, one.sample_mb, one.workers, one.ranks) for one in shown]
    assert found == [576, 16, 88, 2]


@pytest.mark.full
def test_a_stream_is_right_however_workers_start(folder: Path, start_method: str) -> None:
    multiprocessing.set_start_method(start_method, force=True)
    verdict = judge("10.3", folder)
    assert verdict.status == "right", verdict


OWN_ORDER = ("order[rank::world_size]", "urls[rank::world_size]")
ALL = ("order[rank::world_size]", "order")
SHARES = "order[rank * (len(urls) // world_size) : (rank + 1) * (len(urls) // world_size)]"


@pytest.mark.slow
def test_webdataset_may_shuffle_the_shards_itself(folder: Path) -> None:
    verdict = judge("10.3", folder, OWN_ORDER, ("shardshuffle=False", "shardshuffle=100"))
    assert verdict.status == "right", verdict


BY_NODE = ("nodesplitter=None", "nodesplitter=wds.split_by_node")
RESAMPLED = ("shardshuffle=False", "resampled=True, shardshuffle=False")
WRONG_STREAMS = [
    ("every rank serves the same samples", [ALL]),
    ("split_by_node would ask torch.distributed", [ALL, BY_NODE]),
    ("Under torchrun, with 2 ranks and 2 shards", [BY_NODE]),
    ("Under torchrun", [("nodesplitter=None, ", "")]),
    (
        "the workers of a rank serve the same samples",
        [("empty_check=False", "empty_check=False, workersplitter=None")],
    ),
    ("deal from an order of their own", [("default_rng(epoch)", "default_rng([epoch, rank])")]),
    ("there is no end", [OWN_ORDER, RESAMPLED]),
    ("served", [ALL, RESAMPLED, ("data.shuffle(100)", "data.with_epoch(10)")]),
    ("Every epoch reads the shards in the same order", [OWN_ORDER, (".shuffle(100)", "")]),
    ("only neighbours are ever mixed", [OWN_ORDER]),
    ("a worker has no shard", [("empty_check=False", "empty_check=True")]),
    ("are served by nobody", [(ALL[0], SHARES)]),
    ("it has no __key__", [(".shuffle(100)", '.to_tuple("txt")')]),
    ("places read the same shard", [ALL, (".shuffle(100)", ".slice(rank, None, world_size)")]),
]


@pytest.mark.parametrize(("misconception", "changes"), WRONG_STREAMS)
def test_a_wrong_stream_is_explained(
    misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge("10.3", folder, *changes), misconception)


def test_what_is_no_function_is_refused() -> None:
    assert_refused(check("10.3", 42), "this is something else")


def test_a_stream_of_the_notebook_is_refused_before_a_worker_dies_of_it(folder: Path) -> None:
    code: dict[str, Any] = {"__name__": "__main__", "once": attempt("10.3", folder)[0]}
    exec("def make_stream(*place):\n    return once(*place)\n", code)
    assert_refused(check("10.3", code["make_stream"]), "lives in the notebook")
