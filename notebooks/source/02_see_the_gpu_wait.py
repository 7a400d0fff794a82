# %% [markdown]
# # 02 · See the GPU wait
#
# {here: read, decode, collate, transfer, compute}
#
# **You will do:** make a GPU wait for data, see it, and predict from four numbers how long it waits.
#
# **You will learn:**
#
# - why training becomes many times slower if the data don't fit in the page cache; <!-- 2.1 02a 02b -->
# - what `nvidia-smi` measures; <!-- 02c -->
# - a model that predicts how long a GPU waits; <!-- 02d 02e 2.2 -->
# - which changes reveal a slow loader. <!-- 02f -->
#
# **You need:** notebook 01. A CPU is enough.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("02")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *9 min* **The hundred-day epoch.** Tell Ada's story with the progress bar on the wall. Let the room find the numbers
#   that don't fit, and then do exercise 2.1.
# - *8 min* **The cliff, and see it.** Predictions 02a and 02b. If a laptop is slow, show the same with `course demo
#   cliff`.
# - *6 min* **What nvidia-smi measures.** Ask for 02c with a show of hands.
# - *20 min* **A model with four letters.** Write both formulas on the board first. Then come prediction 02d and
#   exercise 2.2.
# - *3 min* **What prefetching cannot do.** Prediction 02e. Ask who has set `prefetch_factor` in their own code, and
#   why.
# - *5 min* **Changes that reveal a slow loader.** Prediction 02f, in silence. The switches of the picture work without
#   a kernel.
#
# **Leave out.** Exercise 2.1. Calculate its three numbers together, from the progress bar.
#
# **Board.** Draw two rows, *load* and *compute*. Draw three batches end to end, and write T = L + C below. Draw them
# again with the load of batch 2 under the compute of batch 1, and write T = max(C, L). Keep this drawing for the hour.
#
# **Goes wrong.**
#
# - If other programs use the machine, the measured speeds come out slightly low. Talk about ratios.
# - Somebody interrupts a cell that has workers. `cu.cleanup_workers()` stops these workers.

# %% [markdown]
# ## The hundred-day epoch
#
# Ada trains on 100,000 events. Ten epochs take one day, and the result is close to the state of the art. There's a
# larger file with "ten times the data, a million events", so she expects ten days, which is fine because the conference
# is in three months. She starts the job, gets a coffee, and comes back to this: <!-- given -->
#
# ```
# Epoch 1/10:   0%|   | 9/78125 [16:53<100.72 days, 111.39 s/it]     batch_size=128
# ```
#
# Before you feel sorry for her: do these numbers agree?

# %% [markdown]
# ### Exercise 2.1 · 5 min · ●○○
#
# Find three numbers, each to within two percent. How many events does an epoch have? How many days will ten epochs
# take? And how many times as long does *one event* take, compared with the small run?
#
# <details><summary>Hint 1</summary>
#
# A step is one batch. The bar shows the steps of one epoch, and the seconds of one step.
#
# </details>
# <details><summary>Hint 2</summary>
#
# In the small run, a day of 86,400 seconds served 10 × 100,000 events. <!-- given -->
#
# </details>

# %%
events_per_epoch = 78_125 * 128  ### SOLUTION
days_ten_epochs = 10 * 100.72  ### SOLUTION
slowdown_per_event = (111.39 / 128) / (86_400 / (10 * 100_000))  ### SOLUTION

cu.check("02.1", events_per_epoch, days_ten_epochs, slowdown_per_event)

# %% [markdown]
# The plan had an error, but why does *one event* take longer than before?
#
# ## The cliff
#
# The operating system keeps the data that it reads from a disk in free memory, the **page cache**, so if you read a
# file twice, the second read comes from memory. When the cache is full, the system evicts the data that weren't used
# for the longest time. Ada's small file fitted, but what happens to a file that is just slightly too large?

# %%
cu.predict(
    "02a",
    "The data are 10 % larger than the page cache and are read in the same order, epoch after "
    "epoch. What share of the reads finds its bytes in the cache?",
    unit="%",
)

