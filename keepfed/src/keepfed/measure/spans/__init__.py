"""The recording of a loop: spans, the ledger of its samples, and their summary."""

from keepfed.measure.records import Span
from keepfed.measure.spans.lanes import Lane, busy_share, busy_shares, idle_gaps, lanes, reach
from keepfed.measure.spans.span_log import (
    AT_MOST,
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
    MARK,
    Summary,
    compute_spans,
    compute_unit,
    hidden_share,
    near,
    outside,
    stall_label,
    summarize,
    union,
)
