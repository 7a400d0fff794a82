# %% [markdown]
# # 03 · Measure before you touch
#
# **You will do:** find out why a training loop waits, without changing a line of it; then do it
# six times, blind.
#
# **You will learn**
#
# - how much a better loader could gain at most, before you write one,
# - why a stopwatch blames the wrong line of a GPU program,
# - the three runs that tell what limits a loop: loader alone, step alone, both together,
# - to do the same with your own code.
#
# **You need:** notebook 02. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("03")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *4 min* **How much is there to gain?** Prediction 03a before the cached batch; headroom is the
#   word to keep.
# - *4 min* **Where does the time go?** Predictions 03b and 03c, one after the other, in silence.
# - *5 min* **Three runs.** Fill in the three boxes on the board; show that the same function works on
#   plain PyTorch.
# - *20 min* **The blind clinic.** In pairs: one asks for a probe, the other has to say *before* what
#   each cause would show. Collect the numbers of probes on the board; the best story is never the
#   fewest, but the probe that surprised somebody. `course demo clinic` has four patients for the wall.
# - *2 min* **Let the machine do it.** `cu.diagnose` runs for eighteen seconds: start it before you
#   talk.
#
# **Board.** Three boxes: *loader alone*, *step alone*, *together*. Below each a rate, filled in as
# the notebook goes. Leave it there: the clinic is read off it.
#
# **Goes wrong.**
#
# - Somebody changes things before measuring. Ask: which of the three boxes do you expect to change,
#   and by how much?
# - Time is short. Give the clinic three loops for each half of the room.

# %% [markdown]
# ## How much is there to gain?
#
# Here are two loops with the same events and the same emulated GPU. One reads from a busy cluster file system, the
# other from a laptop SSD; neither has workers. Which one deserves a better loader?

# %%
import time

from torch.utils.data import DataLoader, Subset

from course_utils.loading.events import MemmapEvents, pad_collate

folder = cu.data_path("events", "S")  # the small set: 2,000 events
gpu = cu.get_accelerator(step_ms=40)


def loader_on(storage: str, num_workers: int = 0) -> DataLoader:
    events = MemmapEvents(folder, fs=cu.slow_storage(folder, storage, cache_mb=0))
    some = Subset(events, range(0, 2000, 4 if num_workers else 8))  # workers get through more
    return DataLoader(some, 16, shuffle=True, num_workers=num_workers, collate_fn=pad_collate)


# %%
def per_second(batches, step, skip=5) -> float:
    """Return the batches per second of a loop, without the first ones, which were prefetched."""
    ends = []
    for batch in batches:
        step(batch)
        ends.append(time.perf_counter())
    ends = ends[skip:]
    return (len(ends) - 1) / (ends[-1] - ends[0])


def step(batch):
    gpu.step(gpu.upload(batch)).item()  # item() waits until the step is done


# %%
trained = {}
for storage in "busy Lustre", "laptop SSD":
    trained[storage] = per_second(loader_on(storage), step)
    print(f"{storage}: {trained[storage]:.1f} steps/s")

# %%
cu.predict(
    "03a",
    "How many times faster would the loop on the laptop SSD be with a loader that takes no time?",
    unit="times",
)

# %% [markdown]
# You need not build that loader to know. Load **one batch once and replay it**: no loader is faster. What you
# get is the step alone. Its ratio to what you have now is the **headroom**: nothing you do to the
# loader can gain more.

# %%
cached = next(iter(loader_on("laptop SSD")))
alone = per_second([cached] * 30, step)
headroom = {storage: alone / rate for storage, rate in trained.items()}
print({storage: f"{factor:.2f} times faster at most" for storage, factor in headroom.items()})

# %%
cu.reveal("03a", headroom["laptop SSD"])

# %% [markdown]
# The loop on the SSD is **GPU-bound: leave it alone**. Perhaps the model can be made faster; no loader, worker or
# file format will help. (Replay *several* cached batches if yours differ much in size.)

# %% [markdown]
# ## Where does the time go?
#
# The obvious way to find out is a stopwatch around each line. Here are three lines of a training loop, timed twice:
# as they stand, and without the line that reads the loss.

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
from course_stories.figures import Bars

with_item = stopwatch(cached, read_loss=True)
Bars("item() in every step", with_item, "ms")

# %%
cu.reveal("03b", with_item["step"])

# %%
without_item = stopwatch(cached, read_loss=False)
Bars("no item()", without_item, "ms")

