"""The checks of notebook 10: stubs are not attempted, solutions right, typical slips named."""

import gc
import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from course_utils.teaching.exercise import check
from course_utils.teaching.notebook.worker_module import define
from notebooks.build import HERE, for_learner, read_source, with_solutions
from notebooks.exercises.nb10.ex1_repair_six import same
from notebooks.exercises.nb10.ex2_how_many_shards import SHOWN
from notebooks.exercises.nb10.printed import PRINTED
from tests.exercises import attempts_nb10 as attempts
from tests.exercises.answers import answer, assert_refused

# webdataset leaves its files open, and says so when they are collected
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SOURCE = HERE / "source/10_stream_shards.py"
STREAM = "import numpy as np\nimport webdataset as wds"


@pytest.fixture(scope="module", autouse=True)
def collect_open_files() -> Iterator[None]:
    """Let webdataset say so now, and not in a test of something else."""
    yield
    gc.collect()


def _six(version: Any, folder: Path) -> list[Callable[..., Any]]:
    """Return the six functions of the notebook; in the solutions, mended ones come later."""
    cells = [cell.source for cell in version(read_source(SOURCE)).cells]
    code = [cell for cell in cells if "def labels(" in cell or "def mixed(" in cell]
    given = "import webdataset as wds\nfrom torchvision import transforms as T"
    module = define(f"{version.__name__}_six", "\n".join([given, *code]), folder=folder)
    return [getattr(module, printed.__name__) for printed in PRINTED]


def test_snippets_as_printed_are_not_attempted(folder: Path) -> None:
    six = _six(for_learner, folder)
    assert all(same(*pair) for pair in zip(six, PRINTED, strict=True))
    assert check("10.1", *six).status == "todo"


@pytest.mark.parametrize(
    ("key", "name", "given"),
    [("10.2", "choose_shards", "pass"), ("10.3", "make_stream", STREAM)],
)
def test_a_stub_is_not_attempted(key: str, name: str, given: str, folder: Path) -> None:
    stub = answer("10", name, for_learner, folder, given=given)
    assert check(key, stub).status == "todo"


def test_the_mended_snippets_are_right(folder: Path) -> None:
    verdict = check("10.1", *_six(with_solutions, folder))
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("name", "attempt"),
    [
        ("labels", attempts.torch_makes_the_batches),
        ("images", attempts.torchrgb_resized),
        ("epoch", attempts.samples_are_mixed),
    ],
)
def test_another_repair_is_right_too(name: str, attempt: Any) -> None:
    verdict = check("10.1", *attempts.with_one(name, attempt))
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("name", "misconception"),
    [
        ("labels", "`labels`, still as printed: a batch of labels has the shape (1, 16)"),
        ("images", "`images`, still as printed: it stops: TypeError"),
        ("epoch", "there is no end"),
        ("mixed", "100 samples are decoded before the first is served"),
        ("cached", "does not exist"),
        ("complete", "as if all were well"),
    ],
)
def test_what_is_still_as_printed_is_named(name: str, misconception: str) -> None:
    attempt = attempts.AS_PRINTED[name]
    assert_refused(check("10.1", *attempts.with_one(name, attempt)), misconception)


@pytest.mark.parametrize(
    ("name", "attempt", "misconception"),
    [
        ("labels", attempts.batches_of_batches, "batches of what it gets"),
        ("labels", attempts.drops_the_last, "distinct; there are 1"),
        ("images", attempts.many_sizes, "all shapes must be equal"),
        ("images", attempts.no_tensors, "a batch of images is a list, not a tensor"),
        ("epoch", attempts.draws_that_end, "still draws with replacement"),
        ("epoch", attempts.one_seed, "uses it again in every epoch"),
        ("epoch", attempts.same_order, "two epochs have the same order"),
        ("mixed", attempts.not_mixed, "nothing mixes them"),
        ("mixed", attempts.not_decoded, "not every sample goes through decode"),
        ("cached", attempts.never_evicts, "may grow without end"),
        ("cached", attempts.no_cache, "nothing is kept in that folder"),
        ("complete", attempts.ignores, "the epoch is shorter, and nobody is told"),
    ],
)
def test_a_wrong_repair_is_explained(name: str, attempt: Any, misconception: str) -> None:
    verdict = check("10.1", *attempts.with_one(name, attempt))
    assert_refused(verdict, misconception)
    assert f"`{name}`" in verdict.message


