"""The capstone: a training script to rescue, what it runs in, and what it teaches the model."""

from course_utils.teaching.leaderboard import TARGET_AU, Result
from notebooks.stories.capstone.account import CountedJob
from notebooks.stories.capstone.job import EVENTS, Job, RecordedJob, timed_job
from notebooks.stories.capstone.model import PulseTransformer
from notebooks.stories.capstone.report import write_report
from notebooks.stories.capstone.results import best, keep, now, results
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