# %%
slowest = max(without_item, key=without_item.get)
cu.reveal("03c", {"upload": "gpu.upload(batch)"}.get(slowest, slowest))

# %% [markdown]
# `gpu.step` only *hands over* the work and returns: CUDA is asynchronous. The time of the GPU lands on the
# next line that has to **wait** for it. That is `item()`; without it, it is the copy to the device, which
# queues behind the kernels. Then the stopwatch says "nearly all the time goes into moving data", and somebody
# buys faster disks. So whoever times a GPU has to wait for it, with `torch.cuda.synchronize()` before each
# reading of the clock: once around many steps, not in every step.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **03a** 2 or more is tempting, because the loop has no workers. It is hardly above 1: the GPU is
#   the limit.
# - **03b** Those who have never profiled CUDA say 40. It is next to nothing.
# - **03c** "It is gone" is tempting; ask where 40 ms of work could go. The copy gets it.

# %% [markdown]
# ## Three runs
#
# Three rates tell what limits a loop, whatever is inside it: **the loader alone**, whose batches nobody uses; **the
# step alone**, on a cached batch; **both together**. Here with two workers:

# %%
loader = loader_on("busy Lustre", num_workers=2)
runs = {
    "loader alone": per_second(loader, lambda batch: None),
    "step alone": per_second([cached] * 30, step),
    "together": per_second(loader, step),
}
Bars("batches per second", runs, "/s")

# %% [markdown]
# | together is close to | the limit is |
# |---|---|
# | the loader alone | the loader |
# | the step alone | the step; no loader helps |
# | neither, well below both | they do not overlap, or they compete for the same cores |
#
# **If it is the loader**, look at its workers while the loop runs. If they sleep, they wait for the storage. If each
# keeps a core busy, they decode or transform. If each gets half a core while other cores are free, they
# share one. And look at single batches, not only at the mean: since batches are delivered in order, one giant sample
# holds up all.
#
# **If it is the step**, ask whether the GPU computes during the replay. If it does, it is the limit. If not, the
# loop itself is in the way: Python, logging, an `item()` after every kernel. (Ask a trace or a profiler. `nvidia-smi`
# cannot tell, as you saw in notebook 02.)
#
# ### The same with your own code
#
# `per_second` is all you need. Here is a step in plain PyTorch, on the CPU, with everything that yours has:

# %%
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.AdamW(model.parameters())


def train_step(batch):
    optimizer.zero_grad()  # without it, the gradients of all steps add up
    loss = model(batch["pulses"]).square().mean()  # your loss; on a GPU: batch["pulses"].to("cuda")
    loss.backward()
    optimizer.step()
    return loss.item()  # on a GPU this waits until the step is done


print(f"loader alone {per_second(loader, lambda batch: None):5.1f} /s")
print(f"step alone   {per_second([cached] * 30, train_step):5.1f} /s")
print(f"together     {per_second(loader, train_step):5.1f} /s")

# %% [markdown]
# Copy `per_second` into your training script, and read its rates with the table above. What limits this loop?

# %% [markdown]
# ## The blind clinic
#
# ### Exercise 3.1 · 20 min · ●●●
#
# Here are six training loops with two workers each. All make about 12 steps per second, and all their owners
# say: "my loader is slow". Each has one of six causes, and each cause occurs once; which is which was drawn
# for you alone. <!-- given -->
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
# Name all six, with **few probes**: an expert needs 13. A probe used twice on the same loop counts once. If a
# probe says that the machine was busy, use it again. <!-- given -->
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
from course_stories.clinic import admit

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
# Write one probe into this cell, run it, then write the next; add cells as you like. (A cell shows its last
# line only.)

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

cu.check("03.1", clinic, causes)

# %%
clinic

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Goes wrong.**
#
# - In the clinic half a core is taken for "waits for the storage". Look at the number of cores in the
#   same line.
# - "sync" is taken for the GPU, because the replay is slow. Ask whether the GPU is busy in that
#   replay.

# %% [markdown]
# ## Let the machine do it
#
# `cu.diagnose(loader, step)` makes the same three runs with any loop of yours and looks at the workers meanwhile. What
# can be changed without writing code, such as the number of workers, it tries before it advises it; with `prove=True` it
# also runs the loop with and without the change, in turns. Let it judge the loop on *busy Lustre*, in about 20 seconds:
# <!-- given -->