def test_the_snippets_that_are_right_are_named_and_those_that_are_not() -> None:
    six = {**attempts.AS_PRINTED, "epoch": attempts.epoch, "cached": attempts.cached}
    verdict = check("10.1", *six.values())
    assert_refused(verdict, "Right: epoch, cached. `labels`, still as printed:")
    assert "To repair after it: images, mixed, complete." in verdict.message


def test_five_snippets_are_refused() -> None:
    assert_refused(check("10.1", *list(attempts.MENDED.values())[:5]), "The check gets labels")


@pytest.mark.parametrize("attempt", [attempts.about_256_mb, attempts.about_500_mb])
def test_a_right_number_of_shards_passes(attempt: Any) -> None:
    verdict = check("10.2", attempt)
    assert verdict.status == "right", verdict


def test_the_number_of_the_solution_is_right(folder: Path) -> None:
    verdict = check("10.2", answer("10", "choose_shards", with_solutions, folder))
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (attempts.by_size_only, "do not divide evenly among"),
        (attempts.one_each, "a shard has 2,202 MB"),
        (attempts.forgets_the_ranks, "do not divide evenly among"),
        (attempts.zero_workers, "which is no number of shards"),
        (attempts.many, "a shard has"),
        (attempts.not_whole, "which is no number of shards"),
        (attempts.at_least_four_each, "there are more than the readers need"),
    ],
)
def test_a_wrong_number_of_shards_is_explained(attempt: Any, misconception: str) -> None:
    assert_refused(check("10.2", attempt), misconception)


def test_the_data_sets_that_are_shown_differ_in_what_limits_them() -> None:
    found = [
        attempts.about_256_mb(case.samples, case.sample_mb, case.workers, case.ranks)
        for case in SHOWN.values()
    ]
    assert found == [576, 16, 88, 2]


@pytest.mark.slow
def test_the_stream_of_the_solution_is_right_however_workers_start(
    folder: Path, start_method: str
) -> None:
    multiprocessing.set_start_method(start_method, force=True)
    verdict = check("10.3", answer("10", "make_stream", with_solutions, folder, given=STREAM))
    assert verdict.status == "right", verdict


@pytest.mark.slow
def test_webdataset_may_shuffle_the_shards_itself() -> None:
    verdict = check("10.3", attempts.webdataset_shuffles)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (attempts.no_ranks, "every rank serves the same samples"),
        (attempts.asks_torch, "split_by_node would ask torch.distributed"),
        (attempts.divides_twice, "Under torchrun, with 2 ranks and 2 shards"),
        (attempts.forgets_torchrun, "Under torchrun"),
        (attempts.no_workers, "the workers of a rank serve the same samples"),
        (attempts.seed_of_the_rank, "deal from an order of their own"),
        (attempts.draws, "there is no end"),
        (attempts.draws_an_epoch, "served"),
        (attempts.always_the_same, "Every epoch reads the shards in the same order"),
        (attempts.mixes_samples_only, "only neighbours are ever mixed"),
        (attempts.checks_for_empty, "a worker has no shard"),
        (attempts.loses_the_tail, "are served by nobody"),
        (attempts.gives_tuples, "it has no __key__"),
        (attempts.divides_samples, "places read the same shard"),
        (42, "this is something else"),
    ],
)
def test_a_wrong_stream_is_explained(attempt: Any, misconception: str) -> None:
    assert_refused(check("10.3", attempt), misconception)


def test_a_stream_of_the_notebook_is_refused_before_a_worker_dies_of_it() -> None:
    code: dict[str, Any] = {"__name__": "__main__", "once": attempts.once}
    exec("def make_stream(*place):\n    return once(*place)\n", code)
    assert_refused(check("10.3", code["make_stream"]), "lives in the notebook")