# %% [markdown]
# Your own disk is too fast to show much, so the course *emulates* a storage system: your files arrive with the delays
# of a slower one. Its page cache holds 40 blocks here.

# %%
import random

from course_utils.hardware.storage import BLOCK

folder = cu.data_path("events", "S")  # the small set: 2,000 events
cache_mb = 40 * BLOCK / 1e6


def hit_share(data_over_cache: float, shuffled: bool) -> float:
    storage = cu.slow_storage(folder, "laptop SSD", cache_mb=cache_mb)
    blocks = list(range(round(data_over_cache * 40)))
    with storage.open("npy/pulses.npy") as file:
        for epoch in range(12):
            if epoch == 2:  # the cache fills in the epochs before
                storage.reset_counters()
            for block in random.sample(blocks, len(blocks)) if shuffled else blocks:
                file.seek(block * BLOCK)
                file.read(1)
    return storage.counters().hit_share


# %%
import json
from statistics import mean

from course_utils.paths import recording
from course_utils.stories.figures import curves

linux = json.loads(recording("page_cache.json").read_text())
sizes, found = linux["sizes"], {}
for order in "in order", "shuffled":
    emulated = [hit_share(size, shuffled=order == "shuffled") for size in sizes]
    recorded = [mean(epochs[2:]) for epochs in linux[order]]
    found |= {f"{order}, emulated now": emulated, f"{order}, Linux, recorded": recorded}
curves(sizes, found, xlabel="data / page cache", ylabel="share found in the cache")

# %%
cu.reveal("02a", 100 * hit_share(1.1, shuffled=False))

# %% [markdown]
# The cache misses all of the reads, not just a tenth. Each block is evicted just before you need it again. Is that a
# quirk of our emulation? The other two curves are recorded on Linux 6.18, whose page cache we limited to 100 MB, and it
# falls off the same cliff: read in order, a file of 1.1 times the cache or more found less than 1 % of its bytes there,
# epoch after epoch.
#
# Shuffled reading still finds about 70 % in the emulation, and Linux keeps a little more, because it protects blocks
# that were read twice. But then a miss costs more, because the system can't guess which block comes next. (Readahead
# was off in the recording. If you're root on Linux, `python notebooks/recordings/make_page_cache.py mine.json` in the
# course's repository records your own kernel in about a minute.)
#
# ## See it
#
# Now let's run a training loop twice, first with a page cache that has space for all the data, and then with one that
# has space for a tenth of them. A request to this storage system takes 10 ms, and a step 15. <!-- given -->

# %%
from itertools import islice

from torch.utils.data import DataLoader

from course_utils.hardware.gpu import Accelerator
from course_utils.loading.events import MemmapEvents, pad_collate
from keepfed.measure.trace import Trace


def events_on(storage) -> DataLoader:
    events = MemmapEvents(folder, fs=storage)
    return DataLoader(events, batch_size=16, shuffle=True, collate_fn=pad_collate)


# %%
def train(gpu: Accelerator, loader: DataLoader, steps: int) -> Trace:
    with cu.record() as trace:
        for batch in islice(trace.batches(loader), steps):
            gpu.step(gpu.upload(batch)).item()
    return trace


# %%
data_mb = (folder / "npy" / "pulses.npy").stat().st_size / 1e6
roomy = cu.slow_storage(folder, "busy Lustre", cache_mb=1.5 * data_mb)
tight = cu.slow_storage(folder, "busy Lustre", cache_mb=0.1 * data_mb)

gpu = cu.get_accelerator(step_ms=15)
filling = train(gpu, events_on(roomy), steps=125)  # the first epoch fills the cache

# %%
cu.predict(
    "02b", "Ada had 10. How many times longer is a step when the data do not fit?", unit="times"
)

# %%
from keepfed.measure.picture import Timeline

