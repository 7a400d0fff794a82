# %% [markdown]
# # 04 · Use workers and prefetching wisely
#
# **You will do:** watch workers start, find out how many help, and mend what goes wrong in them.
#
# **You will learn**
#
# - what a worker is, what it knows of your dataset, and what its start costs,
# - how many workers a loader needs, and how many a machine can bear,
# - where the memory goes, and how to get it back,
# - to keep files, random numbers and errors in order in several processes.
#
# **You need:** notebooks 01 and 02. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("04")

# %% [markdown] tags=["instructor"]
# **Instructor: plan.** What a worker is (4), start (4), how many (6), 4.1, not helping (3), threads (2),
# memory (5), 4.2, files and 4.3 (2), random numbers and 4.4 (2), failures (2). Exercises 5 minutes each.
# Short of time: leave out the two sections "When workers do not help" and "Threads inside workers".
#
# **Board.** A box *notebook* and two boxes *worker*, each with its own small box *dataset*. An arrow with
# numbers to each worker, one arrow with batches back. Everything in this notebook is a question about
# that picture: which box is it in, and which arrow does it take?

# %% [markdown]
# ## A worker is a process
#
# `num_workers=2` starts two more Pythons. Each has a memory of its own, a copy of your dataset in it, and
# a queue of numbers: the samples of its next batches. Finished batches come back through another queue.
#
# ```
#               0, 1, 2, 3 ->  worker 0, with a copy of the dataset  -> batch 0
#   your loop                                                                     -> your loop
#               4, 5, 6, 7 ->  worker 1, with a copy of the dataset  -> batch 1
# ```
#
# Let the samples themselves say where they were made.


# %%
# %%worker_module who
import os

from torch.utils.data import Dataset


class Who(Dataset):
    def __init__(self):
        self.calls = 0

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, int]:
        self.calls += 1
        return {"sample": index, "process": os.getpid(), "calls": self.calls}


# %%
cu.predict(
    "04a",
    "Two workers fetch all 16 samples, and every call is counted. What does `who.calls` say "
    "in the notebook afterwards?",
    unit="calls",
)

# %%
import os

from torch.utils.data import DataLoader

who = Who()
print("the notebook is process", os.getpid())
for batch in DataLoader(who, batch_size=4, num_workers=2):
    print(", ".join(f"{name} {values.tolist()}" for name, values in batch.items()))

# %%
cu.reveal("04a", who.calls)

# %% [markdown]
# Each worker counted in its own copy; yours was never touched. At the end of the epoch the copies are
# gone. So a cache that is filled in `__getitem__` is empty again in every epoch.
#
# What all shall see has to lie in **shared memory**, made before the workers start:
# `torch.zeros(1000).share_memory_()`.

# %% [markdown]
# ## What a start costs
#
# There are three ways to start a process:
#
# - **fork** copies the running Python. Quick; but locks that other threads hold just then are copied
#   too, and nobody will ever open those: such a worker hangs.
# - **spawn** starts a fresh Python. Safe, and the only way on Windows. It imports everything again.
# - **forkserver** forks from a helper that does nothing else: safe too, and the default on Linux from Python
#   3.14 on.

# %%
cu.predict(
    "04b",
    "How many times longer does a worker take to its first batch by spawn than by the quickest way?",
    unit="times",
)

# %%
import multiprocessing
import time

start_methods = multiprocessing.get_all_start_methods()
if "forkserver" in start_methods:
    multiprocessing.set_forkserver_preload(["torch", "course_utils.loading.events"])


def first_batch_s(method: str) -> float:
    begin = time.perf_counter()
    batches = iter(DataLoader(who, num_workers=1, multiprocessing_context=method))
    next(batches)
    seconds = time.perf_counter() - begin
    list(batches)  # let the worker come to its end
    return seconds


# %%
import matplotlib.pyplot as plt

