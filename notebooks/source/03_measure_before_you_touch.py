# %% [markdown]
# # 03 · Measure before you touch
#
# {here: read, decode, collate, transfer, compute}
#
# **You will do:** find out why a training loop waits, without changing a line of it. Then you do the same six times,
# blind.
#
# **You will learn:**
#
# - how much a better loader could gain at most, before you write one; <!-- 03a -->
# - why a stopwatch blames the wrong line of a GPU program; <!-- 03b 03c 3.2 -->
# - the three runs that show what limits a loop: loader alone, step alone, both together; <!-- 3.1 -->
# - how to do the same with your own code.
#
# **You need:** notebook 02. A CPU is enough.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("03")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *6 min* **How much is there to gain?** Ask for prediction 03a before anybody replays the cached batch. *Headroom* is
#   the word to remember.
# - *6 min* **Where does the time go?** Predictions 03b and 03c, one at a time, in silence.
# - *7 min* **Three runs.** Fill in the three boxes on the board, and show that the same function works in plain
#   PyTorch.
# - *29 min* **The blind clinic.** Work in pairs: one asks for a probe, and the other first says what each cause would
#   show. Collect the numbers of probes on the board, but ask for the probe that surprised somebody. `course demo
#   clinic` has four loops for the wall.
# - *3 min* **Let the machine do it.** `cu.diagnose` runs for about half a minute, so start it before you talk.
#
# **Leave out.** Half of the clinic. Each pair examines three of the six loops.
#
# **Board.** Draw three boxes: *loader alone*, *step alone*, *together*. Write a rate below each box as the notebook
# continues. Don't wipe the boxes off, because the clinic needs them.
#
# **Goes wrong.**
#
# - Somebody changes things before measuring. Ask which of the three boxes will change, and by how much.
# - Time is short. Give three loops of the clinic to each half of the room.

# %% [markdown]
# ## How much is there to gain?
#
# Here are two loops with the same events and the same emulated GPU. One reads from a busy cluster file system, the
# other from a laptop SSD, and neither has workers. You have one afternoon, so which one deserves a better loader?

# %%
import time

from torch.utils.data import DataLoader, Subset

from course_utils.loading.events import MemmapEvents, pad_collate

folder = cu.data_path("events", "S")  # the small set: 2,000 events
gpu = cu.get_accelerator(step_ms=40)


def loader_on(storage: str, num_workers: int = 0) -> DataLoader:
    events = MemmapEvents(folder, fs=cu.slow_storage(folder, storage, cache_mb=0))
    some = Subset(events, range(480))  # 30 batches are enough for a rate
    return DataLoader(some, 16, shuffle=True, num_workers=num_workers, collate_fn=pad_collate)


# %%
def per_second(batches, step, skip=5) -> float:
    """Return the batches per second of a loop, without the first few."""
    ends = []
    for batch in batches:
        step(batch)
        ends.append(time.perf_counter())
    ends = ends[skip:]  # these were loaded ahead: two workers, two batches each, and one more
    return (len(ends) - 1) / (ends[-1] - ends[0])


def step(batch):
    gpu.step(gpu.upload(batch)).item()  # item() waits for the end of the step


# %%
trained = {}
for storage in "busy Lustre", "laptop SSD":
    trained[storage] = per_second(loader_on(storage), step)
    print(f"{storage}: {trained[storage]:.1f} steps/s")

# %%
cu.predict(
    "03a",
    "How many times faster would the loop on the laptop SSD be if loading took no time?",
    unit="times",
)

# %% [markdown]
# You don't have to build that loader to know. Load **one batch once and replay it**, because no loader is faster, so
# you measure the step alone. Its rate divided by your current rate is the **headroom**, and no change to the loader can
# gain more.

# %%
cached = next(iter(loader_on("laptop SSD")))
alone = per_second([cached] * 30, step)
headroom = {storage: alone / rate for storage, rate in trained.items()}
print({storage: f"{factor:.2f} times faster at most" for storage, factor in headroom.items()})

# %%
cu.reveal("03a", headroom["laptop SSD"])

