"""What judges share: rules, numbers, labels, loaders, streams that are divided, ranks."""

from course_utils.exercises.judging.labels import (
    expect_known,
    judge_labels,
    read_labels,
    words_beside,
)
from course_utils.exercises.judging.loading import loader
from course_utils.exercises.judging.ranks import Failure, run_ranks
from course_utils.exercises.judging.rules import (
    Kind,
    Number,
    Slips,
    draw,
    judge_numbers,
    judge_rule,
    number,
    read_number,
    read_whole,
)
from course_utils.exercises.judging.served import Served, expect_the_same_in_real_workers, serve
