"""Follow a DataLoader, with what its workers do: what draws or computes needs no torch."""

from course_utils.measure.hook.contents import Contents, contents_of
from course_utils.measure.hook.delay import delay_ns, tells_delay
from course_utils.measure.hook.fetch_meter import AboutProcess, FetchMeter, Sink
from course_utils.measure.hook.loader_hook import (
    Listener,
    contents,
    data_loader_in,
    end,
    is_heard,
    listen,
    listen_within,
    listeners_of,
    packed,
    pause,
    reads_whole_batches,
    unpacked,
)
from course_utils.measure.hook.looks import TimedSampler, one_holds_up_the_others, time_sampler
from course_utils.measure.hook.process_figures import ProcessFigures, bytes_read, own_bytes
from course_utils.measure.hook.traced_loader import batch_size, traced_batches
