"""Interaction of a notebook with the learner: start, predictions, cards, errors and cleanup."""

from course_utils.teaching.notebook.cards import Tone, block, card, inline
from course_utils.teaching.notebook.cleanup import cleanup_workers
from course_utils.teaching.notebook.demo import Demo, loaded_context, run_demo
from course_utils.teaching.notebook.failed_cells import failed_name
from course_utils.teaching.notebook.learners_code import (
    advice,
    explain,
    find_stub,
    learner_line,
    statements,
)
from course_utils.teaching.notebook.prediction import Form, predict, reveal
from course_utils.teaching.notebook.start import (
    DATA_SETS,
    data_path,
    make_data,
    missing_data,
    ready,
    start_workers,
)
from course_utils.teaching.notebook.torchrun import torchrun