fits = train(gpu, events_on(roomy), steps=30)
does_not_fit = train(gpu, events_on(tight), steps=30)
Timeline({"fits": fits, "does not fit": does_not_fit})

# %%
cu.reveal("02b", does_not_fit.summary().total_s / fits.summary().total_s)

# %% [markdown]
# In `fits`, the GPU's row is mostly full, but in `does not fit` it's mostly hatched, because the GPU waits while the
# main process *reads*. Ada's training went the same way: off the cliff if it read in order, and down the slope if it
# shuffled.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **02a** Tempting: 90, because a tenth doesn't fit. The answer is 0. Let people explain it to each other with a
#   drawing of four places in a cache, and five blocks that are read in a circle. Then point at the curves of the real
#   Linux.
# - **02b** 1.1 and 10 are tempting. The answer is about 7. The exact ratio depends on the file and the batch size, but
#   the shape doesn't.
# - **02c** Tempting: 1, if you read "utilization" as a share of the chip. The answer is 100, because one kernel ran all
#   the time.

# %% [markdown]
# ## What nvidia-smi measures
#
# Could `nvidia-smi` have warned her? Its *GPU-Util* is a percentage, but of what? An RTX 3090 has 82 multiprocessors. On
# an emulated card, let's keep one of them busy.

# %%
cu.predict("02c", "One of 82 multiprocessors works, 81 rest. What is GPU-Util?", unit="%")

# %%
import torch


def keep_busy(share: float):
    """Return the panel during 3 s of kernels that use this share of the multiprocessors."""
    gpu = cu.get_accelerator(emulate=True)
    batch = gpu.upload({"x": torch.zeros(8)})
    losses = [gpu.step(batch, ms=50, occupancy=share) for _ in range(60)]
    losses[29].item()  # wait for half of the steps, so the panel shows a busy GPU
    return gpu.smi()


# %%
lonely = keep_busy(1 / 82)
print(lonely)

# %%
cu.reveal("02c", lonely.gpu_util)

# %% [markdown]
# *GPU-Util* is the percentage of the last sample period, a second at most, in which **one or more kernels** were running.
# *Perf* is the performance state: P0 is the fastest, higher numbers save power, many idle cards are in P8, and one busy
# multiprocessor is enough to leave it. Now compare with a GPU at full load, and with one that waits for data:

# %%
print(keep_busy(1.0))

# %%
starving_gpu = cu.get_accelerator(step_ms=15, emulate=True)
train(starving_gpu, events_on(tight), steps=15)
print(starving_gpu.smi())

# %% [markdown]
# **Power is the better quick hint**, because if it's far below its cap, the GPU has little to do. (Our panel only
# estimates the power.) A high *GPU-Util* proves nothing, and a low one has several causes: a slow loader, tiny kernels,
# a loss that you read in every step, or checkpoints. Only your trace shows the true idle time.
#
# ## A model with four letters
#
# You've seen a GPU wait, so now let's predict for how long. A batch is **read**, **decoded**, **transformed and
# collated** and **transferred**, and then the GPU **computes**. Four letters describe this loop:
#
# - **L**: the time in which one worker loads a batch, which is everything before the transfer;
# - **C**: the time to compute a step;
# - **W**: the number of workers;
# - **P**: how many batches can load at the same time. If loading computes, P is the number of cores. If it mostly waits
#   for storage, P is the number of requests that the storage system serves at once.
#
# Without workers, a loop that reads its loss in every step first loads and then computes, so a step takes **T = L +
# C**. With workers both happen at the same time, and the slower one limits the loop: **T = max(C, L / min(W, P))**. The
# GPU computes for C out of T, so its idle share is **1 − C / T**.
#
# Let L = 80 ms and C = 50 ms. The model says 7.7 steps per second without workers, 12.5 with one. <!-- given -->

# %%
cu.predict("02d", "L = 80 ms, C = 50 ms. How many steps per second with two workers?", unit="it/s")

# %% [markdown]
# `run_pipeline` runs such a loop with real worker processes, so let's see whether you're right.