# %% [markdown]
# The loop on the SSD is **GPU-bound: leave it alone**. A faster model might help, but a better loader, more workers or
# another file format won't. Take the afternoon off. (If your batches differ much in size, replay *several* of them.)

# %% [markdown]
# ## Where does the time go?
#
# Your first idea may be a stopwatch around each line. Let's time three lines of a training loop twice, as they are and
# without the line that reads the loss.

# %%
import numpy as np


def stopwatch(batch, read_loss: bool, steps=30) -> dict[str, float]:
    """Return the milliseconds per step of each line."""
    spent, clock = np.zeros(3), time.perf_counter
    for _ in range(steps):
        start = clock()
        on_gpu = gpu.upload(batch)
        uploaded = clock()
        loss = gpu.step(on_gpu)
        stepped = clock()
        if read_loss:
            loss.item()
        spent += uploaded - start, stepped - uploaded, clock() - stepped
    return dict(zip(("upload", "step", "item"), 1000 * spent / steps, strict=True))


# %%
cu.predict(
    "03b",
    "With item(): how many of the 40 ms of a step does the line `gpu.step(...)` get?",
    unit="ms",
)

# %%
cu.predict(
    "03c",
    "Without item(): which line gets the time now?",
    choices=["gpu.upload(batch)", "gpu.step(on_gpu)", "none, it is gone"],
)

# %%
from course_utils.stories.figures import bars

with_item = stopwatch(cached, read_loss=True)
bars(with_item, "ms, with item() in every step", "{:,.1f}".format)

# %%
cu.reveal("03b", with_item["step"])

# %%
without_item = stopwatch(cached, read_loss=False)
bars(without_item, "ms, without item()", "{:,.1f}".format)

# %%
slowest = max(without_item, key=without_item.get)
cu.reveal("03c", {"upload": "gpu.upload(batch)"}.get(slowest, slowest))

# %% [markdown]
# `gpu.step` only *launches* the work and returns, because CUDA is asynchronous. The next line that **waits** for the
# GPU gets the time. That's the line with `item()`, and without it the copy to the device, because it has to wait for
# the kernels before it. Your stopwatch then reports that moving data takes nearly all the time, and somebody buys
# faster disks.
#
# To time a GPU, call `torch.cuda.synchronize()`, read the clock, run many steps, call `synchronize()` again, and only
# then read the clock again.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **03a** Tempting: 2 or more, because the loop has no workers. The answer is hardly above 1, because the GPU is the
#   limit.
# - **03b** Tempting: 40, because this line names the step. The answer is almost 0.
# - **03c** Tempting: "it is gone". Ask where 40 ms of work could go. The line that copies the batch gets them.

# %% [markdown]
# ## Three runs
#
# Three rates show what limits a loop: **the loader alone**, without steps; **the step alone**, on a cached batch; and
# **both together**. This time the loader has two **workers**. A worker is a separate process that loads whole batches
# while the main process trains on earlier ones, so each worker may wait for the storage system or keep a core busy
# while the others continue.

# %%
loader = loader_on("busy Lustre", num_workers=2)
runs = {
    "loader alone": per_second(loader, lambda batch: None),
    "step alone": per_second([cached] * 30, step),
    "together": per_second(loader, step),
}
bars(runs, "batches per second", "{:,.1f}".format)

# %% [markdown]
# | together is close to | the limit is |
# |---|---|
# | the loader alone | the loader |
# | the step alone | the step; no loader helps |
# | neither, well below both | they do not overlap, or they compete for the same cores |
#
# **If it's the loader**, look at the workers while the loop runs:
#
# - If they sleep, they wait for the storage system.
# - If each keeps a core busy, they decode or transform.
# - If each gets half a core and other cores are free, all workers share one core.
# - If most batches are fast and a few are slow, look for giant samples. Batches are delivered in order, so one giant
#   sample delays all batches behind it.
#
# **If it's the step**, look at the GPU during the replay. If it computes all the time, the GPU is the limit, and if it
# doesn't, the loop itself is slow: Python, logging, or an `item()` after every kernel. Use a trace or a profiler for
# this, because `nvidia-smi` can't tell, as you saw in notebook 02.
#
# ### The same with your own code
#
# `per_second` is all you need, so let's use it on a training step in plain PyTorch, on the CPU. What limits this loop?

