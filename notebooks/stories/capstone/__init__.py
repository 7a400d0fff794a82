"""The capstone: a training script to rescue, and what it runs in.

What its model learns is in `learning`, which workers need not import: it draws.
"""

from course_utils.teaching.leaderboard import TARGET_AU, Result
from notebooks.stories.capstone.account import CountedJob
from notebooks.stories.capstone.job import EVENTS, Job, RecordedJob, timed_job
from notebooks.stories.capstone.model import PulseTransformer
<<<<<<< HEAD
from notebooks.stories.capstone.report import write_report
from notebooks.stories.capstone.results import best, keep, now, results
=======
from notebooks.stories.capstone.result import TARGET_AU, Result, best, keep, now, results
>>>>>>> 7fa6e89 (The capstone's judge has tests; course capstone hands out other sets of faults)
from notebooks.stories.capstone.script import (
    Fault,
    all_faults,
    faults_of,
    hand_out,
    handed_out,
    load,
    script_with,
    seed_of,
)