plt.style.use("course_utils.plots")  # readable on light and on dark pages
start_s = {method: min(first_batch_s(method) for _ in range(2)) for method in start_methods}
figure, panel = plt.subplots(figsize=(7, 1.6), layout="constrained")
bars = panel.barh(list(start_s), list(start_s.values()))
panel.bar_label(bars, fmt="%.2f s", padding=3, color=plt.rcParams["text.color"])
panel.set(xlabel="seconds to the first batch of a worker")
panel.margins(x=0.15)
plt.close()  # the next line shows the figure; without this it would be shown twice
figure

# %%
cu.reveal("04b", start_s["spawn"] / min(start_s.values()))

# %% [markdown]
# Under spawn the worker imports torch, for seconds. The forkserver's helper has done so already, **if it
# was told before its first worker**: that is the line with `set_forkserver_preload`. `cu.ready` does both
# where it can. For our measurements we take the quick safe way, too:

# %%
quick = "forkserver" if "forkserver" in start_methods else "spawn"
two = {"num_workers": 2, "multiprocessing_context": quick}

# %% [markdown]
# A start is not paid once. Two short epochs, with spawned workers:

# %%
from torch.utils.data import Subset

from course_utils.loading.events import NpzEvents, pad_collate
from course_utils.measure.trace import Trace

folder = cu.data_path("events", "S")
lustre = cu.slow_storage(folder, "busy Lustre", cache_mb=0)
reading = NpzEvents(folder, fs=lustre)  # a file for each event
gpu = cu.get_accelerator(step_ms=40)


# %%
def two_epochs(**options) -> Trace:
    few = Subset(reading, range(64))
    loader = DataLoader(few, 4, collate_fn=pad_collate, num_workers=1, **options)
    with cu.record() as trace:
        for _ in range(2):
            for batch in trace.batches(loader):
                gpu.step(gpu.upload(batch)).item()
    return trace


# %%
from course_utils.measure.picture import Timeline

new_ones = two_epochs(multiprocessing_context="spawn")
kept = two_epochs(multiprocessing_context="spawn", persistent_workers=True)
Timeline({"new workers each epoch": new_ones, "persistent workers": kept})

# %% [markdown]
# By default every epoch starts its workers anew. `persistent_workers=True` keeps them: the second gap is
# gone. They also keep their copy of the dataset, as it was at the start.
#
# ## How many?
#
# Two loaders. The first one *waits*: events from an emulated, busy Lustre, which serves 8 requests at a
# time. The second one *computes*: photographs from your disk, truly decoded.


# %%
# %%worker_module small_crop
import torch


def crop(image: torch.Tensor) -> torch.Tensor:
    """Cut a random small square out of a photograph."""
    top, left = torch.randint(192, (2,)).tolist()
    return image[:, top : top + 64, left : left + 64].clone()


# %%
from torch.utils.data import Dataset, RandomSampler

from course_utils.loading.images import Jpegs
from course_utils.measure.diagnosis import steady_rate

decoding = Jpegs(cu.data_path("images"), crop)


def sweep(dataset: Dataset, batch_size: int, **options) -> dict[int, float]:
    """Return the batches per second by number of workers, once they are running."""
    found = {}
    for w in (0, 1, 2, 4):
        order = RandomSampler(dataset, num_samples=100 * batch_size)
        if w > 0:
            options["multiprocessing_context"] = quick
        loader = DataLoader(dataset, batch_size, sampler=order, num_workers=w, **options)
        found[w] = steady_rate(loader, seconds=1).batches_per_s
    return found


# %%
cu.predict("04c", "Four workers instead of one: how many times faster is reading?", unit="times")

# %%
read_rates = sweep(reading, batch_size=4, collate_fn=pad_collate)
cu.reveal("04c", read_rates[4] / read_rates[1])

# %%
cu.predict("04d", "And decoding, on this machine?", unit="times")