# %%
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.AdamW(model.parameters())


def train_step(batch):
    optimizer.zero_grad()  # otherwise the gradients of all steps add up
    loss = model(batch["pulses"]).square().mean()  # your loss; on a GPU: batch["pulses"].to("cuda")
    loss.backward()
    optimizer.step()
    return loss.item()  # on a GPU, this waits for the end of the step


print(f"loader alone {per_second(loader, lambda batch: None):5.1f} /s")
print(f"step alone   {per_second([cached] * 30, train_step):5.1f} /s")
print(f"together     {per_second(loader, train_step):5.1f} /s")

# %% [markdown]
# <details><summary>The answer</summary>
#
# The loader, because together is close to the loader alone, while the step alone is several times as fast. A GPU would
# gain nothing here. (If together is far below both, it's the last row: on a CPU, the step competes with the workers for
# the same cores.)
#
# </details>
#
# Copy `per_second` into your training script, and read its rates with the table above.

# %% [markdown]
# ## The blind clinic
#
# ### Exercise 3.1 · 20 min · ●●●
#
# That was too easy. Now here are six training loops with two workers each, which all run at about 12 steps per second,
# and all their owners say: "my loader is slow". There are six causes, each occurs once, and the order was drawn for you
# alone, so your neighbor can't help. <!-- given -->
#
# | cause | in words |
# |---|---|
# | `"storage"` | the workers wait for the storage system |
# | `"cpu"` | the workers compute all the time |
# | `"giant sample"` | from time to time, one sample takes very long |
# | `"one core"` | all workers are pinned to the same core |
# | `"sync"` | the step waits for the device many times |
# | `"gpu"` | the GPU is the limit: leave it alone |
#
# Name all six with **few probes**. An expert needs 13. If a probe says that the machine was busy, use it again, because
# a probe that you repeat on the same loop counts once. <!-- given -->
#
# | probe | shows |
# |---|---|
# | `A.step_alone()` | steps/s and GPU busy on a cached batch |
# | `A.loader_alone()` | batches/s |
# | `A.together()` | steps/s and GPU busy |
# | `A.workers_cpu()` | how much each worker computes and sleeps, and how many cores it may use |
# | `A.batch_times()` | the time of a batch: fastest, median, slowest |
# | `A.timeline()` | the picture; the owners marked no stages, so all work of a worker is called *read* |
#
# <details><summary>Hint 1</summary>
#
# One probe splits the six loops into two and four. Which probe shows whether the loader matters at all?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Use `step_alone` on all loops first. Two of them are not faster alone, and the GPU's busy share tells you which is
# which. For the other four use `workers_cpu`, and `batch_times` if you are in doubt. A worker that neither computes nor
# sleeps waits for a core.
#
# </details>

# %%
from course_utils.stories.clinic import admit

clinic = admit()
A, B, C, D, E, F = clinic


# %% tags=["solution"]
def examine(loop) -> str:
    """Use only probes that still decide something."""
    step = loop.step_alone()
    if step.steps_per_s < 20:  # hardly faster than together with the loader
        return "gpu" if step.gpu_busy > 0.75 else "sync"
    times = loop.batch_times()
    if times.slowest_ms > 6 * times.median_ms:
        return "giant sample"
    cpu = loop.workers_cpu()
    if sum(cpu.computes) < 0.35 and (cpu.sleeps is None or min(cpu.sleeps) > 0.25):
        return "storage"
    shared = cpu.cores == 1 or (cpu.cores is None and sum(cpu.computes) < 1.2)
    return "one core" if shared else "cpu"


# %% tags=["solution"]
found = {loop.name: examine(loop) for loop in (A, B, C)}

# %% tags=["solution"]
found |= {loop.name: examine(loop) for loop in (D, E, F)}


