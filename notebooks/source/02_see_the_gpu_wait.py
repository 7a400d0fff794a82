# %% [markdown]
# # 02 · See the GPU wait
#
# **You will do:** make a GPU starve on purpose, see it, and predict from four numbers how long it waits.
#
# **You will learn**
#
# - why training becomes many times slower once the data outgrow the page cache,
# - what `nvidia-smi` really counts,
# - one small model that says how long a GPU waits,
# - what brings a slow loader to light.
#
# **You need:** notebook 01. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("02")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *6 min* **The hundred-day epoch.** Tell Ada's story with the progress bar on the wall, and let the
#   room find what does not fit. Exercise 2.1.
# - *5 min* **The cliff, and see it.** Predictions 02a and 02b. `course demo cliff` shows the same
#   live, should a laptop be slow.
# - *4 min* **What nvidia-smi counts.** Ask for 02c with a show of hands.
# - *12 min* **A model of four letters.** Both lines on the board first; prediction 02d, then exercise
#   2.2.
# - *2 min* **What prefetching cannot do.** Prediction 02e. Ask who has set `prefetch_factor` in their
#   own code, and why.
# - *3 min* **What brings a slow loader to light.** Prediction 02f. The picture toggles without a
#   kernel.
#
# **Board.** Two rows, *load* and *compute*. Draw three batches end to end, write T = L + C below.
# Draw them again, load of batch 2 under compute of batch 1: T = max(C, L). Leave it there for the
# hour.
#
# **Goes wrong.**
#
# - On a machine that is busy otherwise the measured rates are a little low. Talk about ratios.
# - Somebody interrupts a cell that has workers: `cu.cleanup_workers()` clears them away.

# %% [markdown]
# ## The hundred-day epoch
#
# Ada trains on 100,000 events. Ten epochs take one day, and the result is almost the best in the field. The
# conference is three months away, and there is a larger file with "ten times the data, a million events", so
# she expects ten days. She starts the job, goes for a coffee, and comes back to this: <!-- given -->
#
# ```
# Epoch 1/10:   0%|   | 9/78125 [16:53<100.72 days, 111.39 s/it]     batch_size=128
# ```
#
# Do these numbers fit together?

# %% [markdown]
# ### Exercise 2.1 · 5 min · ●○○
#
# Find three numbers, each to within one percent. How many events does an epoch have? How many days will
# ten epochs take? And how many times longer does *one event* take than in the small run?
#
# <details><summary>Hint 1</summary>
#
# A step is one batch. The bar shows the steps of one epoch, and the seconds of one step.
#
# </details>
# <details><summary>Hint 2</summary>
#
# In the small run a day of 86,400 seconds served 10 × 100,000 events. <!-- given -->
#
# </details>

# %%
events_per_epoch = 78_125 * 128  ### SOLUTION
days_ten_epochs = 10 * 100.72  ### SOLUTION
slowdown_per_event = (111.39 / 128) / (86_400 / (10 * 100_000))  ### SOLUTION

cu.check("02.1", events_per_epoch, days_ten_epochs, slowdown_per_event)

# %% [markdown]
# The file is larger than planned: that is bookkeeping. But why does *one event* take ten times as long?
#
# ## The cliff
#
# The operating system keeps what it has read from a disk in memory that nobody else needs: the **page
# cache**. If you read a file twice, the second time it comes from memory. When the cache is full, what was
# used longest ago is thrown out. The small file fitted. What happens to a file that is just a little too
# large?

# %%
cu.predict(
    "02a",
    "The data are 10 % larger than the page cache and are read in the same order, epoch after "
    "epoch. What share of the reads finds its bytes in the cache?",
    unit="%",
)

# %% [markdown]
# Your own disk is too fast to see much. So the course *emulates* a storage: it delivers your files when a
# slower one would have, and has a page cache of the size you choose, here 40 blocks.

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
            if epoch == 2:  # before, the cache fills
                storage.reset_counters()
            for block in random.sample(blocks, len(blocks)) if shuffled else blocks:
                file.seek(block * BLOCK)
                file.read(1)
    return storage.counters().hit_share


