# %% [markdown]
# # 03 · Measure before you touch
#
# **You will do:** find out why a training loop waits, without changing a line of it; then do it
# six times, blind.
#
# **You will learn**
#
# - how much a better loader could gain at most, before you write one,
# - to time a device that answers before it has finished,
# - the differential test: loader alone, step alone, both together,
# - which benchmarks lie, and which tool is blind to what.
#
# **You need:** notebook 02. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("03")

# %% [markdown] tags=["instructor"]
# **Instructor: plan.** Headspace (5), asynchronous timing with 3.1 (9), differential test (5), clinic
# (10), `cu.diagnose` (2), benchmark with 3.3 (9), tools with 3.4 (10). Short of time: leave out the
# tools, and give the clinic three loops for each half of the room.
#
# **Board.** Three boxes: *loader alone*, *step alone*, *together*. Below each a rate, filled in as the
# notebook goes. Leave it there: the clinic is read off it.
#
# **What goes wrong.** Somebody changes things before measuring. Ask: which of the three boxes do you
# expect to change, and by how much?

# %% [markdown]
# ## How much is there to gain?
#
# Two loops, the same events, the same emulated GPU. One reads from a busy cluster file system, the other
# from a laptop SSD. Both have a plain loader without workers. Which one deserves a better loader?

# %%
import time

from torch.utils.data import DataLoader, Subset

from course_utils.loading.events import MemmapEvents, pad_collate

folder = cu.data_path("events", "S")  # the small set: 2,000 events
gpu = cu.get_accelerator(step_ms=40)
clock = time.perf_counter


def events_on(storage: str) -> MemmapEvents:
    return MemmapEvents(folder, fs=cu.slow_storage(folder, storage, cache_mb=0))


# %%
def steps_per_s(batches) -> float:
    """Train on all batches and return the steps per second, without the first one."""
    ends = []
    for batch in batches:
        gpu.step(gpu.upload(batch)).item()  # item() waits until the step is done
        ends.append(clock())
    return (len(ends) - 1) / (ends[-1] - ends[0])


# %%
loaders, trained = {}, {}
for storage in "busy Lustre", "laptop SSD":
    events = Subset(events_on(storage), range(0, 2000, 8))
    loaders[storage] = DataLoader(events, 16, shuffle=True, collate_fn=pad_collate)
    trained[storage] = steps_per_s(loaders[storage])
    print(f"{storage}: {trained[storage]:.1f} steps/s")

# %%
cu.predict(
    "03a",
    "How many times faster would the loop on the laptop SSD be with a loader that takes no time?",
    unit="times",
)

# %% [markdown]
# You need not build that loader to know. Load **one batch once and replay it**: no loader is faster. What you
# get is the step alone. Its ratio to what you have now is the **headspace**: nothing you do to the
# loader can gain more.

# %%
headspace = {}
for storage, loader in loaders.items():
    cached = next(iter(loader))
    headspace[storage] = steps_per_s([cached] * 25) / trained[storage]
    print(f"{storage}: {headspace[storage]:.2f} times faster at most")

# %%
cu.reveal("03a", headspace["laptop SSD"])

# %% [markdown]
# The loop on the SSD is **GPU-bound: leave it alone**. Perhaps the model can be made faster; no loader, worker or
# file format will help. (Replay *several* cached batches if yours differ much in size.)

# %% [markdown]
# ## Where does the time go?
#
# The obvious way: a stopwatch around each line. Three lines of a training loop, twice: as it stands, and
# without the line that reads the loss.

# %%
import numpy as np


def stopwatch(batch, read_loss: bool, steps=30) -> dict[str, float]:
    """Return the milliseconds per step of each line."""
    spent = np.zeros(3)
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
import matplotlib.pyplot as plt

plt.style.use("course_utils.plots")  # readable on light and on dark pages
watched = {
    "item() in every step": stopwatch(cached, read_loss=True),
    "no item()": stopwatch(cached, read_loss=False),
}
figure, panels = plt.subplots(1, 2, figsize=(8, 1.8), sharex=True, layout="constrained")
for panel, (name, spent) in zip(panels, watched.items(), strict=True):
    panel.barh(list(spent), list(spent.values()), color="#3d85c6")
    panel.set(title=name, xlabel="ms per step")
    panel.invert_yaxis()
