"""Observe a DataLoader and its workers. The packages that compute and draw need no torch."""

from keepfed.measure.hook.contents import contents_of
from keepfed.measure.hook.device_clock import DeviceClock, device_in_use
from keepfed.measure.hook.fetch_meter import FetchMeter, received_report
from keepfed.measure.hook.loader_hook import (
    Hook,
    Listener,
    attach_report,
    data_loader_in,
    data_loaders_in,
    detach_report,
    end,
    get_listeners,
    has_listeners,
    listen_within,
    pause,
    reads_whole_batches,
    replace_next,
    restore_next,
    without_report,
)
from keepfed.measure.hook.process_figures import (
    ProcessFigures,
    delay_ns,
    has_delay,
    is_lock_contended,
)
from keepfed.measure.hook.stack_listener import StackListener
from keepfed.measure.hook.step_bounds import StepBounds
from keepfed.measure.hook.timed_sampler import TimedSampler, time_sampler
from keepfed.measure.hook.traced_loader import batch_size, traced_batches
