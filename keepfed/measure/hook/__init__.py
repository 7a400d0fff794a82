"""Follow a DataLoader, with what its workers do: what draws or computes needs no torch."""

from keepfed.measure.hook.contents import Contents, contents_of
from keepfed.measure.hook.delay import delay_ns, tells_delay
from keepfed.measure.hook.fetch_meter import AboutProcess, FetchMeter, Sink
from keepfed.measure.hook.loader_hook import (
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
from keepfed.measure.hook.looks import TimedSampler, one_holds_up_the_others, time_sampler
from keepfed.measure.hook.process_figures import ProcessFigures, bytes_read, own_bytes
from keepfed.measure.hook.traced_loader import batch_size, traced_batches