plt.close()
figure

# %%
cu.reveal("03b", watched["item() in every step"]["step"])

# %%
slowest = max(watched["no item()"], key=watched["no item()"].get)
cu.reveal("03c", {"upload": "gpu.upload(batch)"}.get(slowest, slowest))

# %% [markdown]
# `gpu.step` only *hands over* the work and returns: CUDA is asynchronous. The time of the GPU lands on the
# next line that has to **wait** for it. That is `item()`; without it, it is the copy to the device, which
# queues behind the kernels. Then the stopwatch says "90 % of the time goes into loading", and somebody
# buys faster disks. <!-- given -->
#
# A timing of a device needs a wait of its own: `gpu.synchronize()`, on CUDA `torch.cuda.synchronize()`. But
# where? One in every step would change what you measure: the host could no longer prepare the next step
# while the device works.

# %% [markdown]
# ### Exercise 3.1 · 5 min · ●●○
#
# Time a step as it is in a long run. `step()` launches one and returns its loss at once; the very first one takes
# 40 times as long. The check brings a device, steps of its own, and a clock. Target: within 12 % for
# steps that the GPU limits, and for one that the host limits. <!-- given -->
#
# <details><summary>Hint 1</summary>
#
# How often do you have to wait? Fewer times than you think: once before each reading of the clock.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Warm up, wait, read the clock, launch many, wait, read the clock.
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


cu.check("03.1", ms_per_step)

# %% [markdown] tags=["instructor"]
# **Instructor.** 03a: most say 2 or more, because the loop has no workers. 03b: those who have never
# profiled CUDA say 40. For 03c "it is gone" is the common answer; ask where 40 ms of work could go.
#
# In 3.1 the usual first attempt waits in every step. Draw it: host and device then take turns. It is
# right only if the loop itself reads the loss in every step.

# %% [markdown]
# ## The differential test
#
# Three numbers tell what limits a loop, whatever is inside it:
#
# 1. **the loader alone**: fetch batches, do nothing with them;
# 2. **the step alone**: replay a cached batch;
# 3. **both together**.
#
# Here with two workers. `steady_rate` fetches batches and leaves out the first ones; why, you will see
# below.

# %%
from course_utils.measure.diagnosis import steady_rate

loader = DataLoader(
    Subset(events_on("busy Lustre"), range(0, 2000, 4)),
    batch_size=16,
    shuffle=True,
    num_workers=2,
    collate_fn=pad_collate,
)
rates = {
    "loader alone": steady_rate(loader, seconds=2).batches_per_s,
    "step alone": steps_per_s([cached] * 25),
    "together": steps_per_s(loader),
}

# %%
figure, panel = plt.subplots(figsize=(7, 1.6), layout="constrained")
panel.barh(list(rates), list(rates.values()), color="#3d85c6")
panel.set(xlabel="batches per second")
panel.invert_yaxis()
plt.close()
figure

# %% [markdown]
# | together is close to | the limit is |
# |---|---|
# | the loader alone | the loader |
# | the step alone | the step; no loader helps |
# | neither, well below both | they do not overlap, or they compete for the same cores |
#
# **If it is the loader**, look at its workers while the loop runs. Asleep: they wait for the storage. Busy on a whole core
# each: decoding or transforming. Half a core each while other cores are free: they share one. And look
# at single batches, not only at the mean: batches are delivered in order, so one giant sample holds up all.
#
# **If it is the step**, ask whether the GPU is busy during the replay. If so, it is at work. If not, the
# loop itself is in the way: Python, logging, an `item()` after every kernel.

