"""The numbers that decide which verdict and which advice a loop gets.

Each comment names the unit and the origin of its number. "Chosen" means picked by hand at the
start. "39 loops" means tuned until `python -m benchmarks.diagnose` found the known causes and gains
on two cores. "Measured" means measured on the two cores of the benchmarks.
"""

from __future__ import annotations

# Verdict
ACCEPTABLE_LOSS = 0.2  # share of an iteration, all losses together, that needs no action (chosen)
SLACK = 0.75  # loading time per step time below which workers have time to spare (39 loops)
FEW_FETCHES = 0.5  # maximum share of slow fetches in a loader called uneven (39 loops)
MOST_OF_LOADING = 0.5  # minimum share of fetching and sending lost to slow fetches (39 loops)
OVERSUBSCRIBED = 2.0  # speed-up with one thread, up to 1.3 by a busy neighbor alone (measured)
POOL_SHARE = 0.5  # CPU time of other threads per time of a fetch; the queue uses less (chosen)
COMPETING = 1.5  # the same, if there are more threads than cores (chosen)
MIN_GROWTH = 50e6  # bytes of all workers together below which growth is ignored (chosen)
STILL_GROWING = 0.25  # share of the growth in the second half of the time (chosen)
TOO_MUCH_MEMORY = 0.5  # share of the free memory (chosen)
COPIED_PER_S = 3e8  # bytes per second below which collating does more than copy (measured)
SLOW_FETCH = 8  # multiple of the median time that makes a fetch slow (chosen)
READY_NS = 2_000_000  # ns of waiting up to which a batch counts as ready (chosen)

# When a run is long enough
ENOUGH_ITERATIONS, ENOUGH_S = 24, 1.5  # iterations and seconds, if both halves agree (39 loops)
AGREEMENT = 0.1  # maximum relative difference between the halves (39 loops)
MIN_ITERATIONS, GRACE_S = 3, 5.0  # iterations of a slow run, and the extra seconds it gets (chosen)
ENOUGH_EPOCHS = 3  # complete epochs, if they are short (chosen)
WATCHED_ITERATIONS, WATCHED_NS = 4, 5e8  # steady iterations of a watched loop, and ns (chosen)
MANY_ITERATIONS = 1_000  # iterations that are enough, even if they are very short (chosen)

# Minimum gains
WORTHWHILE_GAIN = 1.15  # minimum speed-up for a change to be recommended (chosen)
CODE_CHANGE_FACTOR = 4.0  # a code change must promise this multiple of an easy change (chosen)
NEARLY_BEST = 1.1  # a simpler change may be this much slower than the best (chosen)
NO_GAIN = 1.05  # speed-up below which the report calls the gain negligible (chosen)
NOTICED = 0.1  # share of an epoch above which the start-up is mentioned (chosen)

# Advice
SMALL_SAMPLE_S = 200e-6  # s per sample below which Python calls take most of the time (measured)
LISTED_SAMPLE_S = 4e-6  # s per sample for putting the samples of a batch into a list (measured)
QUICK_BATCH_S = 5e-3  # s per batch below which workers may cost more than they gain (39 loops)
SEVERAL_CORES = 1.3  # cores above which a step computes in several threads (measured)
ENOUGH_TO_SHARE = 4  # batches per worker before a worker without any is called idle (chosen)
POOL_CPU_SHARE = 0.2  # CPU time of other threads per CPU time of the fetching thread (chosen)
MAX_WORKERS = 16  # maximum number of workers that wait for storage (chosen)

# Cost of moving a batch on one core of the benchmarks, November 2026 (measured)
MOVING_MS, SENDING_MS_PER_MB, RECEIVING_MS_PER_MB = 0.25, 0.9, 0.2
WRITING_MS_PER_MB = 0.2  # ms per MB to write a batch to memory, with or without workers
STARTING_S = {"fork": 0.1, "forkserver": 0.9, "spawn": 1.2}  # s to start and end one worker

# Evidence
LOCKED_SHARE = 0.5  # share of the checks that found a worker waiting for a lock (chosen)
MOVING_SHARE = 0.5  # moving time per fetch time above which a trial without workers pays (chosen)
MANY_OBJECTS = 10  # Python objects per sample that are pickled one by one (chosen)
READ_BYTES = 64e3  # bytes per batch that a worker reads even without any file (measured)
READ_AMPLIFICATION = 4.0  # bytes that a fetch reads per byte of its batch (chosen)
READS_PER_SAMPLE = 12  # read() calls per sample above which it opens a file (measured)
FILLING_SHARE = 0.5  # share of the start-up that the first fetch takes (chosen)
BUSY_CORES = 0.5  # cores used by other programs above which the machine is called busy (chosen)
