"""Find out why a loop waits: three runs, their figures, one verdict, one change."""

from course_utils.measure.diagnosis.changes import applied
from course_utils.measure.diagnosis.differential import diagnose
from course_utils.measure.diagnosis.report import Diagnosis
