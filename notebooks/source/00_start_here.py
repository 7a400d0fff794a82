# %% [markdown]
# # 00 · Start here: see a GPU starve, and feed it
#
# {here: read, decode, collate, transfer, compute}
#
# In this picture, red is time in which the GPU waits for data, and you pay for it, too. Can you make the red
# disappear? Flip the switches: they work before you've run anything.

# %% jupyter={"source_hidden": true} tags=["stored"]
import course_utils as cu

cu.explorer()

# %% [markdown]
# **You will do:** watch a GPU wait for physics events, find the switches that feed it, and feed it with your own loader.
#
# **You will learn:**
#
# - to read the timeline, the main picture of this course; <!-- 0.1 -->
# - the habit of the course: predict, measure, explain; <!-- 00a 00b -->
# - how many workers it takes to feed a GPU; <!-- 0.2 -->
# - what your own machine has to offer.
#
# **You need:** any laptop. You don't need a GPU or a network.
#
# **Minutes:** {minutes}.
#
# Notebooks 00 to 09 and the rescue (13) are **one story**: a GPU starves, you take away one cause after another, and in
# the end you save a training run that somebody else has made slow. After 09, the **tracks** come in any order you like:
# shards and libraries (10, B), many GPUs (11), tokens (12), physics (14). The line **You are here** on top of each
# notebook is a batch's way from the file to the GPU, and the colored squares mark the part we're working
# on.<!-- notebook -->
#
# To run a cell, click into it and press Shift + Enter. (If the picture above is missing, run its cell.) Begin with this
# one, as in every notebook:<!-- end -->

# %%
import course_utils as cu

cu.ready("00")

# %% [markdown]
# ## Your machine
#
# Your machine decides how fast you can load data, so let's see what it has. Look for three things in this list: the
# cores, the memory and the GPU. If you have no GPU, the course emulates one, so that copies and training steps take as
# long as they would on a real GPU, and every picture is labeled as emulated.

# %%
from course_utils.hardware.machine import probe

print(probe())

# %% [markdown]
# ## A loop that reads neutrino events
#
# Our data are simulated events of a neutrino telescope, one small file per event, on the file system of a busy computing
# center. The course emulates that too, because your own disk is much too fast to teach you patience. Opening a file
# there takes some milliseconds, and reading it takes about twice as long.
#
# A `Dataset` returns one event, and a `DataLoader` collects events into batches. You'll write both in notebook 1; today
# we use finished ones. We draw 768 events at random, which makes 24 batches of 32. <!-- given -->

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
# This is a standard training loop. It takes a batch, copies it to the GPU and starts a training step, but Python
# continues while the GPU computes, and only `synchronize` waits for the last step. `cu.record()` records when Python
# works, when the copy runs, and when the GPU computes.


# %%
def train(loader):
    with cu.record() as trace:
        for batch in trace.batches(loader, ids="event_id"):
            gpu.step(gpu.upload(batch))
        gpu.synchronize()
    return trace


# %% [markdown]
# Now make a guess before you measure. It's fine to be wrong, because you remember surprises.

# %%
cu.predict("00a", "For how much of the time will the GPU compute?", unit="%")

# %%
naive_loader = DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=pad_collate)
naive = train(naive_loader)
naive.timeline(steps=3)

# %%
cu.reveal("00a", 100 * naive.summary().utilization)

# %% [markdown]
# ### How to read the timeline
#
# Time runs to the right. The picture opens on the first three steps, and *Whole run* shows all of them. Each row shows
# one part of the machine: `main` is your Python program, `copy` moves batches to the GPU, and `gpu` computes. Each color
# is a stage, and **hatched red is time in which the GPU waits and costs money.**
#
# Let's follow one batch. `main` *reads* its 32 files one at a time, and then it *collates* them into one tensor. Only
# then can the GPU compute, and because it finishes long before the next batch is ready, the most expensive part of the
# machine waits for the cheapest one.

# %% [markdown]
# ## Switch the strategy
#
# How do you feed a GPU? You do several things at the same time. The next timeline is *predicted*: a simulation computes
# it, so you see at once what a switch does. Its loop is a different one, in which a batch takes 80 ms to load and a
# step takes 50 ms. <!-- given --> Each strategy in this list adds one idea to the strategy above it:
#
# - **naive**: the main program does everything, one thing after the other;
# - **workers**: other processes load the batches, one batch ahead each;
# - **prefetch**: each worker loads four batches ahead (PyTorch's default is two); <!-- given -->
# - **pinned**: batches wait in *pinned* memory, which the system never moves, so the GPU can copy them faster
#   (`pin_memory=True` in a loader);
# - **CUDA prefetch**: the next batch is copied while the GPU computes;
# - **streaming**: the workers read a few large files instead of many small ones. The simulation assumes that reading
#   then takes a quarter of the time. <!-- given -->

# %%
box = cu.explorer(start={"strategy": "naive", "workers": 1})
box

# %% [markdown]
# ### Exercise 0.1 · 5 min · ●○○
#
# Bring the idle time below **5 %**, and touch only the switches *Strategy* and *Workers*. <!-- given --> Which change
# saves the most, and which one almost nothing? Decide, then run the check.

# %% tags=["solution"]
box.state = {**box.state, "strategy": "CUDA prefetch", "workers": 2}

