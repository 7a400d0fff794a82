"""The records of a training loop, which traces, `diagnose` and `watch` write."""

from keepfed.measure.records.records import (
    DATASET_STAGES,
    LONG_NS,
    MAIN,
    SOME,
    UNKNOWN,
    Contents,
    Fetch,
    Iteration,
    Row,
    Span,
    warm_up_batches,
)