# %%
from course_utils.teaching.explorer import run_pipeline

loops = {
    w: cu.Pipeline(read_ms=70, decode_ms=10, step_ms=50, num_workers=w, steps=30) for w in (0, 1, 2)
}
measured = {w: run_pipeline(loop) for w, loop in loops.items()}


def rate(trace: Trace) -> float:
    """Return the steps per second after the first step, without the start of the workers."""
    ends = [span.end_ns for span in trace.spans if span.lane == "gpu"]
    return (len(ends) - 1) / (ends[-1] - ends[0]) * 1e9


# %%
for w, trace in measured.items():
    step_ms = 80 + 50 if w == 0 else max(50, 80 / min(w, 2))
    print(f"W = {w}: predicted {1000 / step_ms:4.1f} it/s, measured {rate(trace):4.1f}")

Timeline({f"W = {w}": trace for w, trace in measured.items()})

# %%
cu.reveal("02d", rate(measured[2]))

# %% [markdown]
# A third worker would change nothing, because with two of them, L / 2 is already less than C. (If a measured rate is
# lower than predicted, other programs used your cores, too.)
#
# <details><summary>Where do C and P come from on a real GPU?</summary>
#
# A transformer with N parameters needs [about 6 N](https://arxiv.org/abs/2001.08361) floating-point operations for each
# token of a batch. Divide the sum by the speed that the tensor cores of your GPU really reach, which is well below the
# data sheet, and you have C. For P, leave one core free on a real GPU (but not in the exercise), because a Python
# process that waits for CUDA *spins*: like a child on a long drive, it asks again and again whether the GPU has
# finished. With our emulated GPU, it sleeps. <!-- given -->
#
# </details>

# %% [markdown]
# ### Exercise 2.2 · 10 min · ●●○
#
# Write the model as a function, but first guess the idle shares in this table. The check tries more cases.
#
# | L (ms) | C (ms) | W | P |
# |---|---|---|---|
# | 80 | 50 | 0 | 2 |
# | 80 | 50 | 1 | 2 |
# | 80 | 50 | 2 | 2 |
# | 240 | 50 | 8 | 2 |
# | 240 | 50 | 2 | 8 |
# | 20 | 100 | 4 | 4 |
#
# <details><summary>Hint 1</summary>
#
# First compute the time of a step. With `num_workers == 0`, nothing is loaded while the GPU computes.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Idle is a share of the whole step: `1 - step_ms / total_ms`.
#
# </details>


# %%
def predict_idle(load_ms: float, step_ms: float, num_workers: int, parallel: int) -> float:
    """Return the share of the time, 0 to 1, in which the GPU waits."""
    ### BEGIN SOLUTION
    if num_workers == 0:
        total_ms = load_ms + step_ms
    else:
        total_ms = max(step_ms, load_ms / min(num_workers, parallel))
    return 1 - step_ms / total_ms
    ### END SOLUTION


cu.check("02.2", predict_idle)

# %% [markdown]
# ## What prefetching cannot do
#
# Doesn't prefetching solve all this? Each worker loads `prefetch_factor` batches ahead, so let's be generous. Take one
# worker, L = 80 ms and C = 50 ms, and let it load 8 batches ahead instead of 2. <!-- given -->

# %%
cu.predict("02e", "How many steps per second with one worker, 8 batches ahead?", unit="it/s")

# %%
from dataclasses import replace

ahead = run_pipeline(replace(loops[1], prefetch_factor=8))
print(f"2 batches ahead: {rate(measured[1]):.1f} it/s, 8 batches ahead: {rate(ahead):.1f} it/s")
cu.reveal("02e", rate(ahead))

