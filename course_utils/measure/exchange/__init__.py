"""Traces from and for other tools: Chrome and Perfetto, torch.profiler, DFTracer, recordings."""

from course_utils.measure.exchange.chrome import (
    chrome_ranks,
    listing,
    load_chrome,
    recordings,
    save_chrome,
    trace_of,
)
from course_utils.measure.exchange.dftracer import load_dftracer
from course_utils.measure.exchange.torch_profiler import load_profile