# %% [markdown]
# ### Exercise 3.2 · 8 min · ●●●
#
# **The blind clinic.** Six training loops, two workers each. All make about 12 steps per second, and their
# owners all say: "my loader is slow". Each has one of six causes, each cause occurs once; which is
# which was drawn for you alone. <!-- given -->
#
# | cause | in words |
# |---|---|
# | `"storage"` | the workers wait for the storage |
# | `"cpu"` | the workers compute all the time |
# | `"giant sample"` | now and then one sample takes very long |
# | `"one core"` | all workers are bound to the same core |
# | `"sync"` | the step waits for the device again and again |
# | `"gpu"` | the GPU is the limit: leave it alone |
#
# Name all six, with **few probes**: an expert needs 13. A probe used twice on the same loop counts once.
# <!-- given -->
#
# | probe | tells |
# |---|---|
# | `A.step_alone()` | steps/s and GPU busy on a cached batch |
# | `A.loader_alone()` | batches/s |
# | `A.together()` | steps/s and GPU busy |
# | `A.workers_cpu()` | the shares of its time that each worker computes and sleeps, and on how many cores it may run |
# | `A.batch_times()` | the time of a batch: fastest, median, slowest |
# | `A.timeline()` | the picture; the owners marked no stages, so all of a worker's work is called *read* |
#
# <details><summary>Hint 1</summary>
#
# One probe splits six loops into two and four. Which one tells whether the loader matters at all?
#
# </details>
# <details><summary>Hint 2</summary>
#
# First `step_alone` for all. Two are no faster alone; the GPU's busy share tells them apart. For the other
# four `workers_cpu` and, where you are in doubt, `batch_times`. A worker that neither computes nor sleeps
# waits for a core.
#
# </details>

# %%
from notebooks.stories.clinic import admit

clinic = admit()
A, B, C, D, E, F = clinic


# %% tags=["solution"]
def examine(loop) -> str:
    """Ask only what still decides something."""
    step = loop.step_alone()
    if step.steps_per_s < 20:  # hardly faster than with the loader
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
# Your probes go into this cell, one after the other; add cells as you like.

# %%
A.step_alone()

# %%
causes = {}
causes["A"] = found["A"]  ### SOLUTION
causes["B"] = found["B"]  ### SOLUTION
causes["C"] = found["C"]  ### SOLUTION
causes["D"] = found["D"]  ### SOLUTION
causes["E"] = found["E"]  ### SOLUTION
causes["F"] = found["F"]  ### SOLUTION

cu.check("03.2", clinic, causes)

# %%
clinic

# %% [markdown]
# ### Let the machine do it
#
# `cu.diagnose(loader, step)` makes the same three runs on any loop of yours, and gathers the evidence. Ask it
# about the loop above, and, once you have answered, about one of the six. Do you agree?


# %%
def step(batch):
    gpu.step(gpu.upload(batch)).item()


cu.diagnose(loader, step, seconds=18, synchronize=gpu.synchronize)

# %%
which = ""  # one of the letters
clinic.second_opinion(which)

# %% [markdown] tags=["instructor"]
# **Instructor.** The clinic works in pairs: one asks for a probe, the other has to say *before* what each
# cause would show. Collect the numbers of probes on the board; the best story is never the fewest, but
# the probe that surprised somebody. Common slips: half a core taken for "waits for the storage", and
# "sync" taken for the GPU, because the replay is slow.

# %% [markdown]
# ## Benchmarks that lie
#
# One pipeline, four answers. The loader is timed alone, once; but as everybody does, somebody warms up with one
# step before. It takes a second.

# %%
short = Subset(events_on("busy Lustre"), range(0, 2000, 5))
small = DataLoader(
    short, batch_size=8, shuffle=True, num_workers=2, prefetch_factor=4, collate_fn=pad_collate
)
start, times = clock(), []
for batch in small:
    if not times:
        gpu.step(gpu.upload(batch), ms=1000).item()
    times.append(clock())
answers = {
    "the first 8 after the warm-up": 8 / (times[8] - times[0]),
    "all, from the start": len(times) / (times[-1] - start),
    "all but the first": (len(times) - 1) / (times[-1] - times[0]),
    "the last 20": 20 / (times[-1] - times[-21]),
}

# %%
cu.predict(
    "03d",
    "By what factor is the first answer (8 batches) above the last one (the last 20)?",
    unit="times",
)

# %%
figure, panel = plt.subplots(figsize=(7, 1.8), layout="constrained")
panel.barh(list(answers), list(answers.values()), color="#3d85c6")
panel.set(xlabel="batches per second")
panel.invert_yaxis()
plt.close()
figure

# %%
cu.reveal("03d", answers["the first 8 after the warm-up"] / answers["the last 20"])

# %% [markdown]
# While the warm-up ran, the workers loaded on: two workers, four batches each. Eight batches then came
# out of a full queue. Counting the start of the workers errs the other way round. `steady_rate` drops the first
# `num_workers × prefetch_factor + 1` batches, and names the start-up separately.

