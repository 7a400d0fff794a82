"""What is recorded of a loop: spans and the ledger of its samples, and what they say."""

from keepfed.measure.records import Span
from keepfed.measure.spans.lanes import Lane, busy_share, busy_shares, idle_gaps, lanes, reach
from keepfed.measure.spans.span_log import (
    OTHERS,
    STAGES,
    Clock,
    SampleIds,
    SpanLog,
    activate,
    current,
    stage,
)
from keepfed.measure.spans.summary import (
    LOADING,
    Interval,
    Summary,
    compute_spans,
    compute_unit,
    hidden_share,
    stall_label,
    summarise,
    union,
)