# %% [markdown]
# Write a probe into this cell, for example `A.step_alone()`, run it, and then write the next one in its place. You
# don't have to take notes, because the last line shows what all probes have found so far. (`A.timeline()` draws its
# picture only in a separate cell.)

# %%
# your probe
clinic

# %%
causes = {}
causes["A"] = found["A"]  ### SOLUTION
causes["B"] = found["B"]  ### SOLUTION
causes["C"] = found["C"]  ### SOLUTION
causes["D"] = found["D"]  ### SOLUTION
causes["E"] = found["E"]  ### SOLUTION
causes["F"] = found["F"]  ### SOLUTION

cu.check("03.1", clinic, causes)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Goes wrong.**
#
# - In the clinic, half a core is taken for "waits for the storage". Look at the number of cores in the same line.
# - "Sync" is taken for "gpu", because the replay is slow. Ask whether the GPU is busy during that replay.
# - The check doesn't answer twice after the same few probes, because you could ask it until everything is right.

# %% [markdown]
# ## Let the machine do it
#
# `cu.diagnose(loader, step)` makes the same three runs with any loop and looks at the workers while it runs. It tries
# simple changes, such as more workers, before it recommends them, and with `prove=True` it also measures the loop with
# and without the change. Let's have it judge the loop on *busy Lustre*, which takes about half a minute: <!-- given -->

# %%
cu.diagnose(loader, step, seconds=18, synchronize=gpu.synchronize)

# %% [markdown]
# Once you've answered exercise 3.1, ask the machine for a second opinion on one of the six loops. Do you agree?

# %%
which = ""  # the letter of a loop
clinic.second_opinion(which)

# %% [markdown]
# ## You now can
#
# - say how much a better loader could gain at most, and leave alone a loop that has nothing to gain;
# - distrust a stopwatch around a line that launches work on a GPU;
# - find the cause with three runs and two looks at the workers, or with `cu.diagnose`;
# - do all of this with your own training script.
#
# [The checklist](../docs/checklist.md) has the whole course on one page, from the symptom to the notebook that explains
# the fix. Print it.
#
# Next: [04 Use workers wisely](04_use_workers_wisely.ipynb), because it opens the loader and shows how many workers are
# right.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs the sections below, and each section needs only the core.
#
# ## Time a step
#
# Where does `gpu.synchronize()` belong? If you call it in every step, you change what you measure, because the host
# then can't prepare the next step while the device works.

# %% [markdown]
# ### Exercise 3.2 · 10 min · ●●○
#
# Time a step as it is in a long run. `step()` launches one step and returns its loss at once. The very first step takes
# 40 times as long, and the others differ a little. The check brings a device, its own steps, and a clock, and your
# result must be right to within 5 %. In most cases the GPU limits the step, but in one case it's the host, because
# Python needs longer to launch a step than the GPU needs to compute it. <!-- given -->
#
# <details><summary>Hint 1</summary>
#
# How often do you have to wait? Less often than you think: once before each reading of the clock.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Warm up, wait, read the clock, launch many steps, wait, read the clock.
#
# </details>


# %%
def ms_per_step(gpu, step, clock=time.perf_counter) -> float:
    """Return the milliseconds of one step in a long run."""
    ### BEGIN SOLUTION
    count = 50
    for _ in range(3):
        step()
    gpu.synchronize()
    start = clock()
    for _ in range(count):
        step()
    gpu.synchronize()
    return 1000 * (clock() - start) / count
    ### END SOLUTION


cu.check("03.2", ms_per_step)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Goes wrong.**
#
# - Tempting in 3.2: wait in every step. Draw it, and you see that host and device then work alternately. This is right
#   only if the loop itself reads the loss in every step.

# %% [markdown]
# ## Benchmarks that lie
#
# **A full queue.** Let's time one loader once and get three answers. Before the first batch is counted, there's a
# warm-up of one training step, which takes a second. <!-- given -->

# %%
small = DataLoader(
    loader.dataset, 8, shuffle=True, num_workers=2, prefetch_factor=4, collate_fn=pad_collate
)
start, times = time.perf_counter(), []
for batch in small:
    if not times:
        gpu.step(gpu.upload(batch), ms=1000).item()
    times.append(time.perf_counter())