# %%
from course_stories.figures import curves

sizes = [0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5]
found = {
    "in order": [100 * hit_share(size, shuffled=False) for size in sizes],
    "shuffled": [100 * hit_share(size, shuffled=True) for size in sizes],
}
curves(sizes, found, xlabel="data / page cache", ylabel="found in the emulated cache (%)")

# %%
cu.reveal("02a", 100 * hit_share(1.1, shuffled=False))

# %% [markdown]
# Not a tenth is lost, but everything: each block is thrown out shortly before it is needed again. (Real page
# caches are a little kinder.) Shuffled reading still finds about 70 %, but there every miss costs more,
# because nothing can be read ahead.
#
# ## See it
#
# Now a training loop, twice: the first page cache has room for all the data, the second for a tenth of them.

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
    "02b", "How many times longer is a step when the data do not fit in the cache?", unit="times"
)

# %%
from keepfed.measure.picture import Timeline

fits = train(gpu, events_on(roomy), steps=30)
does_not_fit = train(gpu, events_on(tight), steps=30)
Timeline({"fits": fits, "does not fit": does_not_fit})

# %%
cu.reveal("02b", does_not_fit.summary().total_s / fits.summary().total_s)

# %% [markdown]
# In `fits` the GPU's row is mostly full. In `does not fit` it is mostly hatched, because the GPU waits while the
# main process *reads*. Ada's training has fallen off the cliff.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **02a** A tenth does not fit, so 90 is the answer to expect. It is 0. Let them explain it to each
#   other: draw a cache with four places, and five blocks read in a circle.
# - **02b** 1.1 and 10 are tempting. It is about 7: the exact ratio depends on the file and the batch
#   size, the shape does not.
# - **02c** Those who read "utilisation" as a share of the chip say 1. It is 100: one kernel ran all
#   the time.

# %% [markdown]
# ## What nvidia-smi counts
#
# Could `nvidia-smi` not have told her? Its *GPU-Util* is the percentage of the last sample period, a
# second at most, in which **one or more kernels** were running. An RTX 3090 has 82 multiprocessors. On an
# emulated card we keep one of them busy.

# %%
cu.predict("02c", "One of 82 multiprocessors works, 81 do nothing. GPU-Util says:", unit="%")

# %%
import torch


def keep_busy(share: float):
    """Show the panel in the middle of 3 s of kernels that use this share of the multiprocessors."""
    gpu = cu.get_accelerator(emulate=True)
    batch = gpu.upload({"x": torch.zeros(8)})
    losses = [gpu.step(batch, ms=50, occupancy=share) for _ in range(60)]
    losses[29].item()  # waits for half of them: the panel looks at a GPU that is at work
    return gpu.smi()


# %%
lonely = keep_busy(1 / 82)
print(lonely)

# %%
cu.reveal("02c", lonely.gpu_util)

# %% [markdown]
# *Perf* is the state of the clocks, from P0, the fastest, to P8, at rest. One busy multiprocessor is enough to
# wake the card. Compare with a GPU that gives all it has, and with one that starves for data:

# %%
print(keep_busy(1.0))

# %%
starving_gpu = cu.get_accelerator(step_ms=15, emulate=True)
train(starving_gpu, events_on(tight), steps=15)
print(starving_gpu.smi())

# %% [markdown]
# **Power is the better quick hint**: far below its cap, the GPU has little to do. (Our panel estimates it, on a
# straight line from *awake* to *full load*; believe your own card.) A high *GPU-Util* proves nothing. A low one
# does not prove a slow loader: tiny kernels, a loss read in every step or checkpoints look the same. The true
# idle time is in your trace.
#
# ## A model of four letters
#
# What does a GPU wait for? A batch goes through five stages: it is **read**, **decoded**, **transformed and
# collated** and **transferred**; then the GPU **computes**. Four letters describe all this:
#
# - **L**: the time to load one batch on one worker, everything up to the transfer;
# - **C**: the time to compute a step;
# - **W**: the number of workers;
# - **P**: how many batches the machine can load in parallel. For work on a CPU P is the number of cores, for
#   reading the number that the storage serves at once.
#
# Without workers, a loop that reads its loss in every step loads, then computes: a step lasts **T = L + C**. With
# workers both happen at once, and the slower one sets the pace: **T = max(C, L / min(W, P))**. The GPU computes C
# out of T, so it idles for the share **1 − C / T**.
#
# Take L = 80 ms and C = 50 ms. The model says 7.7 steps per second without workers, 12.5 with one. <!-- given -->