# %% [markdown]
# Nothing changes, because a longer queue does not make the worker faster. (Give a baker a longer shelf, and you still
# get the same number of loaves.) Prefetching hides **latency** and **variance**, but the loader stays as slow as
# before.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **02d** Tempting: 25, if you only halve L. The answer is 20, because now the GPU is slower than the loader. With T =
#   max(...) on the board, it's easy.
# - **02e** This is the prediction to wait for. 20 is tempting. The speed doesn't change, and the model says 12.5.
# - **02f** Tempting: 2.5, because the GPU is that much faster. The answer is 1.25, because T = max(20, 80 / 2) is 40.
#   Ask what the lab has paid for.
#
# **Goes wrong.**
#
# - In 2.2, somebody divides by W and forgets P, or returns the wait as a share of the load time. Ask: a share of what?

# %% [markdown]
# ## Changes that reveal a slow loader
#
# Today everything is fine: two workers, L = 80 ms, C = 50 ms. Then the lab buys a GPU that is 2.5 times as fast, so C
# falls to 20 ms, and somebody opens the champagne. Should they? <!-- given -->

# %%
cu.predict(
    "02f", "C falls from 50 to 20 ms. How many times as fast is the loop then?", unit="times"
)

# %%
CHANGES = {
    "today": {},
    "a faster GPU": {"step_ms": 20},
    "a smaller model": {"step_ms": 30},
    "mixed precision": {"step_ms": 25},
    "a second GPU, same cores": {"num_workers": 1},  # each GPU gets one of the workers
    "a larger model": {"step_ms": 150},
}
today = cu.Pipeline(read_ms=70, decode_ms=10, step_ms=50, num_workers=2, steps=60)
traces = {name: cu.simulate(replace(today, **change)) for name, change in CHANGES.items()}
for name, trace in traces.items():
    print(f"{name:26}{rate(trace):5.1f} it/s, waits {100 * trace.summary().idle:3.0f} %")

Timeline(traces)

# %%
cu.reveal("02f", rate(traces["a faster GPU"]) / rate(traces["today"]))

# %% [markdown]
# The loader delivers 25 batches per second, so that's where the new GPU stops. A smaller model and mixed precision stop
# there, too, and so do two GPUs with 12.5 each. Four of these five changes make the GPU wait. (Ignore a few percent,
# because every run waits for its first batch.) Only the *larger* model doesn't, although it sounds as if it needed the
# fastest loader: more computing per batch gives the loader more time, and a shorter C reveals it. <!-- given -->
#
# [Geti](https://github.com/open-edge-platform/geti/pull/5958), which trains vision models, ran well on CPUs, where a
# step took about 8 s. On an RTX 3090, the same loader left the GPU idle 70 to 92 percent of the time. Better loader
# settings raised the speed from 3 to 13 it/s. Among millions of training jobs in [Google's
# fleet](https://arxiv.org/abs/2101.12127), one in five spent over a third of its compute time in the input pipeline.
#
# ## You now can
#
# - check whether the numbers of a progress bar agree;
# - say what *GPU-Util* measures, and measure true idle time instead;
# - predict idle time from L, C, W and P, and say why prefetching doesn't make a loader faster;
# - name the changes that reveal a slow loader.
#
# Next: [03 Measure before you touch](03_measure_before_you_touch.ipynb), because you know *that* a GPU waits, but you
# don't know *why* yet.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs the sections below, and each section needs only the core.

# %% [markdown]
# ## Explore, and measure
#
# The explorer predicts all strategies without a kernel, and its cards show what the idle time costs. The honest price
# of a GPU is the price of a *useful* hour, which is its rate divided by the share of time in which it works.
#
# Set the load time to 160 ms, with a step of 50 ms. How many workers keep the GPU busy, and how is that possible on the
# two cores of this model? <!-- given -->

# %%
box = cu.explorer(start={"strategy": "CUDA prefetch", "load": 80, "step": 50, "workers": 2})
box

# %% [markdown]
# <details><summary>The answer</summary>
#
# Four, because 160 / 4 = 40 ms is less than 50. Two cores don't mean that P = 2 everywhere, because each stage has its
# own P. Reading is 60 % of the load here, 96 ms, and it only waits, so four batches are read at the same time. The
# other 64 ms are computation, which two cores share, so it takes 32 ms per batch. The result is T = max(50, 160 / 4, 64
# / 2) = 50. The GPU still waits for the first batch, and sometimes for a slow one. <!-- given -->
#
# </details>
#
# `box.measure()` runs your choice for 60 steps with real workers. The picture above then shows the result next to the
# prediction, including the one thing that you can't predict: how long *your* workers took to start.

