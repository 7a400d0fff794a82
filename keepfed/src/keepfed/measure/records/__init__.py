"""The records of a training loop: spans, fetches with their contents, and iterations.

Traces, `diagnose` and `watch` all write these records. Times are integer nanoseconds of
`time.perf_counter_ns`, which is one clock for all processes of a machine. The package needs only
the standard library.
"""

from keepfed.measure.records.fetch import (
    DATASET_STAGES,
    LONG_NS,
    MAIN,
    SOME,
    UNKNOWN,
    Contents,
    Fetch,
    Sink,
)
from keepfed.measure.records.iteration import Iteration, warm_up_batches
from keepfed.measure.records.span import Row, Span