# %%
cu.check("00.1", box)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Two workers load two batches at the same time, so twice as many batches are ready per second.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Look at the `copy` row. With most strategies, the GPU waits while a batch is copied.
#
# </details>
#
# <details><summary>The switches don't react?</summary>
#
# Some editors show no widgets. Set the switches in a new cell instead:
# `box.state = {**box.state, "strategy": "prefetch", "workers": 2}`.
#
# </details>

# %% [markdown]
# ## Measure it in the real loop
#
# That was a simulation, and simulations have no bad days. Let's go back to our own loop and change one argument: with
# `num_workers=2`, the loader starts two processes that load batches.

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
# Why does the first step start so late? Because the workers have to start first. **AU**, accelerator utilization,
# doesn't count that: it's the share of time in which the GPU computes *after* the first step. In the benchmark [MLPerf
# Storage](https://mlcommons.org/benchmarks/storage/), a run counts only if its AU is high enough.
#
# The last line is the **ledger**, which says how many samples were served and how many of them were distinct. A loader
# that repeats or drops samples isn't faster, so this course shows the ledger with every speed.

# %% [markdown]
# ## Feed the GPU with your own loader
#
# Two workers load twice as fast as one, and yet the GPU still waits, so now it's your turn. How long does one process
# need for a batch, and how many batches does the GPU want in that time?

# %%
waits = [span.duration_ns / 1e6 for span in naive.spans if span.stage == "wait"]
print(f"One batch takes {sum(waits) / len(waits):.0f} ms to load, one step {gpu.step_ms:.0f} ms.")

# %% [markdown]
# ### Exercise 0.2 · 5 min · ●○○
#
# Give the loader below what it needs, so that the GPU is idle less than **5 %** of the time once all workers run. Leave
# the dataset, the shuffling, the batch size and the GPU as they are. The check ignores the first 8 of the 24 steps,
# because workers may still be starting then. <!-- given -->

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
storage.reset_counters()  # so that it counts only what your loader reads
mine = None  # if the next line fails, the check must not see an old result
mine = train(my_loader)
mine.timeline()

# %%
cu.check("00.2", my_loader, naive, mine, storage)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A worker that waits for a file uses no core, so you may start more workers than you have cores.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Divide the load time by the step time. That many workers are just enough, so take one more.
#
# </details>

# %% [markdown]
# So your own loader did it: once its workers run, the GPU hardly waits. Why, then, is there so much red at the start?
# Because each worker has to start and to load its first batch. That's a large part of a run of seconds, but in a
# training of hours you'd never notice.

# %% [markdown]
# ## How the course works
#
# 1. **Predict** before you measure.
# 2. **Measure** on your own machine. Trust ratios more than milliseconds, because your neighbor's milliseconds differ.
# 3. **Explain** what you see in the timeline before you change anything.
#
# Below every exercise is a check, and a wrong answer never stops the notebook. If you're stuck, click on a hint; solved
# notebooks are in `notebooks/solutions`. And if you interrupt a cell, its workers may keep running until you stop them
# with this call:

# %%
cu.cleanup_workers()

# %% [markdown]
# ## You now can
#
# - read a timeline: who works, who waits, and for what;
# - say why a naive loop starves a GPU: one process loads more slowly than the GPU computes;
# - feed a GPU with your own loader, and show with the ledger that no sample was lost or repeated.
#
# Next: [01 Build a Dataset and feed it to a DataLoader](01_build_a_dataset.ipynb), because today's dataset was a
# finished one, and nobody will have finished yours.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *3 min* **Your machine.** Everybody plays with the first picture, runs the first cells and compares: who has the
#   most cores, who has a GPU? Show `course demo wait` on the projector for people whose laptop is still installing. If
#   your class uses the wall, first everybody opens its address and runs the line `cu.ready("00", wall="ADDRESS")` below
#   the question in a new cell.
# - *5 min* **A loop that reads events.** Ask for prediction 00a before anybody runs the loop. Show the naive timeline
#   without a comment, and ask what the red means. Only then explain the rows.
# - *10 min* **Switch the strategy.** Switch to *workers* and to *prefetch* together, then let pairs do exercise 0.1.
# - *5 min* **Measure it in the real loop.** Prediction 00b, the loop with two workers, and the ledger, which shows that
#   nothing was lost.
# - *10 min* **Feed the GPU with your own loader.** Do the division together, then exercise 0.2 alone: it's the first line
#   of code that they'll take home. Notebook 04 shows how many workers are enough.
#
# **Leave out.** Exercise 0.1 in pairs. Do it together, on the projector.
#
# **Board.** Draw two rows, *load* and *compute*. Draw three batches with one loader, one after the other. Then draw two
# loaders, one above the other, and gaps between the steps that are half as long.
#
# **Guesses.**
#
# - **00a** Tempting: 60 to 90, because "the GPU does the work". The answer is about a fifth.
# - **00b** Tempting: 2. The answer is a little less, because the workers have to start first. A guess of 1.2 takes
#   workers for programs that share the cores, but these wait for a storage system and hardly compute.
#
# **Goes wrong.**
#
# - Somebody changes the load time or the step time in exercise 0.1. The check says why that's another job. Set both
#   back, and use only *Strategy* and *Workers*.
# - In exercise 0.2 some choose `prefetch_factor=16` with two workers, and nothing changes. Ask how many batches two
#   workers finish in a second.
# - On a busy laptop, exercise 0.2 may miss its target with eight or more workers, because starting them takes CPU time
#   from the workers that already load. Six are enough.
# - Somebody has no data yet. `course check` finds what's missing within seconds and prints how to fix it.