# %%
found, predicted = 100 * box.measure().summary().au, 100 * box.au
print(f"GPU busy after the first step: predicted {predicted:.0f} %, measured {found:.0f} %")

# %% [markdown]
# The model may be wrong by 5 points. On two cores, the measurement may be a few points lower, because the main process
# waits for a core while the workers compute, and the model ignores this. If the difference is much larger, another
# program uses your cores.<!-- notebook --> Run the cell again.<!-- end --> <!-- given -->

# %% [markdown]
# ## An estimate from nine steps
#
# Ada's bar predicted a hundred days after nine steps, with a cold cache. Would you trust it? Let's look at an epoch
# whose data fit in the cache, but aren't there yet.

# %%
cold = cu.slow_storage(folder, "busy Lustre", cache_mb=1.5 * data_mb)
first_epoch = train(gpu, events_on(cold), steps=125)
steps = [span for span in first_epoch.spans if span.lane == "gpu"]
ends_s = [(step.end_ns - first_epoch.start_ns) / 1e9 for step in steps]
print(f"after 9 steps the bar promises {ends_s[8] / 9 * len(ends_s):.1f} s")
print(f"the epoch took                 {ends_s[-1]:.1f} s")
print(f"the next one will take about   {fits.summary().total_s / 30 * len(ends_s):.1f} s")

# %% [markdown]
# The first steps read all their blocks from the storage system, but later steps find more and more of them in the
# cache, because a block contains many events. Don't judge a loader by its first steps or by its first epoch.

# %% [markdown]
# ## Five stages of real photographs
#
# In this loop, the times of decoding and cropping are real: your CPU does both, with JPEG files on an emulated network
# drive.

# %%
# %%worker_module photo_crop
import torch


def crop(image: torch.Tensor) -> torch.Tensor:
    """Cut a random square out of a photograph and scale its values to 0..1."""
    top, left = torch.randint(64, (2,)).tolist()
    return image[:, top : top + 192, left : left + 192] / 255


# %%
from torch.utils.data import Subset

from keepfed.loaders.images import Jpegs

images = cu.data_path("images")
all_photos = Jpegs(images, crop, fs=cu.slow_storage(images, "NFS", cache_mb=0))
photos = Subset(all_photos, random.sample(range(len(all_photos)), 192))

photo_gpu = cu.get_accelerator(step_ms=25)
serial = train(photo_gpu, DataLoader(photos, batch_size=16, shuffle=True), steps=12)
serial.timeline()

# %%
stage_ms = dict.fromkeys(("read", "decode", "transform", "collate", "transfer", "compute"), 0.0)
for span in serial.spans:
    if span.stage in stage_ms:
        stage_ms[span.stage] += span.duration_ns / 1e6 / serial.served
for stage, ms in stage_ms.items():
    print(f"{stage:9} {ms:5.1f} ms")

# %% [markdown]
# These are milliseconds per batch. Reading waits and needs no CPU, but decoding, transforming and collating do need it,
# and this difference decides which change helps. Does the model with four letters predict this loop?

# %%
loader = DataLoader(photos, batch_size=16, shuffle=True, num_workers=2)
fed = train(photo_gpu, loader, steps=12)
load_ms = sum(stage_ms[stage] for stage in ("read", "decode", "transform", "collate"))
for w, trace in (0, serial), (2, fed):
    step_ms = load_ms + 25 if w == 0 else max(25, load_ms / w)
    print(f"W = {w}: predicted {1000 / step_ms:4.1f} it/s, measured {rate(trace):4.1f}")