answers = {
    "the next 8": 8 / (times[8] - times[0]),
    "from the start": len(times) / (times[-1] - start),
    "the last 20": 20 / (times[-1] - times[-21]),
}

# %%
cu.predict(
    "03d",
    "By what factor is the first answer (8 batches) above the last one (the last 20)?",
    unit="times",
)

# %%
bars(answers, "batches per second", "{:,.1f}".format)

# %%
cu.reveal("03d", answers["the next 8"] / answers["the last 20"])

# %% [markdown]
# The workers continued to load during the warm-up, two workers with four batches each. Eight batches then came out of a
# full queue. If you count the start of the workers as well, the error goes in the other direction, so leave out the
# first `num_workers × prefetch_factor + 1` batches, which were 5 in `per_second`. `steady_rate` in
# `keepfed.measure.diagnosis` does this and reports the start-up separately.
#
# **Warm and cold.** The second run of a benchmark finds its file in the page cache. `drop_cache` makes files cold
# again, without special rights, and prints a message if the system can't do it. One run isn't enough, so repeat it and
# report the median and the spread.

# %%
from course_utils.hardware.machine import drop_cache

files = sorted((folder / "npz").rglob("*.npz"))
print(drop_cache(folder / "npz"))
for run in "first", "second", "third":
    start = time.perf_counter()
    megabytes = sum(len(file.read_bytes()) for file in files) / 1e6
    print(f"{run} run: {megabytes / (time.perf_counter() - start):6.1f} MB/s")

# %% [markdown]
# **Count what was served.** A [workshop of ALCF](https://github.com/argonne-lcf/ALCF_Hands_on_HPC_Workshop), a
# supercomputing center, printed 40.8 images per second with one worker and 506.9 with two. How can a second worker make
# loading twelve times faster? Let's look at our version, on an emulated object store behind a cache:

# %%
# %%worker_module whole_file
from torch.utils.data import IterableDataset


class WholeFile(IterableDataset):
    """Serves all events in order."""

    def __init__(self, events):
        self.events = events

    def __iter__(self):
        for index in range(600):
            yield self.events[index]


# %%
def benchmark(events, num_workers: int) -> list[int]:
    whole = WholeFile(events)
    loader = DataLoader(whole, batch_size=16, num_workers=num_workers, collate_fn=pad_collate)
    start = time.perf_counter()
    served = [event for batch in loader for event in batch["event_id"].tolist()]
    seconds = time.perf_counter() - start
    rate = len(served) / seconds
    print(f"{num_workers} workers: {rate:6,.0f} events/s ({len(served):,} in {seconds:.1f} s)")
    return served


behind_a_cache = MemmapEvents(folder, fs=cu.slow_storage(folder, "S3", cache_mb=100))
served = [benchmark(behind_a_cache, num_workers) for num_workers in (0, 2)]

# %%
# the start of the workers changes the rates above, but not these counts
print("distinct:", [len(set(events)) for events in served])

# %% [markdown]
# ### Exercise 3.3 · 10 min · ●●○
#
# Which of these statements name a **flaw** of `benchmark`, or of the way it is called? Write their letters, such as
# `{"a", "h"}`.
#
# - **a** Every worker reads the whole file: events are served twice.
# - **b** The runs share a page cache, and only the first run finds it cold.
# - **c** The start of the workers is counted as loading.
# - **d** There is one run each, always in the same order.
# - **e** `gpu.synchronize()` is missing before the clock is read.
# - **f** There is no training step in the loop.
# - **g** The batches that were prefetched before the clock started are counted.
# - **h** `time.perf_counter` is the wrong clock. `time.time` would be right.
#
# <details><summary>Hint</summary>
#
# Ask of each statement: is it true? If so, does it make the comparison of 0 and 2 workers unfair?
#
# </details>

# %%
flaws = {"a", "b", "c", "d"}  ### SOLUTION

cu.check("03.3", flaws)

