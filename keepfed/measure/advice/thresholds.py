"""The numbers that decide what is said and advised, each with its unit and its origin.

"chosen": by hand, at the start. "39 loops": so that `python -m benchmarks.diagnose` finds causes
and gains, on two cores. "measured": on the two cores of the benchmarks.
"""

from __future__ import annotations

# What a loop suffers from
ACCEPTABLE_LOSS = (
    0.2  # share of an iteration: all losses together that nobody needs to act on; chosen
)
SLACK = 0.75  # share of the step's time: workers that load faster have time to spare; 39 loops
FEW_FETCHES = 0.5  # share of the fetches: so many at most are slow if a loader is uneven; 39 loops
MOST_OF_LOADING = 0.5  # share of fetching and sending: so much the slow ones lose; 39 loops
OVERSUBSCRIBED = (
    2.0  # times faster with one thread: a busy neighbour alone makes up to 1.3; measured
)
MIN_GROWTH = 50e6  # bytes of all workers together: below, memory is not looked at; chosen
STILL_GROWING = 0.25  # share of the growth that came in the second half of the time; chosen
TOO_MUCH_MEMORY = 0.5  # share of the free memory; chosen
COPIED_PER_S = 3e8  # bytes: collating that is slower is more than copying; measured
SLOW_FETCH = 8  # times the median: what a slow fetch takes; chosen
READY_NS = 2_000_000  # ns: a batch that comes within this time was there already; chosen

# When there is enough to judge by
ENOUGH_ITERATIONS, ENOUGH_S = 24, 1.5  # of a run, if both halves agree; 39 loops
AGREEMENT = 0.1  # share by which the halves may differ; 39 loops
MIN_ITERATIONS, GRACE_S = 3, 5.0  # of a slow run, and how long it may take longer; chosen
ENOUGH_EPOCHS = 3  # whole ones, if epochs are short; chosen
WATCHED_ITERATIONS, WATCHED_NS = 4, 5e8  # steady ones of a watched loop, and their time; chosen
MANY_ITERATIONS = 1_000  # are enough, however short they are; chosen

# What a change has to gain
WORTHWHILE_GAIN = 1.15  # times as fast: a change that is worth its name; chosen
CODE_CHANGE_FACTOR = (
    4.0  # times the gain of an easy change is what a change of code must promise; chosen
)
NEARLY_BEST = 1.1  # times the shortest iteration: the simpler change is taken; issue of the course
NO_GAIN = 1.05  # times as fast: less is "none to speak of"; chosen
DOUBTFUL = 1.1, 1.5  # times as fast: one run does not tell whether a change is worth it; 39 loops
NOTICED = 0.1  # share of an epoch from which a start-up is worth a word; chosen

# What to advise
SMALL_SAMPLE_S = 200e-6  # s: most of such a sample is Python that is run once a sample; measured
LISTED_SAMPLE_S = 4e-6  # s: to list the samples of a batch takes as long; measured
QUICK_BATCH_S = 5e-3  # s: for quicker batches workers may cost more than they gain; 39 loops
SEVERAL_CORES = 1.3  # cores: a step that takes more computes in several threads; measured
ENOUGH_TO_SHARE = 4  # batches for each worker, before one without any is called idle; chosen
POOL_CPU_SHARE = (
    0.2  # of the fetching thread's CPU time: if other threads take less, no pool computes; chosen
)
MAX_WORKERS = 16  # for a storage that makes them wait; chosen

# What moving a batch costs: one core of the benchmarks, November 2026; measured
MOVING_MS, SENDING_MS_PER_MB, RECEIVING_MS_PER_MB = 0.25, 0.9, 0.2
WRITING_MS_PER_MB = 0.2  # ms: whatever makes a batch has to write it
STARTING_S = {"fork": 0.1, "forkserver": 0.9, "spawn": 1.2}  # s: a worker starts and ends

# What shows that
LOCKED_SHARE = 0.5  # share of the looks at a worker that found it held by a lock; chosen
MOVING_SHARE = 0.5  # of making a batch: loading without workers is worth a trial; chosen
MANY_OBJECTS = 10  # Python objects of a sample that are pickled one by one; chosen
OBJECTS_COST = 0.25  # share of sending a batch that is pickling its objects; 39 loops
READ_AMPLIFICATION = 4.0  # times the bytes of a batch that a fetch reads; chosen
READS_PER_SAMPLE = 12  # calls of read() of a sample: its file was opened for it; measured
SAMPLING_SHARE = 0.5  # share of what the main process loses: the sampler is named; chosen
FILLING_SHARE = 0.5  # share of a start-up that the first fetch takes; chosen
BUSY_CORES = 0.5  # cores that other programs keep busy: from here on the machine is busy; chosen
