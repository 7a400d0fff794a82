"""Find out why a loop waits: three runs, their figures, one verdict, one change."""

from course_utils.measure.diagnosis.changes import Change, applied
from course_utils.measure.diagnosis.differential import diagnose
from course_utils.measure.diagnosis.estimates import (
    READY_NS,
    Fetching,
    Measurements,
    Moving,
    Paces,
    Setting,
    Step,
    fetching_of,
    mean_s,
    sent_s,
    start_up_s,
)
from course_utils.measure.diagnosis.remedy import WORTH, Remedy, remedy
from course_utils.measure.diagnosis.report import Diagnosis
from course_utils.measure.diagnosis.verdict import LEAVE_IT, Cause, delayed_by_others, judge
