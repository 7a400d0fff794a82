"""What a notebook does with its learner: start, ask, show, explain, clear away."""

from course_utils.teaching.notebook.cards import (
    Bar,
    Tone,
    bars,
    block,
    card,
)
from course_utils.teaching.notebook.data import (
    DATA_SETS,
    data_path,
    make_data,
)
from course_utils.teaching.notebook.demo import (
    Demo,
    run_demo,
)
from course_utils.teaching.notebook.explain import (
    advice,
    explain,
    learner_line,
)
from course_utils.teaching.notebook.leftovers import (
    cleanup_workers,
)
from course_utils.teaching.notebook.onlookers import (
    cpu_use,
    disk_use,
    hot_lines,
    worker_pids,
)
from course_utils.teaching.notebook.predict import (
    predict,
    reveal,
)
from course_utils.teaching.notebook.scratch import (
    FOLDER,
    replace_text,
    state_folder,
)
from course_utils.teaching.notebook.start import (
    ready,
    start_workers,
)

__all__ = [
    "DATA_SETS",
    "FOLDER",
    "Bar",
    "Demo",
    "Tone",
    "advice",
    "bars",
    "block",
    "card",
    "cleanup_workers",
    "cpu_use",
    "data_path",
    "disk_use",
    "explain",
    "hot_lines",
    "learner_line",
    "make_data",
    "predict",
    "ready",
    "replace_text",
    "reveal",
    "run_demo",
    "start_workers",
    "state_folder",
    "worker_pids",
]