# %%
decode_rates = sweep(decoding, batch_size=128)
cu.reveal("04d", decode_rates[4] / decode_rates[1])

# %% [markdown]
# Compare with the model of notebook 02: with W workers the rate is min(W, P) / L. Here P is 8 requests of the
# storage, or the number of cores.

# %%
from course_utils.hardware.machine import usable_cores

figure, panels = plt.subplots(1, 2, figsize=(9, 2.6), layout="constrained")
cases = ("reading waits", read_rates, 8), ("decoding computes", decode_rates, usable_cores())
for panel, (name, rates, parallel) in zip(panels, cases, strict=True):
    model = [rates[0] * min(max(w, 1), parallel) for w in rates]
    panel.plot(list(rates), model, "--", color="0.5", label="model")
    panel.plot(list(rates), list(rates.values()), "o", label="measured")
    panel.set(title=f"{name}, P = {parallel}", xlabel="workers", xticks=list(rates), ylim=0)
panels[0].set_ylabel("batches per second")
panels[0].legend()
plt.close()
figure

# %% [markdown]
# Many can wait at the same time; only as many can compute as there are cores. The notebook itself takes
# a bit of a core, too, so the last worker helps less.
#
# How many, then? Enough is **W = ceil(L / C)**; more only cost. Then ask what forbids it. The cores need
# `cpu_ms / cores` for a batch and the storage `read_ms / streams`, however many workers there are; and all
# must fit into memory. Then measure.
#
# `prefetch_factor` evens out and adds no throughput, as notebook 02 showed.
#
# `pin_memory=True` copies each batch once more, into memory from which a GPU can fetch it while the CPU goes
# on: notebook 09 is about that. Without a GPU it does nothing.

# %% [markdown]
# ### Exercise 4.1 · 5 min · ●●○
#
# Three machines, times per batch. For `read_ms` a worker waits for the storage, which serves `streams` batches at
# a time; for `cpu_ms` it needs a core. It takes `worker_mb`, and has `prefetch_factor` = 2 batches ready.

# %%
from notebooks.exercises.nb04.problem import MACHINES, Machine

print(" " * 10, *(f"{name:>13}" for name in MACHINES))
for field in Machine.__dataclass_fields__:
    print(f"{field:10}", *(f"{getattr(machine, field):13,}" for machine in MACHINES.values()))

# %% [markdown]
# Return the smallest W that keeps the GPU busy and fits into `free_mb`, or `None` where no W does. The check
# tries these machines and sixty more.
#
# <details><summary>Hint 1: enough</summary>
#
# One worker needs L = `read_ms + cpu_ms` for a batch; W of them deliver one every L / W.
#
# </details>
# <details><summary>Hint 2: what forbids it</summary>
#
# The cores keep up with `step_ms`, the storage does, and W times a worker with two batches fits.
#
# </details>

# %%
import math


def choose_workers(m: Machine) -> int | None:
    """Return the smallest number of workers that feeds the GPU and fits, or None."""
    ### BEGIN SOLUTION
    enough = math.ceil((m.read_ms + m.cpu_ms) / m.step_ms)
    fed = m.cpu_ms / m.cores <= m.step_ms and m.read_ms / m.streams <= m.step_ms
    fits = enough * (m.worker_mb + 2 * m.batch_mb) <= m.free_mb
    return enough if fed and fits else None
    ### END SOLUTION


print({name: choose_workers(machine) for name, machine in MACHINES.items()})
cu.check("04.1", choose_workers)

# %% [markdown] tags=["instructor"]
# **Instructor.** For 04a two thirds say 16, some 8; only those who know say 0. 04b: guesses of 2 to 5; it
# is tens. 04c is mostly right, 04d is not: "four workers, four times". On a machine with 8 cores it *is*
# nearly four; then let them raise the numbers in `sweep` until it bends.
#
# What goes wrong in 4.1: "never more workers than cores" (the cluster node has 4 and needs 8, which wait);
# forgetting that None is an answer.