# %%
cu.diagnose(loader, step, seconds=18, synchronize=gpu.synchronize)

# %% [markdown]
# Once you have answered exercise 3.1, ask the machine for a second opinion on one of the six. Do you agree?

# %%
which = ""  # one of the letters
clinic.second_opinion(which)

# %% [markdown]
# ## You now can
#
# - say how much a better loader could gain at most, and leave a loop alone that has nothing to gain,
# - distrust a stopwatch around a line that hands work to a GPU,
# - find the cause with three runs and two looks at the workers, or with `cu.diagnose`,
# - do all that with a training script of your own.
#
# [The checklist](../docs/checklist.md) holds the whole course on one page, from the symptom to the notebook that
# cures it: print it. The next notebook opens the loader: what a worker is, and how many of them are right.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs what follows, and each section only the core.
#
# ## Time a step
#
# Where does `gpu.synchronize()` belong? One in every step would change what you measure: the host could no
# longer prepare the next step while the device works.

# %% [markdown]
# ### Exercise 3.2 · 10 min · ●●○
#
# Time a step as it is in a long run. `step()` launches one and returns its loss at once; the very first one takes
# 40 times as long. The check brings a device, steps of its own, and a clock. Your result has to be right to within
# 12 %, for steps that the GPU limits and for one that the host limits. <!-- given -->
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


cu.check("03.2", ms_per_step)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Goes wrong.**
#
# - In 3.2 the usual first attempt waits in every step. Draw it: host and device then take turns. It
#   is right only if the loop itself reads the loss in every step.

# %% [markdown]
# ## Benchmarks that lie
#
# **A full queue.** One loader, timed once, gives three answers. Before the first batch is counted, there is a
# warm-up: somebody trains one step, which takes a second. <!-- given -->

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
Bars("batches per second", answers, "/s")

# %%
cu.reveal("03d", answers["the next 8"] / answers["the last 20"])

# %% [markdown]
# While the warm-up ran, the workers loaded on: two workers, four batches each. Eight batches then came
# out of a full queue. Whoever counts the start of the workers errs in the other direction. So leave out the first
# `num_workers × prefetch_factor + 1` batches. `steady_rate` in `keepfed.measure.diagnosis` does so, and names
# the start-up separately.
#
# **Warm and cold.** The second run of a benchmark finds its file in the page cache. `drop_cache` makes files cold
# again, without special rights, and says so where the system offers no way. And one run says nothing: repeat it,
# and give the median and the spread.

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
# supercomputing centre, printed 40.8 images per second with one worker and 506.9 with two. How can a second worker be
# worth twelve? Here is our version, on an emulated object store behind a cache:

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
    start = time.perf_counter()
    served = [event for batch in loader for event in batch["event_id"].tolist()]
    seconds = time.perf_counter() - start
    rate = len(served) / seconds
    print(f"{num_workers} workers: {rate:6,.0f} events/s ({len(served):,} in {seconds:.1f} s)")
    return served


behind_a_cache = MemmapEvents(folder, fs=cu.slow_storage(folder, "S3", cache_mb=100))
served = [benchmark(behind_a_cache, num_workers) for num_workers in (0, 2)]

# %%
# how fast workers start changes the rates above, and nothing of this
print("distinct:", [len(set(events)) for events in served])

# %% [markdown]
# ### Exercise 3.3 · 10 min · ●●○
#
# Which of these statements name a **flaw** of `benchmark`, or of the way it is called? Give their letters, as in
# `{"a", "h"}`.
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
# The duplicates are the worst of them: they are in your training, too. You will mend such a dataset in notebook 05.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **03d** 1 to 2 is tempting. It is 2 and more, sometimes far more: the first eight batches were
#   ready before the clock started.
#
# **Extra.** For a second hour: timing with 3.2, benchmarks with 3.3, tools with 3.4. In 3.3 statement
# **f** divides the room: without a step the number is the loader's, which is what the title promises.
# Whoever has a training of their own here puts `course watch` in front of its command, and reads the
# report to the others.

# %% [markdown]
# ## Tools, and what each is blind to
#
# Three runs tell *what* limits a loop. *Where* in the code it loses its time is a question for a tool. Here is a
# dataset with a slow line, and a small model that really computes, on the CPU.

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
# The profiler knows *that* the main process waits, and not *why*: workers are other processes. Our trace shows them,
# because each worker sends its spans along with the batch. Here their rows are nearly empty, since the slow line
# belongs to no stage. `with cu.stage("decode"):` around it would mark one, as it does here in the loop.