# %% [markdown]
# **Warm and cold.** The second run of a benchmark finds its file in the page cache. `drop_cache` makes files cold
# again, without special rights, and says so where the system cannot be asked.

# %%
from course_utils.hardware.machine import drop_cache

files = sorted((folder / "npz").rglob("*.npz"))
print(drop_cache(folder / "npz"))
for run in "first", "second", "third":
    start = clock()
    megabytes = sum(len(file.read_bytes()) for file in files) / 1e6
    print(f"{run} run: {megabytes / (clock() - start):6.1f} MB/s")

# %% [markdown]
# **One run.** Batches picked out of a tensor in memory, ten times with one thread and ten times with two. Would
# you have believed the first pair?

# %%
import torch

table = torch.randn(30_000, 64)
found = {}
for threads in (1, 2):
    torch.set_num_threads(threads)
    found[threads] = []
    for _ in range(10):
        start = clock()
        for rows in torch.randperm(len(table)).split(512):
            table[rows]
        found[threads].append(len(table) / (clock() - start))
torch.set_num_threads(1)

# %%
figure, panel = plt.subplots(figsize=(7, 1.6), layout="constrained")
for threads, rate in found.items():
    panel.plot(rate, [threads] * 10, "o", alpha=0.6)
panel.set(xlabel="rows per second", xscale="log", yticks=[1, 2], ylabel="threads", ylim=(0.5, 2.5))
plt.close()
figure

# %% [markdown]
# Waking a second thread can cost more than the work of a small batch. So fix `torch.set_num_threads(1)` in such
# benchmarks (`cu.ready` did it for you), repeat, and print median and spread.
#
# **Count what was served.** A hands-on of a supercomputing centre printed 40.8 images per second with one worker and
# 506.9 with two. Nobody asked how a second worker can be worth twelve. Our version, on an
# emulated object store behind a cache:

# %%
# %%worker_module whole_file
from torch.utils.data import IterableDataset


class WholeFile(IterableDataset):
    """All events, one after the other."""

    def __init__(self, events):
        self.events = events

    def __iter__(self):
        for index in range(600):
            yield self.events[index]


# %%
def benchmark(events, num_workers: int) -> list[int]:
    whole = WholeFile(events)
    loader = DataLoader(whole, batch_size=16, num_workers=num_workers, collate_fn=pad_collate)
    start = clock()
    served = [event for batch in loader for event in batch["event_id"].tolist()]
    seconds = clock() - start
    rate = len(served) / seconds
    print(f"{num_workers} workers: {rate:6,.0f} events/s ({len(served):,} in {seconds:.1f} s)")
    return served


behind_a_cache = MemmapEvents(folder, fs=cu.slow_storage(folder, "S3", cache_mb=100))
served = [benchmark(behind_a_cache, num_workers) for num_workers in (0, 2)]

# %%
print("distinct:", [len(set(events)) for events in served])

# %% [markdown]
# ### Exercise 3.3 · 4 min · ●●○
#
# Which of these statements about `benchmark`, and the way it is called, name a **flaw**? Give their letters,
# as in `{"a", "h"}`.
#
# - **a** Every worker walks over the whole file: events are served twice.
# - **b** The runs share a page cache; only the first one finds it cold.
# - **c** The start of the workers is counted as loading.
# - **d** One run each, always in the same order.
# - **e** `gpu.synchronize()` is missing before the clock is read.
# - **f** There is no training step in the loop.
# - **g** The batches that were prefetched before the clock started are counted.
# - **h** `time.perf_counter` is the wrong clock; `time.time` would be right.
#
# <details><summary>Hint</summary>
#
# Ask of each one: is it true at all? And would the printed number change if it were mended?
#
# </details>

# %%
flaws = {"a", "b", "c", "d"}  ### SOLUTION

cu.check("03.3", flaws)

# %% [markdown]
# The duplicates are the worst of them: they are in your training, too. The public dataset class of a
# neutrino project serves 960, 1,920 and 3,840 events with 1, 2 and 4 workers. Of the 3,840 only 1,015 are
# distinct. You will mend such a class in notebook 05.