# %% [markdown]
# ## When workers do not help
#
# A batch from a worker is packed, sent and unpacked. For small or intricate samples that is more work than
# making them. Rows of 16 numbers, and lists of 1,000 dicts:

# %%
import torch
from torch.utils.data import BatchSampler, TensorDataset

rows = TensorDataset(torch.randn(100_000, 16))
batches = BatchSampler(RandomSampler(rows), batch_size=512, drop_last=False)
dicts = [[{"time": i, "charge": i} for i in range(1000)]] * 400
loaders = {
    "rows": DataLoader(rows, 512, shuffle=True),
    "rows, 2 workers": DataLoader(rows, 512, shuffle=True, **two),
    "rows, whole batches": DataLoader(rows, batch_size=None, sampler=batches),
    "dicts": DataLoader(dicts, 4, collate_fn=list),
    "dicts, 2 workers": DataLoader(dicts, 4, collate_fn=list, **two),
}
speed = {name: steady_rate(loader, seconds=0.5) for name, loader in loaders.items()}

# %%
figure, panels = plt.subplots(1, 2, figsize=(9, 1.7), layout="constrained")
for panel, kind in zip(panels, ("rows", "dicts"), strict=True):
    names = [name for name in reversed(speed) if name.startswith(kind)]
    panel.barh(names, [speed[name].samples_per_s / speed[kind].samples_per_s for name in names])
    panel.axvline(1, color="0.5", ls="--")
    panel.set(xlabel="samples per second, relative")
plt.close()
figure

# %% [markdown]
# Workers made both slower. For rows it helps to index a whole batch at once; for objects, to turn them into
# arrays before they travel.
#
# ### The straggler
#
# Batches are handed out in order. If one takes long, the finished ones behind it have to wait.

# %%
# %%worker_module giants
import torch
from torch.utils.data import Dataset

from course_utils.measure.spans import stage
from course_utils.teaching.explorer import use_cpu


class SomeGiants(Dataset):
    """Every seventh sample takes ten times as long."""

    def __len__(self) -> int:
        return 35

    def __getitem__(self, index: int) -> torch.Tensor:
        with stage("decode"):
            use_cpu(200 if index % 7 == 3 else 20)
        return torch.tensor(index)


# %%
fast_gpu = cu.get_accelerator(step_ms=20)


def with_giants(in_order: bool) -> Trace:
    loader = DataLoader(SomeGiants(), in_order=in_order, **two)
    with cu.record() as trace:
        for batch in trace.batches(loader):
            fast_gpu.step(fast_gpu.upload(batch)).item()
    return trace


Timeline({"in order": with_giants(True), "as they come": with_giants(False)})

# %% [markdown]
# `in_order=False` hands out what is ready. Runs can then no longer be repeated exactly, and the giants still
# have to be loaded. Better: find them, with a histogram as in notebook 01, and cut them.
#
# ## Threads inside workers
#
# In a worker torch computes with one thread. The libraries below numpy and OpenCV do not know where they
# are: they take as many threads as there are cores, in *every* worker.

# %%
cu.predict(
    "04e",
    "Two workers multiply matrices with numpy. How many times faster are they when each may "
    "use one thread only?",
    unit="times",
)

# %%
from notebooks.stories.worker_traps import compare, show

threads = compare("threads", seconds=12)
threads

# %%
slow, fast = (run.numbers.get("seconds", 12) for run in (threads.before, threads.after))
cu.reveal("04e", slow / fast)

# %% [markdown]
# `worker_init_fn=worker_init` did it, from `course_utils/loading/workers/worker.py`. Its heart is one line,
# `threadpool_limits(1)` of the package `threadpoolctl`. How much it brings depends on the machine; virtual ones
# exaggerate.
#
# The other way round, a batch system may **bind** your job to a few cores. Workers inherit that: four of them
# may share one. Ask `len(os.sched_getaffinity(0))` on Linux.
#
# ## Memory
#
# ### What grows
#
# Under fork a worker shares all memory with the notebook, page by page, until one of the two writes. Now,
# *reading* a Python object writes: everything that looks at it counts itself in and out.

