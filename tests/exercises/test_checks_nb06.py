"""The checks of notebook 06: stubs are not attempted, solutions right, typical slips named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_utils.hardware.storage import counting_storage
from course_utils.loading.events import open_events
from course_utils.teaching.exercise import check
from notebooks.build import HERE, for_learner, read_source, with_solutions
from notebooks.exercises.nb06 import ex1_format_for_each_case as nb06_cases
from tests.exercises import attempts_nb06 as attempts
from tests.exercises.answers import answer, assert_refused

SOURCE = HERE / "source/06_choose_a_file_format.py"


def _answer(key: str, *names: str) -> list[Any]:
    """Return what the solution of an exercise assigns to `names`."""
    solved = with_solutions(read_source(SOURCE))
    (cell,) = (cell.source for cell in solved.cells if f'cu.check("{key}"' in cell.source)
    found: dict[str, Any] = {}
    exec(cell.partition("cu.check")[0], found)
    return [found[name] for name in names]


def test_formats_left_open_are_not_attempted() -> None:
    assert check("06.1", ..., ..., ..., ...).status == "todo"
    assert check("06.1", "npy", "parquet", ..., "tar").status == "todo"


def test_the_formats_of_the_solution_are_right() -> None:
    formats = _answer("06.1", "training", "histogram", "display", "one_pass")
    assert check("06.1", *formats).status == "right"


@pytest.mark.parametrize(
    "formats",
    [
        ("hdf5", "root", "sqlite", "parquet"),
        ("tar", "parquet", "sqlite", "npy"),
        ("npy", "root", "sqlite", "hdf5"),
    ],
)
def test_several_formats_are_right(formats: tuple[str, ...]) -> None:
    verdict = check("06.1", *formats)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("formats", "misconception"),
    [
        (("npz", "parquet", "sqlite", "tar"), "Each event is an open more"),
        (("parquet", "parquet", "sqlite", "tar"), "for one of its 256 events"),
        (("root", "parquet", "sqlite", "tar"), "For each column a basket"),
        (("sqlite", "parquet", "sqlite", "tar"), "Its pages are small"),
        (("npy", "npy", "sqlite", "tar"), "all four columns are read"),
        (("npy", "hdf5", "sqlite", "tar"), "all four columns are read"),
        (("npy", "sqlite", "sqlite", "tar"), "A table in SQLite lies row by row"),
        (("npy", "parquet", "npy", "tar"), "It has no index"),
        (("npy", "parquet", "parquet", "tar"), "It has no index"),
        (("npy", "parquet", "sqlite", "npz"), "Two round trips for each event"),
        (("npy", "parquet", "sqlite", "sqlite"), "page after page"),
        (("npy", "parquet", "sqlite", "zip"), "'zip' is none of the formats"),
        ((["npy"], "parquet", "sqlite", "tar"), "none of the formats"),
    ],
)
def test_a_format_that_does_not_suit_is_explained(formats: Any, misconception: str) -> None:
    assert_refused(check("06.1", *formats), misconception)


@pytest.mark.parametrize("name", nb06_cases.FORMATS)
def test_every_format_gives_all_charges_for_the_histogram(name: str) -> None:
    folder = nb06_cases._folder()
    dataset = open_events(folder, name, fs=counting_storage(folder))
    pulses = np.load(folder / "npy/pulses.npy")
    np.testing.assert_array_equal(nb06_cases.all_charges(name, dataset), pulses[:, 1])


def test_a_chunk_shape_left_open_is_not_attempted() -> None:
    assert check("06.2", ...).status == "todo"


@pytest.mark.parametrize("chunks", [(2, 20, 16), (3, 12, 16), (4, 16, 16), [4, 12, 16]])
def test_a_chunk_shape_between_the_two_patterns_is_right(chunks: Any) -> None:
    verdict = check("06.2", chunks)
    assert verdict.status == "right", verdict


def test_the_chunk_shape_of_the_solution_is_right() -> None:
    assert check("06.2", *_answer("06.2", "chunks")).status == "right"


@pytest.mark.parametrize(
    ("chunks", "misconception"),
    [
        (True, "lets h5py choose"),
        ((64, 192, 192), "yours is large for both"),
        ((8, 24, 48), "yours is large for both"),
        ((1, 192, 192), "The chunk suits the slab"),
        ((2, 48, 48), "The chunk suits the slab"),
        ((16, 8, 8), "A chunk of 16 planes is read for a slab of 4"),
        ((1, 16, 16), "Small chunks waste no bytes, but each is a request"),
        ((1, 1, 1), "No byte is read in vain"),
        ((1, 192), "no shape of a chunk"),
        ((3, 0, 16), "no shape of a chunk"),
        ((3, 16.0, 16), "no shape of a chunk"),
        (16, "no shape of a chunk"),
        ((64, 192, 256), "larger than the volume"),
    ],
)
def test_a_wrong_chunk_shape_is_explained(chunks: Any, misconception: str) -> None:
    assert_refused(check("06.2", chunks), misconception)


def test_stubs_of_shards_are_not_attempted(folder: Path) -> None:
    stubs = [answer("06", name, for_learner, folder) for name in ("write_shards", "read_event")]
    assert check("06.3", *stubs).status == "todo"


def test_the_solution_writes_and_reads_shards(folder: Path) -> None:
    read = answer("06", "read_event", with_solutions, folder)
    write = answer("06", "write_shards", with_solutions, folder)
    verdict = check("06.3", write, read)
    assert verdict.status == "right", verdict


def test_offsets_may_have_a_file_of_their_own() -> None:
    verdict = check("06.3", attempts.write_with_index, attempts.read_with_index)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("write", "read", "misconception"),
    [
        (attempts.write_a_file_each, attempts.read_event, "Small files are what shards are to"),
        (attempts.write_one_file, attempts.read_event, "one cannot be divided"),
        (attempts.write_nothing, attempts.read_event, "has left no file"),
        (attempts.write_without_the_end, attempts.read_with_index, "n + 1 offsets"),
        (attempts.write_shards, attempts.read_three_times, "takes 3 requests"),
        (attempts.write_shards, attempts.read_whole_shard, "the whole shard come along"),
        (attempts.write_shards, attempts.read_past_the_storage, "without a request to the storage"),
        (attempts.write_shards, attempts.read_flat, "has the shape"),
        (attempts.write_shards, attempts.read_double, "comes as float64"),
        (attempts.write_shards, attempts.read_next, "other numbers"),
        (attempts.write_shards, attempts.read_bytes, "comes as bytes"),
        (attempts.write_shards, attempts.read_refusing_nothing, "which has no pulses, raises"),
        (attempts.write_padded, attempts.read_padded, "Padding and neighbours are no pulses"),
        (attempts.write_pickled, attempts.read_pickled, "unpickling reads bit by bit"),
        (attempts.write_and_keep, attempts.read_kept, "kept in memory"),
        (attempts.write_and_keep, attempts.read_kept_offsets, "A fresh Python"),
        (attempts.write_shards, lambda fs, folder, index: None, "A worker cannot get"),
        (attempts.write_shards, [1], "needs your two functions"),
    ],
)
def test_wrong_shards_are_explained(write: Any, read: Any, misconception: str) -> None:
    assert_refused(check("06.3", write, read), misconception)


def test_a_stub_of_shrinking_is_not_attempted(folder: Path) -> None:
    assert check("06.4", answer("06", "to_uint16", for_learner, folder)).status == "todo"


def test_the_solution_shrinks_without_loss(folder: Path) -> None:
    solution = answer("06", "to_uint16", with_solutions, folder, given="import numpy as np")
    verdict = check("06.4", solution)
    assert verdict.status == "right", verdict


def test_looking_before_converting_is_right_too() -> None:
    assert check("06.4", attempts.to_uint16).status == "right"


@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (attempts.cast, "65,536 goes through: [1, 65536] became [1, 0]"),
        (attempts.clip, "65,536 goes through"),
        (attempts.only_the_top, "-1 goes through"),
        (attempts.only_the_limits, "0.5 goes through"),
        (attempts.not_nan, "NaN goes through"),
        (attempts.limit_too_low, "65,535 is refused"),
        (attempts.asserting, "raises AssertionError"),
        (attempts.max_of_nothing, "An event without pulses is refused"),
        (attempts.by_dtype, "The type tells how they are kept"),
        (attempts.to_int32, "an array of int32, not an array of uint16"),
        (attempts.to_list, "you return list"),
        (attempts.flattened, "For a table other numbers come back"),
        (attempts.rounding, "0.5 goes through"),
        (attempts.in_place, "changed the array"),
        (attempts.refuse_all, "Refused, though they fit"),
        ([1, 2], "no function"),
    ],
)
def test_wrong_shrinking_is_explained(attempt: Any, misconception: str) -> None:
    assert_refused(check("06.4", attempt), misconception)
