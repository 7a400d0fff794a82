"""Watch any training script, unchanged: what each loader of each rank cost it."""

from keepfed.measure.watch.loop import watch
from keepfed.measure.watch.program import report_later, run_watched