# %%
cu.predict("02d", "L = 80 ms, C = 50 ms. How many steps per second with two workers?", unit="it/s")

# %% [markdown]
# `cu.Pipeline` describes such a loop. `run_pipeline` runs it with real worker processes.

# %%
from course_utils.teaching.explorer import run_pipeline

loops = {
    w: cu.Pipeline(read_ms=70, decode_ms=10, step_ms=50, num_workers=w, steps=30) for w in (0, 1, 2)
}
measured = {w: run_pipeline(loop) for w, loop in loops.items()}


def rate(trace: Trace) -> float:
    """Return the steps per second without the start, which only the picture shows."""
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
# A third worker would change nothing: with two, L / 2 is less than C already.
#
# <details><summary>Where do C and P come from on a real GPU?</summary>
#
# A transformer with N parameters needs [about 6 N](https://arxiv.org/abs/2001.08361) floating-point operations for
# each token of a batch. Divide their sum by what the tensor cores of your GPU really reach, well below the figure in
# its data sheet, and you have C. For P leave one core free: a Python process that waits for
# CUDA *spins*, asking again and again whether the GPU is done. With our emulated GPU it sleeps. <!-- given -->
#
# </details>

# %% [markdown]
# ### Exercise 2.2 · 10 min · ●●○
#
# Put the model into a function. First guess the idle shares in this table; the check tries more cases.
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
# First the time of a step. With `num_workers == 0` nobody loads while the GPU computes.
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
# The lecture notes that this course grew out of say that prefetching always solves the problem: a worker loads
# `prefetch_factor` batches ahead. Take one worker, L = 80 ms and C = 50 ms, and let it load 8 batches ahead
# instead of 2. <!-- given -->

# %%
cu.predict("02e", "How many steps per second with one worker, 8 batches ahead?", unit="it/s")

# %%
from dataclasses import replace

ahead = run_pipeline(replace(loops[1], prefetch_factor=8))
cu.reveal("02e", rate(ahead))

# %% [markdown]
# Nothing changes: longer shelves do not make a baker bake faster. Prefetching hides **latency** and
# **variance**; it makes no loader faster.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **02d** 25 is the answer of those who only halve L. It is 20, for now the GPU is the slower one.
#   With T = max(...) on the board it is easy.
# - **02e** The one to wait for: 20 is tempting. It stays as it was, 12.5 by the model.
# - **02f** "A larger model" is the right answer and the one that nobody wants to give, since
#   everybody has heard that large models need fast loaders.
#
# **Goes wrong.**
#
# - In 2.2 somebody divides by W and forgets P, or gives the idle share of the load time. Ask: idle is
#   a share of what?

# %% [markdown]
# ## What brings a slow loader to light
#
# Today all is well: two workers, L = 80 ms, C = 50 ms. Then something changes. Four of these five
# changes make the GPU wait. <!-- given -->

# %%
CHANGES = {
    "a faster GPU": {"step_ms": 20},
    "a smaller model": {"step_ms": 30},
    "mixed precision": {"step_ms": 25},
    "a second GPU, same cores": {"num_workers": 1},
    "a larger model": {"step_ms": 150},
}
cu.predict("02f", "Which change does not expose the loader?", choices=list(CHANGES))

# %%
today = cu.Pipeline(read_ms=70, decode_ms=10, step_ms=50, num_workers=2)
traces = {"today": cu.simulate(today)}
for name, change in CHANGES.items():
    traces[name] = cu.simulate(replace(today, **change))