# %%
cu.predict(
    "04f",
    "Two forked workers read a list of 600,000 file names, a half each. By how many MB does "
    "each of them grow?",
    unit="MB",
)

# %%
lists = compare("strings", seconds=15)
lists

# %%
owned = {"a list": lists.before.numbers, "packed": lists.after.numbers}
figure, panel = plt.subplots(figsize=(7, 1.7), layout="constrained")
for name, numbers in owned.items():
    places = [f"{name}, {when}" for when in ("at the start", "at the end")]
    panel.barh(places[: len(numbers)], list(numbers.values()))
panel.invert_yaxis()
panel.set(xlabel="memory that a worker has for itself (MB)")
plt.close()
figure

# %%
start_mb, end_mb = lists.before.numbers.values() or (0, 0)  # nothing where there is no fork
cu.reveal("04f", end_mb - start_mb)

# %% [markdown]
# Each worker copied the half of the list that it read; shuffled, it would be nearly all, in each. This is how
# a job dies after an hour: `DataLoader worker (pid 1234) is killed by signal: Killed`. Two arrays hold the
# same names, and to look at the bytes of an array counts nothing.
#
# Under spawn and forkserver nothing is shared in the first place: each worker gets a pickled copy.

# %% [markdown]
# ### Exercise 4.2 · 5 min · ●●○
#
# Write a class that behaves like a list of strings, but consists of a few objects.
#
# Target: a tenth of the growth of a list, and at most 16 bytes per string beside its text. <!-- given -->
#
# <details><summary>Hint 1: what to keep</summary>
#
# All texts end to end in one `bytes`, and an array of the N + 1 places where one begins or ends.
#
# </details>
# <details><summary>Hint 2: in and out</summary>
#
# `text.encode()` gives bytes, `.decode()` text again. `np.cumsum([0, *lengths])` gives the places.
#
# </details>

# %%
# %%worker_module my_strings
import numpy as np


class MyStrings:
    """A list of strings in two objects."""

    def __init__(self, strings: list[str]):
        ### BEGIN SOLUTION
        encoded = [string.encode() for string in strings]
        self.text = b"".join(encoded)
        self.places = np.cumsum([0, *map(len, encoded)])
        ### END SOLUTION

    def __len__(self) -> int:
        ### BEGIN SOLUTION
        return len(self.places) - 1
        ### END SOLUTION

    def __getitem__(self, index: int) -> str:
        ### BEGIN SOLUTION
        begin, end = self.places[index], self.places[index + 1]
        return self.text[begin:end].decode()
        ### END SOLUTION


# %%
cu.check("04.2", MyStrings)

# %% [markdown]
# Ours is `PackedStrings` in `course_utils/loading/workers/worker.py`.
#
# ### What is sent at the start
#
# Under spawn and forkserver the dataset is pickled for every worker. Does a memory map travel light?

# %%
import pickle

import numpy as np

path = folder / "npy" / "pulses.npy"
mapped = np.load(path, mmap_mode="r")
for name, kept in {"the map": mapped, "the path of the file": path}.items():
    print(f"{len(pickle.dumps(kept)) / 1e6:8.3f} MB for each worker that gets {name}")

# %% [markdown]
# It was pickled with all its data. Keep the path, and open in the worker.
#
# ### What is on its way
#
# Batches that lie ready take memory as well. Let the samples write down, in shared memory, that they exist.

# %%
# %%worker_module frames
import torch
from torch.utils.data import Dataset