# %% [markdown]
# The duplicates are the worst flaw, because your training gets them, too. You'll fix such a dataset in notebook 05.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **03d** Tempting: 1 to 2. The answer is 2 or more, sometimes far more, because the first eight batches were ready
#   before the clock started.
#
# **Extra.** For a second hour: timing with 3.2, benchmarks with 3.3, tools with 3.4. In 3.3, the room disagrees about
# statement **f**. Without a step, the number is the rate of the loader, and that is what this benchmark measures. If
# somebody has their own training here, they put `keepfed watch` in front of its command and read the report to the
# others.

# %% [markdown]
# ## Tools, and what each of them does not see
#
# Three runs show *what* limits a loop, but to find out *where* in the code it loses time, you need a tool. Here's a
# dataset with a slow line, and a small model that really computes, on the CPU.

# %%
# %%worker_module slow_line
import torch
from torch.utils.data import Dataset


class SlowEvents(Dataset):
    """Events in which each pulse counts its neighbors within a microsecond."""

    def __init__(self, events):
        self.events = events

    def __len__(self):
        return 480

    def __getitem__(self, index):
        event = self.events[index]
        times = event["pulses"][:60, 0]
        near = [sum(abs(time - other) < 1000 for other in times) for time in times]
        event["pulses"][: len(near), 3] = torch.tensor(near)
        return event


# %% [markdown]
# ### torch.profiler
#
# This profiler runs inside the process and sees every operator and every kernel, and its `schedule` skips the first
# steps and the warm-up. You can open its file in [Perfetto](https://ui.perfetto.dev) and in our timeline.

# %%
from torch.profiler import profile, schedule

from course_utils.loading.events import NpzEvents
from course_utils.paths import scratch_folder
from keepfed.measure.exchange import load_profile

slow = SlowEvents(NpzEvents(folder))
slow_loader = DataLoader(Subset(slow, range(72)), 8, num_workers=2, collate_fn=pad_collate)
with profile(schedule=schedule(wait=2, warmup=1, active=6)) as profiler, cu.record() as trace:
    for batch in trace.batches(slow_loader):
        with cu.stage("compute"):
            train_step(batch)
        profiler.step()
profiler.export_chrome_trace(str(scratch_folder() / "profile.json"))

# %%
from keepfed.measure.picture import Timeline

Timeline({"torch.profiler": load_profile(scratch_folder() / "profile.json"), "our trace": trace})

# %% [markdown]
# The profiler shows *that* the main process waits, but not *why*, because workers are separate processes. Our trace
# shows them, because each worker sends its spans with the batch, but their rows are nearly empty here, because the slow
# line belongs to no stage. `with cu.stage("decode"):` around the line would mark it, as `cu.stage("compute")` does in
# the loop. Without that mark, the time from each batch to the next request counts, on CUDA the time of the GPU.

# %% [markdown]
# ### A whole training, unchanged
#
# You don't want to touch the code at all? In a terminal, put `keepfed watch` in front of your usual command: <!-- given
# -->
#
# ```bash
# keepfed watch python train.py --lr 0.1
# keepfed watch --lines torchrun --nproc-per-node 4 train.py
# ```
#
# It watches every `DataLoader` of every rank, including those of Lightning and of Hugging Face's Trainer, and doesn't
# change what the script computes. When the training ends, even with an error or with Ctrl-C, it prints what each loader
# cost and what to try first. In code, you need one call:

# %%
watched = cu.watch(slow_loader)
for batch in watched:
    train_step(batch)
watched

# %% [markdown]
# Two other tools watch whole trainings. TraceML (the package `traceml-ai`, here version 0.5.0 in November 2026)
# measures the time of input, forward and backward in the main process, and can compare runs.
# [HTA](https://hta.readthedocs.io) analyzes what torch.profiler recorded of a GPU. We ran public training scripts with
# TraceML and with `keepfed watch`, on two cores without a GPU, and both measured that torchvision's reference training
# waits for 58 % of the time, and Lightning's autoencoder for 38 %. <!-- given -->
#
# TraceML calls both "INPUT-BOUND". `keepfed watch` also names the cause, CPU time in the dataset, and recommends
# different changes for the two. But with two workers, both trainings became slower, because without a GPU the step
# needs the same cores.

