# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 00 · Start here: see a GPU starve, and feed it
#
# **You will do:** watch a GPU idle while it waits for physics events, then bring its idle time
# below 5 % with your own loader. <!-- given -->
#
# **You will learn:**
# - to read the timeline, the one picture of this course;
# - the habit of the course: predict, measure, explain;
# - what your own machine has to offer.
#
# **You need:** any laptop. No GPU, no network.
#
# **Minutes:** {minutes}.
#
# Click into a cell and press Shift + Enter to run it. Begin with this one; every notebook does.

# %%
import course_utils as cu

cu.ready("00")

# %% [markdown]
# ## Your machine
#
# How fast data can be loaded depends on the machine. Here is yours. Look at three lines: the
# cores, which share out the work of loading; the memory; and the GPU. If you have none, the course
# emulates one: copies and computing take the time they would take, and every picture says so.

# %%
from course_utils.hardware.machine import probe

print(probe())

# %% [markdown]
# ## A network that reads neutrino events
#
# The data are simulated events of a neutrino telescope: light pulses in sensors deep in the ice,
# one small file per event. They lie on the file system of a busy computing centre, which the course
# emulates as well: every file takes a few milliseconds to open and a few more to read.
#
# A `Dataset` returns one event. A `DataLoader` collects events into a batch. Notebook 1 shows how
# both are written; today we take them ready-made. To be done in seconds, we take 768 events at
# random, which are 24 batches of 32. <!-- given -->

# %%
import random

from torch.utils.data import DataLoader, Subset

from course_utils.loading.events import NpzEvents, pad_collate

events = cu.data_path("events")
storage = cu.slow_storage(events, "busy Lustre", cache_mb=0)
all_events = NpzEvents(events, fs=storage)
dataset = Subset(all_events, random.sample(range(len(all_events)), 768))
gpu = cu.get_accelerator("RTX 3090", step_ms=100)
print(len(dataset), "events on", storage.preset)

# %% [markdown]
# The training loop is the usual one: take a batch, copy it to the GPU, start a step. The step runs
# on the GPU while Python goes on; `synchronize` waits for the last one. `cu.record()` notes who does
# what, and when.


# %%
def train(loader):
    with cu.record() as trace:
        for batch in trace.batches(loader):
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
# Time runs to the right. Each row is somebody who works: `main` is your Python program, `copy`
# moves batches to the GPU, `gpu` computes. Each colour is a stage. **Hatched red is time in which
# the GPU waits and costs money.**
#
# Zoom in with the + button and follow one batch: `main` *reads* its files one after the other and
# *collates* them into one tensor. Then the GPU computes, and is done long before the next batch is
# there. One process fetches the files one by one, and that takes several times as long as a step.
# That is all that is wrong here.

# %% [markdown]
# ## Switch the strategy
#
# The cure is to do things at the same time. Below, the timeline is *predicted* by a small model, so
# you can switch and see the result at once. It is another loop than yours, with a load time of 80 ms
# and a step of 50 ms, and it reads the loss after every step, so Python waits for the GPU too:
# <!-- given -->
#
# - **naive**: the main program does everything, one after the other;
# - **workers**: other processes load the batches;
# - **prefetch**: they work several batches ahead;
# - **pinned**: batches wait in memory from which the copy is faster;
# - **CUDA prefetch**: the next batch is copied while the GPU computes;
# - **streaming**: a few large files are read in one go, instead of many small ones.

# %%
box = cu.explorer(start={"strategy": "naive", "workers": 1})
box

# %% [markdown]
# ### Exercise 0.1 · 3 min · ●○○ <!-- given -->
#
# Bring the idle time under **5 %** with the switches *Strategy* and *Workers* only. <!-- given -->
# Which switch brings most? Which one changes nothing?

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
# ## Now with your own loader
#
# The model is one thing, the machine another. How long does the loop take to load a batch?

# %%
waits = [span.duration_ns / 1e6 for span in naive.spans if span.stage == "wait"]
print(f"One batch takes {sum(waits) / len(waits):.0f} ms to load, one step {gpu.step_ms:.0f} ms.")

# %% [markdown]
# ### Exercise 0.2 · 3 min · ●●○ <!-- given -->
#
# Give the loader below what it needs, so that the GPU idles less than **5 %** of the time once the
# loop is running. The check leaves out the first 8 of the 24 steps, in which workers may still be
# starting. <!-- given --> Same data set, same batch size.

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
fed = None  # so that a run that fails leaves no old result for the check
fed = train(my_loader)
fed.timeline()

# %%
cu.check("00.2", naive, fed)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `DataLoader(..., num_workers=2)` starts two processes that load batches.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Workers that wait for a drive need no processor core of their own, so there may be more of them
# than you have cores. Divide the load time by the step time.
#
# </details>

# %% [markdown]
# The first step comes late: the workers have to start, and the first batch has to be loaded. In a
# training run of hours nobody notices; in these few seconds it is a good part of the idle time.

# %%
print("NAIVE", naive.summary(), sep="\n", end="\n\n")
print("FED", fed.summary(), sep="\n")

# %% [markdown]
# **AU**, accelerator utilisation, is the share of computing without the first step: the score that
# the MLPerf Storage benchmark uses. It tells how the loop runs once it runs.
#
# The last line is the **ledger**. It counts how many samples were served and how
# many of them were distinct. A loader is not faster if it repeats or drops samples, so the ledger
# stands beside every speed in this course.
#
# ## How the course works
#
# 1. **Predict** before you measure.
# 2. **Measure** on your own machine. Trust ratios, not milliseconds: your neighbour's differ.
# 3. **Explain** what you see in the timeline before you change anything.
#
# Below every exercise is a check. It says *right*, *not right yet* and why, or *not yet attempted*;
# it never stops the notebook. Hints are folded away. Solved notebooks lie in `notebooks/solutions`.
#
# If you stop a cell half way, its workers may stay behind. This clears them away:

# %%
cu.cleanup_workers()

# %% [markdown]
# ## You now can
#
# - read a timeline: who works, who waits, and for what;
# - say why a naive loop starves a GPU: one process loads more slowly than the GPU computes;
# - feed a GPU with workers, and show by the ledger that no sample was lost or repeated.
#
# Next, notebook 1 builds the data set and the loader by hand.

# %% [markdown] tags=["instructor"]
# ### For the instructor
#
# - **Script.** Show the naive timeline before any explanation and ask what the red means. Let
#   everybody write down a guess for 0.1; most say more than half. The answer is sobering.
# - **Board.** Two rows, load and compute, first with one loader, then with six above each other.
# - **What goes wrong.** Somebody changes load or step time in 0.1: the check says why that is
#   another job. In 0.2 some take `prefetch_factor=16` with two workers: nothing changes.
# - **On a busy laptop** 0.2 may stay above the target with eight workers and more: starting them
#   takes the processor away from those that load already. Six are enough.
# - **Guesses** for 0.1: expect a wide spread, centred well above what is measured.