# %% [markdown]
# ### A whole training, unchanged
#
# In a terminal, put `course watch` in front of the command that you use anyway: <!-- given -->
#
# ```bash
# course watch python train.py --lr 0.1
# course watch --live torchrun --nproc-per-node 4 train.py
# ```
#
# It watches every `DataLoader` of every rank, also those of Lightning and of Hugging Face's Trainer, and changes nothing
# that the script computes. When the training ends, also by an error or by Ctrl-C, it says what each loader cost and what
# to try first. In code it is one word:

# %%
watched = cu.watch(slow_loader)
for batch in watched:
    train_step(batch)
watched

# %% [markdown]
# Two other tools watch whole trainings. TraceML (the package `traceml-ai`) times input, forward and backward in the main
# process. [HTA](https://hta.readthedocs.io) reads what torch.profiler recorded of a GPU. We gave public scripts to
# each of them, on two cores without a GPU. HTA, tried on three of them, found nothing to read there. The others said: <!-- given -->
#
# | Training | TraceML | `course watch` |
# |---|---|---|
# | nanoGPT: batches from a function | "INSUFFICIENT STEP-TIME DATA" | no `DataLoader` gave a batch; where to write `watch` |
# | torchvision's reference, no workers | "INPUT-BOUND": "Increase workers, prefetch, or storage throughput" | CPU in the dataset: compute it ahead of training, or take more cores |
# | Lightning's autoencoder | "INPUT-BOUND", with the same advice | CPU in the dataset: read a batch by one access |
# | Hugging Face's `run_clm.py` | "RESIDUAL-HEAVY" | leave the loaders alone |
#
# (Into the first two scripts TraceML's own lines had to be written. "Residual" is what is left of a step when
# all that it times is taken away.) Both agree on how long these loops wait: 58 % of the time in torchvision's, 38 % in
# Lightning's. Two workers, tried here, made both slower: without a GPU the step computes too, and shares the cores with them.

# %% [markdown]
# ### From outside: py-spy, htop, iotop, pressure
#
# These look at processes that run already, and need no change of the code. Here are all four, looking at the same
# running loader (`htop` and `iotop` are imitated):

# %%
from course_stories.process_tools import cpu_use, disk_use, hot_lines, worker_pids
from course_utils.hardware.machine import pressure

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
# On Linux [perf](https://perfwiki.github.io) looks deeper, into C code and the kernel: `perf top -p PID`.
#
# ### On many nodes: tracers of I/O
#
# [DFTracer](https://github.com/llnl/dftracer) notes every read of every process of a job: file, offset, size, time.
# You mark functions of your own with a decorator: <!-- given -->
#
# ```python
# from dftracer.python import dftracer, dft_fn
#
# log = dftracer.initialize_log(
#     logfile="loader", data_dir="/path/of/my/data", process_id=-1
# )
#
# @dft_fn("loader").log
# def decode(sample): ...
# ```
#
# [Darshan](https://www.mcs.anl.gov/research/projects/darshan/), installed in many centres, keeps counts and sizes for
# each file of a job instead, and [Recorder](https://github.com/uiuc-hpc/Recorder) all calls with their arguments.
# [DLIO](https://github.com/argonne-lcf/dlio_benchmark) is a benchmark that reads like a training does, and sleeps where
# a GPU would compute. Here are recordings by DFTracer, of our loader and of DLIO:

# %%
from course_stories.dftracer import load_dftracer
from course_utils.paths import recording

names = {"our loader": "dftracer_loader.pfw.gz", "DLIO": "dlio_unet3d.pfw.gz"}
Timeline({name: load_dftracer(recording(file)) for name, file in names.items()})

# %% [markdown]
# ### Exercise 3.4 · 5 min · ●○○
#
# Which tool answers which question? For each, choose one of `"torch.profiler"`, `"py-spy"`, `"top"` (or `"htop"`),
# `"iotop"`, `"pressure"` (the files in /proc/pressure) and `"DFTracer"`. Each is needed once.
#
# - `kernel`: which kernel takes most of the GPU's time?
# - `line`: the job has been running for hours. In which line of Python is worker 1?
# - `cores`: does each worker keep a core busy?
# - `bytes`: how many bytes per second does each process read from the disk?
# - `stall`: for what share of the time did something on this machine wait for the disk?
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
