# %% [markdown]
# # 00 · Start here: see a GPU starve, and feed it
#
# **You will do:** watch a GPU wait for physics events, find the switches that feed it, and speed up a
# training loop with one word.
#
# **You will learn:**
# - to read the timeline, the main picture of this course;
# - the habit of the course: predict, measure, explain;
# - what your own machine has to offer.
#
# **You need:** any laptop. No GPU, no network.
#
# **Minutes:** {minutes}.
#
# Click into a cell and press Shift + Enter to run it. Begin with this one, as in every notebook:

# %%
import course_utils as cu

cu.ready("00")

# %% [markdown]
# ## Your machine
#
# How fast data can be loaded depends on the machine. Look for three things in this list: the cores,
# the memory and the GPU. If there is no GPU, the course emulates one: its copies and its computing
# take the time that they would take, and every picture says so.

# %%
from course_utils.hardware.machine import probe

print(probe())

# %% [markdown]
# ## A loop that reads neutrino events
#
# The data are simulated events of a neutrino telescope, one small file for each event. The files lie
# on the file system of a busy computing centre, which the course emulates as well: it takes some
# milliseconds to open a file, and some more to read it.
#
# A `Dataset` returns one event, and a `DataLoader` collects events into batches. Notebook 1 shows how
# both are written; today we take them ready-made. We draw 768 events at random, which makes 24
# batches of 32. <!-- given -->

# %%
import random

from torch.utils.data import DataLoader, Subset

from course_utils.loading.events import NpzEvents, pad_collate

folder = cu.data_path("events")
storage = cu.slow_storage(folder, "busy Lustre", cache_mb=0)
all_events = NpzEvents(folder, fs=storage)
dataset = Subset(all_events, random.sample(range(len(all_events)), 768))
gpu = cu.get_accelerator("RTX 3090", step_ms=100)
print(len(dataset), "events on", storage.preset)

# %% [markdown]
# The training loop is the usual one: take a batch, copy it to the GPU, start a step. Python goes on
# while the GPU computes, and `synchronize` waits for the last step. `cu.record()` notes who does what,
# and when.


# %%
def train(loader):
    with cu.record() as trace:
        for batch in trace.batches(loader, ids="event_id"):
            gpu.step(gpu.upload(batch))
        gpu.synchronize()
    return trace


# %% [markdown]
# Before you measure, guess. A guess may be far off: the surprise is what you will remember.

# %%
cu.predict("00a", "For how much of the time will the GPU compute?", unit="%")

# %%
naive_loader = DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=pad_collate)
naive = train(naive_loader)
naive.timeline()

# %%
cu.reveal("00a", 100 * naive.summary().utilisation)

# %% [markdown]
# ### How to read the timeline
#
# Time runs to the right. Each row is somebody who works: `main` is your Python program, `copy` moves
# batches to the GPU, `gpu` computes. Each colour is a stage. **Hatched red is time in which the GPU
# waits and costs money.**
#
# Zoom in with the + button and follow one batch. `main` *reads* its 32 files one after the other, and
# *collates* them into one tensor. Only then can the GPU compute, and it is done long before the next
# batch is there.

# %% [markdown]
# ## Switch the strategy
#
# The cure is to do things at the same time. The next timeline is not measured but *predicted* by a
# small model, so that you can switch and see the result at once. It describes another loop, in which
# a batch takes 80 ms to load and a step 50 ms. <!-- given --> From *workers* on, each strategy adds
# something to the one above it:
#
# - **naive**: the main program does everything, one after the other;
# - **workers**: other processes load the batches;
# - **prefetch**: the workers load several batches ahead;
# - **pinned**: batches wait in *pinned* memory, which the system may not move to another place, so
#   the GPU can fetch them faster (`pin_memory=True` in a loader);
# - **CUDA prefetch**: the next batch is copied while the GPU computes;
# - **streaming**: a few large files are read in one go, instead of many small ones; the model assumes
#   that reading then takes a quarter of the time. <!-- given -->

# %%
box = cu.explorer(start={"strategy": "naive", "workers": 1})
box

# %% [markdown]
# ### Exercise 0.1 · 5 min · ●○○
#
# Bring the idle time under **5 %** with the switches *Strategy* and *Workers* only. <!-- given -->
# Which switch saves most on the way, and which one next to nothing?

# %% tags=["solution"]
box.state = {**box.state, "strategy": "CUDA prefetch", "workers": 2}

# %%
cu.check("00.1", box)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Two workers load two batches at the same time, so a batch is ready twice as often.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Look at the `copy` row. With most strategies the GPU stands still while a batch is copied.
#
# </details>

# %% [markdown]
# ## The same cure, measured
#
# Back to our own loop. `num_workers=2` makes the loader start two processes that load batches. This is
# the one word that changes.

# %%
cu.predict("00b", "How many times as fast will the loop be with two workers?", unit="times")

