"""The capstone: a training script to rescue, and what it runs in.

Not imported here, because workers need neither: `learning`, which draws what the model learns, and
`report`, a form.
"""

from course_utils.teaching.leaderboard import TARGET_AU, Result
from notebooks.stories.capstone.account import CountedJob, FirstStep
from notebooks.stories.capstone.job import EVENTS, Job, RecordedJob, timed_job
from notebooks.stories.capstone.model import PulseTransformer
from notebooks.stories.capstone.result import best, keep, now, results
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
