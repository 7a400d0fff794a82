"""What the judges of several exercises share: rules by cases, numbers, labels, and loaders."""

from notebooks.exercises.judging.labels import expect_known, judge_labels
from notebooks.exercises.judging.loading import loader
from notebooks.exercises.judging.rules import Number, Slip, judge_numbers, judge_rule, read_number

__all__ = [
    "Number",
    "Slip",
    "expect_known",
    "judge_labels",
    "judge_numbers",
    "judge_rule",
    "loader",
    "read_number",
]
