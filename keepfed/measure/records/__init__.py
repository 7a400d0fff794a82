"""The three records of what happens in a training loop; only the standard library is needed here.

Everything that observes a loop writes them: a trace, `diagnose` and `watch`. Times are integer
nanoseconds of `time.perf_counter_ns`, one clock for all processes of a machine.
"""

from keepfed.measure.records.fetch import DATASET_STAGES, LONG_NS, MAIN, SOME, UNKNOWN, Fetch
from keepfed.measure.records.iteration import Iteration
from keepfed.measure.records.span import Row, Span
