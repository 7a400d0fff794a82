"""The capstone: a slow training script to rescue, and the job that runs it.

The package does not import `learning` (figures) and `jagged` (notebook 01), because workers do not
need them.
"""

from course_utils.stories.capstone.job import Job, TimedJob, timed_job
from course_utils.stories.capstone.model import PulseTransformer
from course_utils.stories.capstone.result import (
    TARGET_AU,
    Result,
    add_result,
    best,
    now,
    post,
    results,
)
from course_utils.stories.capstone.script import (
    Fault,
    all_faults,
    decoy_of,
    faults_of,
    hand_out,
    handed_out,
    load,
    script_with,
    seed_of,
)