# %% [markdown] tags=["instructor"]
# **Instructor.** For 03d most say 1 to 2. In the picture of the two threads the order of the dots says more than
# their place: ask for the ratio of two dots chosen at random. Where cores are plenty and idle, the
# second thread may even help; the spread stays. In 3.3 statement **f** divides the room: without a step the
# number is the loader's, which is what the title promises.

# %% [markdown]
# ## Tools, and what each is blind to
#
# The test tells *what* limits a loop. *Where* in the code is a question for a tool. Here is a dataset with a slow
# line, and a small model that really computes, on the CPU.

# %%
# %%worker_module slow_line
import torch
from torch.utils.data import Dataset


class SlowEvents(Dataset):
    """Events in which each pulse knows how many others came within a microsecond."""

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
# It sits inside the process and sees every operator and every kernel. Its `schedule` skips the first steps
# and the warm-up. The file opens in [Perfetto](https://ui.perfetto.dev), and in our timeline.

# %%
from torch.profiler import profile, schedule

from course_utils.loading.events import NpzEvents
from course_utils.measure.exchange import load_profile
from course_utils.paths import scratch_folder

slow = SlowEvents(NpzEvents(folder))
loader = DataLoader(Subset(slow, range(144)), 16, num_workers=2, collate_fn=pad_collate)
model = torch.nn.Sequential(torch.nn.Linear(4, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
with profile(schedule=schedule(wait=2, warmup=1, active=6)) as profiler, cu.record() as trace:
    for batch in trace.batches(loader):
        with cu.stage("compute"):
            model(batch["pulses"]).mean().backward()
        profiler.step()
profiler.export_chrome_trace(str(scratch_folder() / "profile.json"))

# %%
from course_utils.measure.picture import Timeline

Timeline({"torch.profiler": load_profile(scratch_folder() / "profile.json"), "our trace": trace})

# %% [markdown]
# No GPU takes part: for GPU, read *main process*. The profiler knows *that* it waits, and not *why*: workers are
# other processes. Our trace shows them: each sends its spans with the batch.

# %% [markdown]
# ### From outside: py-spy, htop, iotop, pressure
#
# These need no change of the code, and look at processes that run already. All four at one running loader:

# %%
from course_utils.hardware.machine import pressure
from course_utils.teaching.notebook import cpu_use, disk_use, hot_lines, worker_pids

batches = iter(DataLoader(slow, 16, num_workers=2, prefetch_factor=10, collate_fn=pad_collate))
next(batches)  # with 20 batches ahead, the workers go on while we look
lines = hot_lines(worker_pids()[0], seconds=0.5)
cores, disk, machine = cpu_use(seconds=0.5), disk_use(seconds=0.5), pressure()
del batches

# %%
lines

# %%
cores

# %%
disk

# %%
machine

# %% [markdown]
# ### On many nodes: DFTracer and DLIO
#
# DFTracer notes every read of every process of a job: file, offset, size, time. DLIO is a benchmark that reads
# like a training does and pauses where a GPU would compute. Recorded traces of both:

# %%
from course_utils.measure.exchange import load_dftracer
from course_utils.paths import recording

names = {"our loader": "dftracer_loader.pfw.gz", "DLIO": "dlio_unet3d.pfw.gz"}
Timeline({name: load_dftracer(recording(file)) for name, file in names.items()})

# %% [markdown]
# ### Exercise 3.4 · 3 min · ●○○
#
# Which tool answers which question? Choose for each one of `"torch.profiler"`, `"py-spy"`, `"top"` (or htop),
# `"iotop"`, `"pressure"` (the files in /proc/pressure), `"DFTracer"`; each is needed once.
#
# - `kernel`: which kernel takes most of the GPU's time?
# - `line`: the job runs for hours already. In which line of Python is worker 1?
# - `cores`: does each worker keep a core busy?
# - `bytes`: how many bytes per second does each process read from the disk?
# - `stall`: for which share of the time did something on this machine wait for the disk?
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

# %% [markdown]
# ## You now can
#
# - say how much a better loader could gain at most, and leave a loop alone that has nothing to gain,
# - time a device that works asynchronously,
# - find the cause with three runs and two looks at the workers, or with `cu.diagnose`,
# - take a benchmark apart: burst, start-up, cache, spread, duplicates,
# - choose the tool by the question.
#
# The next notebook opens the loader: what a worker is, and how many of them are right.