# %% [markdown]
# Without workers, it does. With two, the measurement is slightly lower: twelve steps are few, the workers share two
# cores with the main process, and each batch moves from one process to another, which L ignores. A model that's wrong
# by a tenth still tells you what a second worker gains. <!-- given -->
#
# ## What prefetching is good for
#
# Let's be fair to the queue: these two workers are fast enough on average, but some of their batches take longer than
# others.

# %%
uneven = cu.Pipeline(read_ms=70, decode_ms=10, step_ms=50, num_workers=2, jitter=0.8, steps=60)
Timeline({f"{d} ahead": cu.simulate(replace(uneven, prefetch_factor=d)) for d in (1, 2, 4)})

# %% [markdown]
# A queue of finished batches feeds the GPU during the slow ones.

# %% [markdown]
# ## Percent of what?
#
# ### Exercise 2.3 · 5 min · ●○○
#
# A slide shows a run with one worker: "I/O / compute = 1.3, so 30 % of the time the GPU is waiting". Is this true?
# Return both shares, with a worker that loads while the GPU computes, and without workers. <!-- given -->
#
# <details><summary>Hint 1</summary>
#
# Set the compute time to 1. Then the ratio is the load time.
#
# </details>
# <details><summary>Hint 2</summary>
#
# 30 % of *what*? The GPU waits 0.3 units. How many units does the whole step take? <!-- given -->
#
# </details>


# %%
def waiting_share(load_over_compute: float) -> tuple[float, float]:
    """Return the waiting share with one worker, and without workers."""
    ### BEGIN SOLUTION
    with_worker = 1 - 1 / max(1, load_over_compute)
    without = load_over_compute / (load_over_compute + 1)
    return with_worker, without
    ### END SOLUTION


cu.check("02.3", waiting_share)

# %% [markdown]
# ## What it costs
#
# If you speed up the step, check the loader again. In a [tutorial of NERSC](https://github.com/NERSC/sc25-dl-tutorial),
# a supercomputing center, mixed precision made training 4.1 times faster, so the loader has to deliver 4.1 times as
# much. If it can't, somebody pays. Who, and how much?
#
# ### Exercise 2.4 · 10 min · ●●○
#
# Find three answers in dollars, each to within two percent. <!-- given -->
#
# 1. "A GPU at 3 dollars an hour that works 30 % of the time wastes 18,000 dollars a month." What does it really waste
#    in a month of 30 days? <!-- given -->
# 2. A rack of 72 GPUs costs 2,821 dollars a day and works 30 % of the time. A well-fed training reaches 80 %, not 100
#    %. How many dollars a day are saved if the *same work* is done at 80 %? <!-- given -->
# 3. What does one *useful* hour of one of these 72 GPUs cost today?
#
# <details><summary>Hint 1</summary>
#
# What's the whole bill of one GPU for a month? Can it waste more than that?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Work that takes a day at 30 % takes 0.3 / 0.8 of a day at 80 %. <!-- given -->
#
# </details>

# %%
wasted_per_month = 3 * 24 * 30 * (1 - 0.3)  ### SOLUTION
recoverable_per_day = 2_821 * (1 - 0.3 / 0.8)  ### SOLUTION
per_useful_hour = 2_821 / (72 * 24) / 0.3  ### SOLUTION

cu.check("02.4", wasted_per_month, recoverable_per_day, per_useful_hour)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Extra.** Homework, or another half hour. 2.3 and 2.4 are good to discuss in pairs.
#
# **Background.**
#
# - The slide's 18,000 dollars are for the *year*: 3 × 8,760 × 0.7 = 18,396. The rack costs 2.5 million over three
#   years, 120 kW at 0.10 dollars per kWh, and 250 a day for cooling, space and staff. Two objections are worth hearing:
#   an idle GPU draws less power, and the 250 are low. Compared with 100 %, the waste would be 1,975 dollars a day, but
#   no training reaches 100 %.
# - In 2.3, let somebody defend the 30 %. It's right as a share of the compute time, but the slide calls it a share of
#   the whole time, so write the base under every percentage.
