"""Watch any training script, unchanged: what each loader of each rank cost it."""

from course_utils.measure.watch.loop import watch
from course_utils.measure.watch.program import report_later, run_watched