for name, trace in traces.items():
    print(f"{name:26} waits {100 * trace.summary().idle:3.0f} %")

Timeline(traces)

# %%
cu.reveal("02f", "a larger model")

# %% [markdown]
# (Never mind a few percent: every run waits for its first batch.) The lecture notes say that *larger models*
# reveal the bottleneck. It is the other way round: more computing per batch gives the loader more time. What
# shortens C exposes it.
#
# It happens. [Geti](https://github.com/open-edge-platform/geti/pull/5958), which trains vision models, ran well on CPUs,
# where a step took about 8 s. On an RTX 3090 the same loader left the GPU idle 70 to 92 percent of the time; better
# loader settings raised the rate from 3 to 13 it/s. Among more than a million jobs in
# [Google's fleet](https://arxiv.org/abs/2101.12127), one in five spent over a third of its compute time in the
# input pipeline.
#
# ## You now can
#
# - check whether the numbers of a progress bar fit together,
# - say what *GPU-Util* counts, and measure true idle time instead,
# - predict idle time from L, C, W and P, and say why prefetching makes no loader faster,
# - name what exposes a slow loader.
#
# The next notebook finds out *why* a GPU waits, before anything is changed.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs what follows, and each section only the core.

# %% [markdown]
# ## Explore, and measure
#
# The explorer predicts all strategies, and needs no kernel for that. The cards say what the idle time costs:
# the honest price of a GPU is that of a *useful* hour, its rate divided by the share of time in which it works.
#
# Set the load time to 160 ms, with a step of 50 ms. How many workers keep the GPU busy? And how can
# that be on the two cores that this model has? <!-- given -->

# %%
box = cu.explorer(start={"strategy": "CUDA prefetch", "load": 80, "step": 50, "workers": 2})
box

# %% [markdown]
# <details><summary>The answer</summary>
#
# Four: 160 / 4 = 40 ms is less than 50. Two cores do not mean P = 2 for everything, since each stage has a P of
# its own. Reading is 60 % of the load here, 96 ms; it only waits, so four batches are read at a time. The other
# 64 ms compute, and two cores do that in 32 ms a batch. So T = max(50, 160 / 4, 64 / 2) = 50. What the GPU
# still waits is for the first batch, and now and then for a slow one. <!-- given -->
#
# </details>
#
# `box.measure()` really runs what you have chosen, 60 steps with real workers. Its result stands beside the prediction
# in the picture above, which is redrawn with what no prediction can know: how long *your* workers took to start.

# %%
found, predicted = 100 * box.measure().summary().au, 100 * box.au
print(f"GPU busy after the first step: predicted {predicted:.0f} %, measured {found:.0f} %")

# %% [markdown]
# The model is allowed an error of 5 points. On two cores the measurement may fall short by a few more: the main process
# has to wait for a core while the workers compute, which the model does not know. If far more is missing,
# something else is computing on your cores: run it again. <!-- given -->

# %% [markdown]
# ## An estimate from nine steps
#
# Ada's bar promised its hundred days after nine steps, with a cold cache. What is such a promise worth? Here is an
# epoch whose data will fit, but are not in the cache yet.

# %%
cold = cu.slow_storage(folder, "busy Lustre", cache_mb=1.5 * data_mb)
first_epoch = train(gpu, events_on(cold), steps=125)
steps = [span for span in first_epoch.spans if span.lane == "gpu"]
ends_s = [(step.end_ns - first_epoch.start_ns) / 1e9 for step in steps]
print(f"after 9 steps the bar promises {ends_s[8] / 9 * len(ends_s):.1f} s")
print(f"the epoch took                 {ends_s[-1]:.1f} s")
print(f"the next one will take about   {fits.summary().total_s / 30 * len(ends_s):.1f} s")

# %% [markdown]
# The first steps fetch all their blocks from the storage. Later ones find more and more of theirs in the cache,
# since a block holds many events. So do not judge a loader by its first steps, nor by its first epoch.

