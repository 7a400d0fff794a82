"""The checks of notebook 06: other right answers pass, typical slips are named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_utils.hardware.storage import counting_storage
from course_utils.loading.events import open_events
from course_utils.teaching.exercise import check
from notebooks.exercises.nb06 import ex1_choose_formats as formats_judge
from tests.exercises.solutions import Change, assert_refused, attempt, judge


@pytest.mark.parametrize("formats", [(..., ..., ..., ...), ("npy", "parquet", ..., "tar")])
def test_formats_left_open_are_not_attempted(formats: Any) -> None:
    assert check("06.1", *formats).status == "todo"


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


@pytest.mark.parametrize("name", formats_judge.FORMATS)
def test_every_format_gives_all_charges_for_the_histogram(name: str) -> None:
    folder = formats_judge._folder()
    dataset = open_events(folder, name, fs=counting_storage(folder))
    pulses = np.load(folder / "npy/pulses.npy")
    np.testing.assert_array_equal(formats_judge.all_charges(name, dataset), pulses[:, 1])


@pytest.mark.parametrize("chunks", [(2, 20, 16), (3, 12, 16), [4, 12, 16]])
def test_a_chunk_shape_between_the_two_patterns_is_right(chunks: Any) -> None:
    verdict = check("06.2", chunks)
    assert verdict.status == "right", verdict


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


OFFSETS = ("8 * (len(some) + 1) + np.cumsum", "np.cumsum")
FIND = "start, stop = np.frombuffer(file.read(16), np.int64).tolist()"
WRITE = """\
            file.write(offsets.tobytes())
            file.writelines(event.tobytes() for event in some)
"""
WITH_INDEX = [  # the offsets have a file of their own
    OFFSETS,
    ("file.write(offsets.tobytes())", "offsets.tofile(f'{file.name}.offsets')"),
    (
        FIND,
        "with fs.open(f'{folder}/{shard:05d}.bin.offsets') as index:\n"
        "            all_offsets = np.frombuffer(index.read(), np.int64)\n"
        "        start, stop = all_offsets[place : place + 2].tolist()",
    ),
]
KEPT = [
    ("PER_SHARD = 100", "PER_SHARD = 100\nkept = {}"),
    ("    for first in", "    kept[folder] = list(events)\n    for first in"),
]
PADDED = """\
        longest = max(map(len, events))
        some = [np.pad(event, ((0, longest - len(event)), (0, 0))) for event in some]
        sizes = """


def test_offsets_may_have_a_file_of_their_own(folder: Path) -> None:
    verdict = judge("06.3", folder, *WITH_INDEX)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("misconception", "changes"),
    [
        ("Small files are what shards are to", [("PER_SHARD = 100", "PER_SHARD = 1")]),
        ("one cannot be divided", [("PER_SHARD = 100", "PER_SHARD = 10**6")]),
        ("has left no file", [("range(0, len(events), PER_SHARD)", "[]")]),
        ("n + 1 offsets", [*WITH_INDEX, ("[0, *sizes]", "[0, *sizes[:-1]]")]),
        (
            "takes 3 requests",
            [(FIND, "start, stop = np.frombuffer(file.read(8) + file.read(8), np.int64).tolist()")],
        ),
        (
            "the whole shard come along",
            [
                (
                    "file.seek(8 * place)",
                    "file = io.BytesIO(file.read())\n        file.seek(8 * place)",
                ),
                ("import numpy", "import io\nimport numpy"),
            ],
        ),
        (
            "without a request to the storage",
            [("fs.open(", "open(file="), ('.bin") as', '.bin", mode="rb") as')],
        ),
        ("has the shape", [(".reshape(-1, 4)", "")]),
        ("comes as float64", [(".reshape(-1, 4)", ".reshape(-1, 4).astype(np.float64)")]),
        ("other numbers", [("file.seek(start)", "file.seek(start - 8)")]),
        (
            "comes as bytes",
            [
                (
                    "np.frombuffer(file.read(stop - start), np.float32).reshape(-1, 4)",
                    "file.read(stop - start)",
                )
            ],
        ),
        (
            "which has no pulses, raises",
            [
                (
                    "file.seek(start)",
                    "if start == stop:\n            raise EOFError\n        file.seek(start)",
                )
            ],
        ),
        ("Padding and neighbours are no pulses", [("        sizes = ", PADDED)]),
        (
            "unpickling reads bit by bit",
            [
                (WRITE, "            pickle.dump([np.array(event) for event in some], file)\n"),
                ("file.seek(8 * place)", "return pickle.load(file)[place]"),
                ("import numpy", "import pickle\nimport numpy"),
            ],
        ),
        (
            "kept in memory",
            [*KEPT, ("    shard, place =", "    return kept[folder][index]\n    shard, place =")],
        ),
        ("A fresh Python", [*KEPT, ("stop - start", "kept[folder][index].nbytes")]),
    ],
)
def test_wrong_shards_are_explained(
    misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge("06.3", folder, *changes), misconception)


@pytest.mark.parametrize(
    ("read", "misconception"),
    [(lambda fs, folder, index: None, "A worker cannot get"), ([1], "needs your two functions")],
)
def test_what_no_worker_can_call_is_refused(read: Any, misconception: str, folder: Path) -> None:
    write, _ = attempt("06.3", folder)
    assert_refused(check("06.3", write, read), misconception)


DIFFERS = "not np.array_equal(small, values)"
IN_RANGE = "values.min() >= 0 and values.max() <= 65_535"
OUTSIDE = "values.size and (values.min() < 0 or values.max() > 65_535)"


def test_looking_before_converting_is_right_too(folder: Path) -> None:
    no_whole_number = "(values.dtype.kind == 'f' and (values != np.floor(values)).any())"
    looking = f"(values.size and not ({IN_RANGE})) or {no_whole_number}"
    verdict = judge("06.4", folder, (DIFFERS, looking))
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("misconception", "changes"),
    [
        ("65,536 goes through: [1, 65536] became [1, 0]", [(DIFFERS, "False")]),
        (
            "65,536 goes through",
            [(DIFFERS, "False"), ("values.astype", "np.clip(values, 0, 65_535).astype")],
        ),
        ("-1 goes through", [(DIFFERS, "values.size and values.max() > 65_535")]),
        ("0.5 goes through", [(DIFFERS, OUTSIDE)]),
        ("NaN goes through", [(DIFFERS, f"{OUTSIDE} or (values % 1 > 0).any()")]),
        ("65,535 is refused", [(DIFFERS, f"{DIFFERS} or 65_535 in values")]),
        ("raises AssertionError", [(f"if {DIFFERS}:", f"assert not ({DIFFERS})\n    if False:")]),
        ("An event without pulses is refused", [(DIFFERS, f"not ({IN_RANGE}) or {DIFFERS}")]),
        (
            "The type tells how they are kept",
            [(DIFFERS, f"values.dtype.kind not in 'iu' or {DIFFERS}")],
        ),
        (
            "an array of int32, not an array of uint16",
            [("return small", "return small.astype(np.int32)")],
        ),
        ("you return list", [("return small", "return small.tolist()")]),
        ("For a table other numbers come back", [("return small", "return small.ravel()")]),
        ("0.5 goes through", [("    with", "    values = np.round(values)\n    with")]),
        ("changed the array", [("return small", "values *= 0\n    return small")]),
        ("Refused, though they fit", [(DIFFERS, "True")]),
    ],
)
def test_wrong_shrinking_is_explained(
    misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge("06.4", folder, *changes), misconception)


def test_what_is_no_function_is_refused() -> None:
    assert_refused(check("06.4", [1, 2]), "no function")