# %%
loader = DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=pad_collate, num_workers=2)
fed = train(loader)
fed.timeline()

# %%
cu.reveal("00b", naive.summary().total_s / fed.summary().total_s)

# %%
print("NAIVE", naive.summary(), sep="\n", end="\n\n")
print("TWO WORKERS", fed.summary(), sep="\n")

# %% [markdown]
# The first step comes late, because the workers have to start first. **AU**, accelerator utilisation,
# is the share of time in which the GPU computes *after* the first step; the
# [MLPerf Storage](https://mlcommons.org/benchmarks/storage/) benchmark uses it as its score.
#
# The last line is the **ledger**: how many samples were served, and how many of them were distinct. A
# loader that repeats or drops samples is not faster, so the ledger stands beside every speed in this
# course.
#
# ## How the course works
#
# 1. **Predict** before you measure.
# 2. **Measure** on your own machine. Trust ratios rather than milliseconds: your neighbour's differ.
# 3. **Explain** what you see in the timeline before you change anything.
#
# Below every exercise is a check, which never stops the notebook. Hints are folded away, and solved
# notebooks lie in `notebooks/solutions`. If you stop a cell half way, its workers may stay behind;
# this clears them away:

# %%
cu.cleanup_workers()

# %% [markdown]
# ## You now can
#
# - read a timeline: who works, who waits, and for what;
# - say why a naive loop starves a GPU: one process loads more slowly than the GPU computes;
# - make a loop faster with workers, and show by the ledger that no sample was lost or repeated.
#
# The GPU still waits. If you want to feed it fully today, go on below; if not, go to notebook 1, which
# builds the dataset and the loader by hand.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *2 min* **Your machine.** Let everybody run the first cells and compare: who has most cores, who
#   has a GPU? `course demo wait` on the wall shows the picture of the day to those whose laptop still
#   installs.
# - *3 min* **A loop that reads events.** Ask for prediction 00a before anybody runs the loop. Show
#   the naive timeline without a word, and ask what the red means; only then explain the rows.
# - *6 min* **Switch the strategy.** Switch to *workers* and to *prefetch* together, then leave
#   exercise 0.1 to pairs.
# - *3 min* **The same cure, measured.** Prediction 00b, the loop with two workers, and the ledger:
#   nothing was lost.
#
# **Board.** Two rows, *load* and *compute*. Draw three batches with one loader, one after the other;
# then two loaders above each other, and the gaps between the steps halved.
#
# **Guesses.**
#
# - **00a** Most say 60 to 90, since "the GPU does the work". It is about a fifth.
# - **00b** Most say 2, and it is a little less: the workers have to start first. Whoever says 1.2
#   thinks of two programs that share the cores; these workers wait for a storage, and hardly compute.
#
# **Goes wrong.**
#
# - Somebody changes load or step time in exercise 0.1. The check says why that is another job; set
#   both back, and use *Strategy* and *Workers* alone.
# - In exercise 0.2 some take `prefetch_factor=16` with two workers, and nothing changes. Ask how many
#   batches two workers finish in a second.
# - On a busy laptop exercise 0.2 may miss its target with eight workers and more, since starting them
#   takes the processor away from those that load already. Six are enough.
# - Somebody has no data yet. `course check` finds what is missing in seconds, and says how to mend
#   it.
#
# **Extra.** Exercise 0.2 is for those who are done early; notebook 04 says how many workers are
# enough.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs what follows, and each section only the core.
#
# ## Feed the GPU with your own loader
#
# Two workers load twice as fast as one, and that is not enough. How long does one process take for a
# batch?

# %%
waits = [span.duration_ns / 1e6 for span in naive.spans if span.stage == "wait"]
print(f"One batch takes {sum(waits) / len(waits):.0f} ms to load, one step {gpu.step_ms:.0f} ms.")

# %% [markdown]
# ### Exercise 0.2 · 5 min · ●○○
#
# Give the loader below what it needs, so that the GPU idles less than **5 %** of the time once the
# loop is running. The dataset, the shuffling, the batch size and the GPU stay as they are. The check
# leaves out the first 8 of the 24 steps, in which workers may still be starting. <!-- given -->

# %%
# This is the naive loader again. What does it need?
my_loader = DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=pad_collate)

# %% tags=["solution"]
my_loader = DataLoader(
    dataset,
    batch_size=32,
    shuffle=True,
    collate_fn=pad_collate,
    num_workers=6,
)

# %%
storage.reset_counters()  # from here on it counts what your loader reads
mine = None  # so that a run that fails leaves no old result for the check
mine = train(my_loader)
mine.timeline()

# %%
cu.check("00.2", my_loader, naive, mine, storage)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Workers that wait for a file need no processor core of their own, so there may be more of them than
# you have cores.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Divide the load time by the step time. That many workers are just enough, so take one more.
#
# </details>