# %% [markdown]
# ### From outside: py-spy, htop, iotop, pressure
#
# These tools look at processes that are already running, so you don't have to change the code. Let's point all four at
# the same running loader (`htop` and `iotop` are imitated):

# %%
import multiprocessing

import psutil

from course_utils.hardware.machine import pressure
from course_utils.stories.hot_lines import hot_lines

batches = iter(DataLoader(slow, 16, num_workers=2, prefetch_factor=10, collate_fn=pad_collate))
next(batches)  # the workers load 20 batches ahead, so they continue while we look
pids = [worker.pid for worker in multiprocessing.active_children()]
print(f"py-spy record --pid {pids[0]}\n{hot_lines(pids[0])}")
for process in map(psutil.Process, pids):
    print(f"htop: process {process.pid} keeps a core busy for {process.cpu_percent(0.3)} %")
    if hasattr(process, "io_counters"):  # not on macOS
        print(f"iotop: it has read and written {process.io_counters()}")
machine = pressure()
del batches

# %%
print(machine)

# %% [markdown]
# | | shows | does not show |
# |---|---|---|
# | py-spy | which lines take the time of a process's main thread, including waiting | whether a line computes or waits |
# | htop | which processes compute and which wait | what they compute, and what they wait for |
# | iotop | requested and fetched bytes of each process | the time of a read, and bytes read through a memory map |
#
# On Linux, [perf](https://perfwiki.github.io) looks deeper, into C code and the kernel: `perf top -p PID`.
#
# ### On many nodes: tracers of I/O
#
# [DFTracer](https://github.com/llnl/dftracer) records every read of every process of a job: file, offset, size and
# time. A decorator marks your own functions: <!-- given -->
#
# ```python
# from dftracer.python import dftracer, dft_fn
#
# log = dftracer.initialize_log(logfile="loader", data_dir="/path/of/my/data", process_id=-1)
#
# @dft_fn("loader").log
# def decode(sample): ...
# ```
#
# [Darshan](https://www.mcs.anl.gov/research/projects/darshan/), which many centers have installed, keeps counts and
# sizes for each file of a job, while [Recorder](https://github.com/uiuc-hpc/Recorder) keeps all calls with their
# arguments. [DLIO](https://github.com/argonne-lcf/dlio_benchmark) is a benchmark that reads as a training does, and
# sleeps while a GPU would compute. Here are recordings by DFTracer, of our loader and of DLIO:

# %%
from course_utils.paths import recording
from keepfed.measure.exchange import load_chrome

names = {"our loader": "dftracer_loader", "DLIO": "dlio_unet3d"}
Timeline({name: load_chrome(recording(f"{file}.trace.json.gz")) for name, file in names.items()})

# %% [markdown]
# ### Exercise 3.4 · 5 min · ●○○
#
# Which tool answers which question? For each question, choose one of `"torch.profiler"`, `"py-spy"`, `"top"` (or
# `"htop"`), `"iotop"`, `"pressure"` (the files in /proc/pressure) and `"DFTracer"`. You need each tool once.
#
# - `kernel`: which kernel takes most of the GPU's time?
# - `line`: the job has been running for hours. Which line of Python does worker 1 run?
# - `cores`: does each worker keep a core busy?
# - `bytes`: how many bytes per second does each process read from the disk?
# - `stall`: for what share of the time did a program on this machine wait for the disk?
# - `file`: which of 10,000 files do the 64 processes of the job read in pieces of 4 KiB? <!-- given -->

# %%
tool = {}
tool["kernel"] = "torch.profiler"  ### SOLUTION
tool["line"] = "py-spy"  ### SOLUTION
tool["cores"] = "top"  ### SOLUTION
tool["bytes"] = "iotop"  ### SOLUTION
tool["stall"] = "pressure"  ### SOLUTION
tool["file"] = "DFTracer"  ### SOLUTION

cu.check("03.4", tool)
