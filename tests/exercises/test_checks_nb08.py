"""The checks of notebook 08: stubs are not attempted, solutions right, typical slips named."""

from pathlib import Path
from typing import Any

import pytest

from course_utils.teaching.exercise import check
from notebooks.build import for_learner, with_solutions
from notebooks.exercises.nb08.ex3_where_to_augment import decide
from notebooks.exercises.nb08.problem import JOBS
from tests.exercises import attempts_nb08 as attempts
from tests.exercises.answers import answer, assert_refused

ANSWERS = {
    "08.1": ("in_worker", "on_device"),
    "08.2": ("random_crops",),
    "08.3": ("where_to_augment",),
}
GIVEN = {
    "08.1": "import torch\nfrom notebooks.exercises.nb08.ex1_split import MEAN, STD",
    "08.2": "import torch",
    "08.3": "from notebooks.exercises.nb08.problem import Job",
}


def _answers(key: str, version: Any, folder: Path) -> list[Any]:
    return [answer("08", name, version, folder, given=GIVEN[key]) for name in ANSWERS[key]]


@pytest.mark.parametrize("key", ANSWERS)
def test_a_stub_is_not_attempted(key: str, folder: Path) -> None:
    assert check(key, *_answers(key, for_learner, folder)).status == "todo"


@pytest.mark.parametrize("key", ANSWERS)
def test_the_solution_is_right(key: str, folder: Path) -> None:
    verdict = check(key, *_answers(key, with_solutions, folder))
    assert verdict.status == "right", verdict


@pytest.mark.parametrize("in_worker", [attempts.cut, attempts.cut_and_copy])
@pytest.mark.parametrize(
    "on_device", [attempts.finish, attempts.finish_by_index, attempts.finish_by_mask]
)
def test_other_right_ways_to_split_pass(in_worker: Any, on_device: Any) -> None:
    verdict = check("08.1", in_worker, on_device)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("in_worker", "misconception"),
    [
        (attempts.cut_to_float, "in_worker returns torch.float32: 602,112 bytes"),
        (attempts.cut_and_normalise, "in_worker returns torch.float32: 602,112 bytes"),
        (attempts.whole_frame, "The whole frame crosses the bus: 196,608 bytes"),
        (attempts.float_and_back, "writes 1,956,864 on the way"),
        (attempts.columns_first, "not the window with its corner at"),
        (attempts.corner_of_all, "not the window with its corner at"),
        (attempts.smaller, "not uint8 of (3, 224, 224)"),
        (attempts.in_place, "changes the image that it was given"),
        (attempts.to_numpy, "in_worker returns ndarray"),
    ],
)
def test_what_is_wrong_in_the_worker_is_explained(in_worker: Any, misconception: str) -> None:
    assert_refused(check("08.1", in_worker, attempts.finish), misconception)


@pytest.mark.parametrize(
    ("on_device", "misconception"),
    [
        (attempts.finish_in_a_loop, "it works on one image after the other"),
        (attempts.in_host_memory, "on a GPU it would end with an error"),
        (attempts.no_flip, "No image is flipped"),
        (attempts.flip_all, "Every image is flipped"),
        (attempts.flip_others, "The values differ by up to"),
        (attempts.upside_down, "upside down"),
        (attempts.not_scaled, "never scaled"),
        (attempts.not_normalised, "scaled but not normalised"),
        (attempts.not_divided, "nothing is divided by the standard deviation"),
        (attempts.half, "on_device returns torch.float16"),
        (attempts.first_only, "on_device returns a tensor of (3, 224, 224)"),
    ],
)
def test_what_is_wrong_on_the_device_is_explained(on_device: Any, misconception: str) -> None:
    assert_refused(check("08.1", attempts.cut, on_device), misconception)


@pytest.mark.parametrize("random_crops", [attempts.by_index, attempts.by_unfold])
def test_other_right_crops_pass(random_crops: Any) -> None:
    verdict = check("08.2", random_crops)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("random_crops", "misconception"),
    [
        (attempts.in_a_loop, "there is a loop over the samples"),
        (attempts.one_for_all, "All 64 samples are cut at the same place"),
        (attempts.one_row_for_all, "The offset of the rows is the same for all 64"),
        (attempts.on_the_diagonal, "all windows lie on the diagonal"),
        (attempts.one_too_far, "reaches outside of an image of height 40 and width 40"),
        (attempts.one_too_few, "of top, [3] never came up"),
        (attempts.wrong_axis, "reaches outside of an image of height 30 and width 60"),
        (attempts.transposed, "Rows and columns are swapped"),
        (attempts.scattered, "no window: its pixels are not neighbours"),
        (attempts.shuffled, "Pixels of one sample end up in another"),
        (attempts.to_float, "The crops are torch.float32"),
        (attempts.without_the_generator, "does not come from the generator"),
        (attempts.seeded_in_it, "the augmentation is frozen"),
        (attempts.overwrites, "The images themselves have changed"),
        (attempts.a_list, "You return list, not a tensor"),
    ],
)
def test_wrong_crops_are_explained(random_crops: Any, misconception: str) -> None:
    assert_refused(check("08.2", random_crops), misconception)


def test_the_three_jobs_have_three_reasons() -> None:
    assert [decide(job) for job in JOBS.values()] == [("GPU", 33), ("CPU", 200), ("CPU", 60)]


@pytest.mark.parametrize(
    ("where", "misconception"),
    [
        (attempts.always_gpu, "You always augment on the GPU"),
        (attempts.always_cpu, "You always augment in the workers"),
        (attempts.forgets_memory, "You do not look at the memory"),
        (attempts.free_on_the_gpu, "the augmentation is free in your model"),
        (attempts.at_the_same_time, "augment and compute at the same time"),
        (attempts.no_decoding, "you forget that the workers still read and decode"),
        (attempts.adds_all, "You add loading and computing"),
        (attempts.one_core, "You let one core do it all"),
        (attempts.augments_only, "you count the augmentation only"),
        (attempts.the_other_time, "the time is that of the other one"),
        (attempts.halves, "In the workers a step takes 60 ms, on the device 33 ms"),
        (attempts.only_the_time, "not a place and a time"),
        (attempts.another_name, "the place is 'cuda'"),
        (attempts.time_as_text, "which is no number of ms"),
    ],
)
def test_a_wrong_choice_is_explained(where: Any, misconception: str) -> None:
    assert_refused(check("08.3", where), misconception)
