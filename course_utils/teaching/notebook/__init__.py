"""What a notebook does with its learner: start, ask, show, explain, clear away."""

from course_utils.teaching.notebook.cards import Bar, Tone, bars, block, card, inline
from course_utils.teaching.notebook.demo import Demo, loaded_context, run_demo
from course_utils.teaching.notebook.learners_code import (
    advice,
    explain,
    find_stub,
    learner_line,
    statements,
)
from course_utils.teaching.notebook.leftovers import cleanup_workers
from course_utils.teaching.notebook.prediction import Form, predict, reveal
from course_utils.teaching.notebook.start import (
    DATA_SETS,
    data_path,
    make_data,
    ready,
    start_workers,
)
from course_utils.teaching.notebook.torchrun import torchrun