class Frames(Dataset):
    """Samples of 1 MB, and a note for each that has been made."""

    def __init__(self, count: int):
        self.made = torch.zeros(count, dtype=torch.bool).share_memory_()

    def __len__(self) -> int:
        return len(self.made)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.made[index] = True
        return torch.zeros(1_000_000, dtype=torch.uint8)


# %%
cu.predict(
    "04g",
    "Three workers, batches of 8 MB, prefetch_factor as it is. How many MB of batches are there "
    "while the loop works on one of them?",
    unit="MB",
)

# %%
frames = Frames(128)
loader = DataLoader(frames, 8, num_workers=3, multiprocessing_context=quick)
for number, _ in enumerate(loader):
    if number == 4:
        time.sleep(1)  # a long step; meanwhile the workers load what they may
        megabytes = int(frames.made.sum()) - 4 * 8  # made so far, less what is used up

cu.reveal("04g", megabytes)

# %% [markdown]
# W × `prefetch_factor` are ready, and one is in use. They lie in `/dev/shm`, of which a container gets 64 MB.
#
# - `unable to allocate shared memory(shm) ...: No space left on device`, or `Bus error`: start the container
#   with `docker run --shm-size=2g`, or have fewer or smaller batches on their way.
# - `Too many open files`: each batch that you *keep* holds a file open. Keep a `.clone()` instead.

# %% [markdown] tags=["instructor"]
# **Instructor.** 04e: nobody says more than 2. 04f: the list itself takes about 60 MB; most say 0, since "it
# is only read". 04g: 24 is the usual answer, 48 the good one; the 56 have the batch in use.
#
# What goes wrong in 4.2: `np.array(strings)`, which takes four bytes for each character and the room of
# the longest; offsets counted in characters; keeping the list as well.

# %% [markdown]
# ## Files
#
# A handle that was open before a fork is shared by all workers, with its *position*. One seeks, another
# seeks, the first one reads. Two forked workers read rows that hold their own numbers:

# %%
one_handle = show("one_handle", mended=False)
print(one_handle.numbers or one_handle.demo.ending)

# %% [markdown]
# So few, in some runs none, that no training would notice; and no error. Under spawn it is
# `TypeError: cannot pickle`. The cure for both: open in the process that reads.

# %% [markdown]
# ### Exercise 4.3 · 5 min · ●●●
#
# Write a dataset on a file of rows of 8 numbers, int64. The notebook may use it first, then workers, however
# they start.
#
# Target: every process opens the file once, and no row is wrong.
#
# <details><summary>Hint 1: when to open</summary>
#
# On first use. Keep the `os.getpid()` of the process that opened: after a fork `self._file` is there, but it
# is the file of another process.
#
# </details>
# <details><summary>Hint 2: how it travels</summary>
#
# `__getstate__` returns what is pickled: `{**self.__dict__, "_file": None}` leaves the open file out.
#
# </details>

# %%
# %%worker_module my_rows
import os

import numpy as np
from torch.utils.data import Dataset


class Rows(Dataset):
    def __init__(self, path: str):
        self.path, self._file, self._opened_by = path, None, None

    def __len__(self) -> int:
        return os.path.getsize(self.path) // 64

    def __getitem__(self, index: int) -> np.ndarray:
        ### BEGIN SOLUTION
        if self._opened_by != os.getpid():
            self._file, self._opened_by = open(self.path, "rb"), os.getpid()
        self._file.seek(64 * index)
        return np.frombuffer(self._file.read(64), np.int64)
        ### END SOLUTION

    def __getstate__(self) -> dict:
        ### BEGIN SOLUTION
        return {**self.__dict__, "_file": None, "_opened_by": None}
        ### END SOLUTION


# %%
cu.check("04.3", Rows)

# %% [markdown]
# Ours is `LazyFile` in `course_utils/loading/workers/worker.py`; it opens HDF5 and SQLite, too.
#
# ## Random numbers
#
# You may have heard that `np.random` repeats in all workers. No longer: PyTorch seeds it in each. What does
# repeat is what numpy recommends today: a generator of your own, made in `__init__`.