# %% [markdown]
# ## Five stages of real photographs
#
# Here nobody sets the times of decoding and cropping: your CPU does both, with JPEG files on an emulated network
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
# These are milliseconds per batch. Reading waits and needs no CPU; decoding, transforming and collating need
# one. That decides what helps. Does the model of four letters hold here?

# %%
loader = DataLoader(photos, batch_size=16, shuffle=True, num_workers=2)
fed = train(photo_gpu, loader, steps=12)
load_ms = sum(stage_ms[stage] for stage in ("read", "decode", "transform", "collate"))
for w, trace in (0, serial), (2, fed):
    step_ms = load_ms + 25 if w == 0 else max(25, load_ms / w)
    print(f"W = {w}: predicted {1000 / step_ms:4.1f} it/s, measured {rate(trace):4.1f}")

# %% [markdown]
# Without workers it does. With two of them the measurement is somewhat lower: twelve steps are few, the workers
# share two cores with the main process, and each batch travels from one process to another, which L leaves
# out. A model that misses by a tenth has still told you what to expect of a second worker. <!-- given -->
#
# ## What prefetching is good for
#
# Here are two workers that are fast enough on average, but now slower, now faster:

# %%
uneven = cu.Pipeline(read_ms=70, decode_ms=10, step_ms=50, num_workers=2, jitter=0.8, steps=60)
Timeline({f"{d} ahead": cu.simulate(replace(uneven, prefetch_factor=d)) for d in (1, 2, 4)})

# %% [markdown]
# A queue of finished batches carries the GPU over the slow ones.

# %% [markdown]
# ## Percent of what?
#
# ### Exercise 2.3 · 5 min · ●○○
#
# A slide shows a run with one worker: "I/O / compute = 1.3, so 30 % of the time the GPU is waiting".
# Is it? Return both shares: with a worker that loads while the GPU computes, and without one.
# <!-- given -->
#
# <details><summary>Hint 1</summary>
#
# Set the compute time to 1. Then the ratio is the load time.
#
# </details>
# <details><summary>Hint 2</summary>
#
# 30 % of *what*? The GPU waits 0.3 units. How many units does the whole step last? <!-- given -->
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
# Whoever speeds up the step has to look at the loader again. In a
# [tutorial of NERSC](https://github.com/NERSC/sc25-dl-tutorial), a supercomputing centre, mixed precision made
# training 4.1 times faster: the loader has to deliver 4.1 times as much. If it cannot, somebody pays.
#
# ### Exercise 2.4 · 10 min · ●●○
#
# Find three answers, in dollars as on the slides of the lecture, each to within one percent. <!-- given -->
#
# 1. "A GPU at 3 dollars an hour that works 30 % of the time wastes 18,000 dollars a month." What is
#    wasted in a month of 30 days? <!-- given -->
# 2. A rack of 72 GPUs costs 2,821 dollars a day and works 30 % of the time. A well-fed training reaches
#    80 %, not 100 %. How many dollars a day are saved if the *same work* is done at 80 %? <!-- given -->
# 3. What does one *useful* hour of one of these 72 GPUs cost today?
#
# <details><summary>Hint 1</summary>
#
# What is the whole bill of one GPU for a month? Can more than that be wasted?
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
# **Extra.** Homework, or another half hour: 2.3 and 2.4 are good to discuss in pairs.
#
# **Background.**
#
# - The slide's 18,000 dollars are the *year*: 3 × 8,760 × 0.7 = 18,396. The rack: 2.5 million over
#   three years, 120 kW at 0.10 dollars per kWh, and 250 a day for cooling, space and staff.
#   Objections worth hearing: an idle GPU draws less power; the 250 are low. Against 100 % the waste
#   would be 1,975 dollars a day, but nobody reaches 100 %.
# - In 2.3 let somebody defend the 30 %. It is right as a share of the compute time, so the answer to
#   "is the slide wrong?" is: it names the wrong whole. Write the base under every percentage.
