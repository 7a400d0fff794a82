"""How an exercise is judged: what is unwritten, what is wrong and why."""

from course_utils.teaching.exercise.trial import (
    as_rank,
    expect_a_class,
    expect_in_a_file,
    in_worker,
    quiet_threads,
)
from course_utils.teaching.exercise.verdict import (
    Verdict,
    check,
    exercise,
    expect,
    right,
    todo,
    wrong,
)