# %%
# %%worker_module shifts
import numpy as np
from torch.utils.data import Dataset


class Shifts(Dataset):
    """Random shifts in time, as an augmentation draws them."""

    def __init__(self, length: int):
        self.length = length
        self.rng = np.random.default_rng()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return int(self.rng.integers(1_000_000))


# %%
cu.predict("04h", "Two workers draw 8 shifts in an epoch. How many of them differ?", unit="of 8")

# %%
shifts = Shifts(8)
epochs = [torch.cat(list(DataLoader(shifts, 2, **two))).tolist() for _ in range(2)]
print(*epochs, sep="\n")
cu.reveal("04h", len(set(epochs[0])))

# %% [markdown]
# Every worker got a copy of the same generator, and so do those of the next epoch. But `torch.initial_seed()`
# is another number in each worker and each epoch, and follows from `torch.manual_seed` in the notebook.

# %% [markdown]
# ### Exercise 4.4 · 5 min · ●●○
#
# Repair it.
#
# Target: all shifts differ, the next epoch brings others, and the same `torch.manual_seed` the same ones
# again; with workers and without, and although the notebook looked at a sample first.
#
# <details><summary>Hint 1: where</summary>
#
# Not in `__init__`: make the generator when the first number is drawn, from `torch.initial_seed()`.
#
# </details>
# <details><summary>Hint 2: when again</summary>
#
# A generator that the notebook made is copied, too. Keep the seed that it was made from, and make a new one
# when `torch.initial_seed()` is another.
#
# </details>

# %%
# %%worker_module my_shifts
import numpy as np
import torch
from torch.utils.data import Dataset


class MyShifts(Dataset):
    def __init__(self, length: int):
        self.length, self.seed, self.rng = length, None, None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        """Return a random integer below 1,000,000."""
        ### BEGIN SOLUTION
        if self.seed != torch.initial_seed():
            self.seed = torch.initial_seed()
            self.rng = np.random.default_rng(self.seed)
        return int(self.rng.integers(1_000_000))
        ### END SOLUTION


# %%
cu.check("04.4", MyShifts)

# %% [markdown]
# Ours is `worker_rng` in `course_utils/loading/workers/worker.py`. Shorter still: draw with `torch.randint`; PyTorch
# seeds that rightly everywhere.
#
# ## When a worker fails
#
# An exception in `__getitem__` reaches you with its traceback. But some things cannot be *sent*.

# %%
cu.predict(
    "04i",
    "A sample contains a lock, which cannot be pickled. What does the loop do?",
    choices=["raises an error", "leaves the sample out", "waits for ever"],
)

# %%
hang = show("unpicklable", mended=False, seconds=6).demo
hang

# %%
cu.reveal("04i", "waits for ever" if "Stopped" in hang.ending else "raises an error")

# %% [markdown]
# The queue of the worker pickles the batch in a thread of its own, and the error ends there. Send tensors,
# arrays, numbers and strings. While developing set `timeout=60`: then it ends with
# `DataLoader timed out after 60 seconds`.
#
# The next one everybody meets: a class that lives in a cell.

# %%
show("class_in_notebook", mended=False, seconds=15).demo

# %% [markdown]
# Look for `AttributeError`: the worker looked for the class in *its* `__main__`, which is empty. That is why such
# cells begin with `%%worker_module`.
#
# - `exited unexpectedly`, `Segmentation fault`: run with `num_workers=0`, and the traceback says where.
# - You interrupted a loop (■): its workers end, but the traceback keeps their batches. This clears them away:

# %%
cu.cleanup_workers()

# %% [markdown]
# ## You now can
#
# - say what a worker knows and what its start costs,
# - choose the number of workers, and see when they do not help,
# - keep their threads and their memory in bounds,
# - give each its own file and its own random numbers, and read what a failing one says.
