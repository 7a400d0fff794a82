# %% [markdown]
# # 04 · Use workers and prefetching wisely
#
# {here: read, decode, collate}
#
# **You will do:** ask workers where they are, find out how many of them help, and fix what goes wrong.
#
# **You will learn:**
#
# - what a worker knows about your dataset, and what its start costs; <!-- 04a -->
# - how many workers a loader needs, and what limits them; <!-- 04b 04c 04d 4.1 -->
# - how to open files in workers, and how to read the message of a failing worker. <!-- 4.2 04e -->
#
# **You need:** notebooks 01 and 02. A CPU is enough.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("04")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *4 min* **A worker is a process.** Prediction 04a. Draw the boxes while the cell runs.
# - *4 min* **What a start costs.** Point at the empty beginning of the first epoch, which the second one doesn't have.
# - *22 min* **How many workers?** Predictions 04b and 04c. `course demo workers` shows both on the wall. Explain the
#   three lines of the table, then do exercise 4.1.
# - *4 min* **Pinned to one core.** Prediction 04d. Who writes `num_workers=os.cpu_count()`? Who has checked the CPU
#   binding of a job?
# - *17 min* **Files.** Show the wrong rows, ask how anybody would notice, then do exercise 4.2.
# - *3 min* **When a worker fails, and the finished loader.** Prediction 04e. Read the finished loader line by line.
#
# **Leave out.** Exercise 4.2. Show the wrong rows, and give the exercise as homework.
#
# **Board.** Draw a box *notebook* and two boxes *worker*, each with its own small box *dataset*. Draw one arrow with
# indices to each worker, and one arrow with batches back. Every question of this notebook is about that picture: in
# which box does it happen, and which arrow does it take?

# %% [markdown]
# ## A worker is a process
#
# `num_workers=2` starts two processes, and each gets a copy of your dataset in its own memory and a queue with the
# indices of its next samples. Finished batches come back through another queue.
#
# ```
#               0, 1, 2, 3 ->  worker 0, with a copy of the dataset  -> batch 0
#   your loop                                                                     -> your loop
#               4, 5, 6, 7 ->  worker 1, with a copy of the dataset  -> batch 1
# ```
#
# Let's ask the workers who they are: each sample contains the ID of its process.

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
cu.predict("04a", "Two workers fetch all samples. What is `who.calls` afterwards?", unit="calls")

# %%
import os

from torch.utils.data import DataLoader

who = Who()
print("the notebook is process", os.getpid())
for epoch in (1, 2):
    for batch in DataLoader(who, batch_size=4, num_workers=2):
        print("epoch", epoch, {name: values.tolist() for name, values in batch.items()})

# %%
cu.reveal("04a", who.calls)

# %% [markdown]
# Each worker counted in its own copy, so yours never changed. The second epoch has new processes, and they count from
# 1 again: the old copies are gone, along with any cache that `__getitem__` filled. If all processes are to share data,
# put them into **shared memory** before the workers start: `torch.zeros(1000).share_memory_()`.
#
# ## What a start costs
#
# A **spawned** worker is a new Python process, and it imports torch, which takes seconds. Here one spawned worker
# reads events from an emulated, busy Lustre for two short epochs.

# %%
from torch.utils.data import Subset

from course_utils.loading.events import NpzEvents, pad_collate
from keepfed.measure.trace import Trace

folder = cu.data_path("events", "S")
lustre = cu.slow_storage(folder, "busy Lustre", cache_mb=0)
reading = NpzEvents(folder, fs=lustre)  # one file per event
gpu = cu.get_accelerator(step_ms=40)


# %%
def one_epoch(loader: DataLoader) -> Trace:
    with cu.record() as trace:
        for batch in trace.batches(loader):
            gpu.step(gpu.upload(batch)).item()
    return trace


# %%
from keepfed.measure.picture import Timeline

how = {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True}
spawned = DataLoader(Subset(reading, range(64)), 4, collate_fn=pad_collate, **how)
Timeline({"first epoch": one_epoch(spawned), "second epoch": one_epoch(spawned)})

# %% [markdown]
# Why doesn't the second epoch wait? Because `persistent_workers=True` kept the worker, and with it the worker's copy
# of the dataset, which won't see anything that you change later.
#
# ## How many workers?
#
# Our first workers *wait* for the emulated Lustre, which serves 8 requests at a time, and the next ones *compute*,
# because they decode photographs. Do you expect the same gain from both?

# %%
from torch.utils.data import Dataset, RandomSampler

from keepfed.loaders.images import Jpegs
from keepfed.measure.throughput import steady_rate

decoding = Jpegs(cu.data_path("images"))


def rate(dataset: Dataset, batch_size: int, workers: int, **options) -> float:
    """Return the batches per second of a loader after its workers have started."""
    order = RandomSampler(dataset, num_samples=100 * batch_size)
    loader = DataLoader(dataset, batch_size, sampler=order, num_workers=workers, **options)
    return steady_rate(loader, seconds=0.7).batches_per_s


# %%
cu.predict("04b", "Four workers instead of one: how many times faster is reading?", unit="times")

# %%
read_rates = {w: rate(reading, 4, w, collate_fn=pad_collate) for w in (1, 2, 4)}
cu.reveal("04b", read_rates[4] / read_rates[1])

# %%
cu.predict("04c", "How many times faster is decoding, on this machine?", unit="times")

# %%
decode_rates = {w: rate(decoding, 16, w) for w in (1, 2, 4)}
cu.reveal("04c", decode_rates[4] / decode_rates[1])

# %% [markdown]
# The model of notebook 02 says min(W, P) / L batches per second. For reading, P is 8, but for decoding it's the number
# of cores.

# %%
from course_utils.hardware.machine import usable_cores
from course_utils.stories.figures import drawing

cases = {"reading waits": (read_rates, 8), "decoding computes": (decode_rates, usable_cores())}
with drawing(9, 2.6, columns=2) as (figure, panels):
    for panel, (name, (rates, parallel)) in zip(panels, cases.items(), strict=True):
        model = [rates[1] * min(workers, parallel) for workers in rates]
        panel.plot(list(rates), model, "--", color="0.5", label="model")
        panel.plot(list(rates), list(rates.values()), "o", label="measured")
        panel.set(title=f"{name}, P = {parallel}", xlabel="workers", ylim=0)
        panel.set(xticks=list(rates), ylabel="batches per second")
        panel.legend()
figure

# %% [markdown]
# Many workers can wait at the same time, but only one worker per core can compute, and the notebook wants some CPU
# time, too.
#
# <details><summary>With a real GPU it needs a whole core</summary>
#
# A program that waits for our emulated GPU sleeps. With CUDA it doesn't: it asks the GPU again and again whether it
# has finished, which keeps one core busy. So leave one core for it if you have a real GPU (but not in the exercise
# below).
#
# </details>
#
# Most batches do both: a worker waits `read_ms` for the storage system **and** computes for `cpu_ms` on a core. One P
# isn't enough then, because there are three limits:
#
# | Limit | Batches per ms, at most |
# |---|---|
# | W workers, each busy with a batch for L = `read_ms` + `cpu_ms` | W / L |
# | the storage system, which serves `streams` batches at a time | `streams` / `read_ms` |
# | the cores | `cores` / `cpu_ms` |
#
# The smallest number decides. The GPU needs 1 / C batches per ms, where C is `step_ms`, and the first line reaches
# this with **W = ceil(L / C)** workers. If the storage system or the cores give less than 1 / C, you can add workers
# all day and nothing gets faster.

# %% [markdown]
# ### Exercise 4.1 · 10 min · ●●○
#
# Times are for one batch, and memory is in MB. A worker needs `worker_mb` of memory and keeps `prefetch_factor`
# batches ready, and the loop holds one more batch, which is in use.

# %%
from course_utils.exercises.nb04.problem import MACHINES, Machine, table

print(table(MACHINES))

# %% [markdown]
# Return the smallest W that keeps the GPU busy and fits into `free_mb`, or `None` if there's no such W. Times may be
# fractions of a millisecond.
#
# <details><summary>Hint 1: enough workers</summary>
#
# One worker needs L = `read_ms + cpu_ms` for a batch, so W workers deliver one every L / W: round up with `math.ceil`.
#
# </details>
# <details><summary>Hint 2: the limits</summary>
#
# However many workers you have, the cores need `cpu_ms / cores` for each batch, and the storage system needs `read_ms
# / streams`. Neither may be longer than `step_ms`.
#
# </details>
# <details><summary>Hint 3: the memory</summary>
#
# W workers hold `W * (worker_mb + prefetch_factor * batch_mb)`, and the loop holds one more batch.
#
# </details>

# %%
import math


def choose_workers(m: Machine) -> int | None:
    """Return the smallest number of workers that feeds the GPU and fits, or None."""
    ### BEGIN SOLUTION
    enough = math.ceil((m.read_ms + m.cpu_ms) / m.step_ms)
    fed = m.cpu_ms / m.cores <= m.step_ms and m.read_ms / m.streams <= m.step_ms
    held_mb = enough * (m.worker_mb + m.prefetch_factor * m.batch_mb) + m.batch_mb
    return enough if fed and held_mb <= m.free_mb else None
    ### END SOLUTION


cu.check("04.1", choose_workers)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **04a** Tempting: 16, the number of samples, or 8 if you know that there are two workers. It's 0.
# - **04b** About 4, and it should be: waiting is easy to share.
# - **04c** Tempting: 4, because it just worked. The answer is at most the number of cores, so 2 or less on two cores.
#   On a machine with 8 cores it *is* nearly four, so let them add workers until the curve bends.
# - **04d** Tempting: 1, because the worker has only one core. But `os.cpu_count()` counts the cores of the machine.
# - **04e** Tempting: "an error", because that would be useful. In fact, the loop waits forever.
#
# **Goes wrong.**
#
# - In 4.1: "never more workers than cores". The cluster node has 4 cores and needs 8 workers, because they wait most
#   of the time.
# - In 4.1: the P of the plot, the smaller of cores and streams, for all machines. And None is an answer, too.
# - In 4.2, the file is opened in `__init__`, or once for all datasets in a class attribute. Ask in which box of the
#   board that line runs.

# %% [markdown]
# ## Pinned to one core
#
# A batch system **binds** your job to some cores, and the workers inherit this, so with one wrong option they all
# share a single core. Would you notice? Let's bind a worker and ask it how many cores it sees:

# %%
# %%worker_module binding
import os

from torch.utils.data import Dataset

from course_utils.hardware.machine import usable_cores


def to_one_core(worker: int) -> None:
    """Bind this worker to the first core that it may use, if the system can."""
    if hasattr(os, "sched_setaffinity"):  # on Linux
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


class Cores(Dataset):
    def __getitem__(self, index: int) -> tuple[int | None, int]:
        return os.cpu_count(), usable_cores()


# %%
cu.predict("04d", "A worker is bound to one core. What does os.cpu_count() return?", unit="cores")

# %%
bound = DataLoader(Cores(), None, sampler=[0], num_workers=1, worker_init_fn=to_one_core)
counted, usable = next(iter(bound))
slower = decode_rates[4] / rate(decoding, 16, 4, worker_init_fn=to_one_core)
print(f"usable: {usable}. Bound to one core, four workers decode {slower:.1f} times slower.")
cu.reveal("04d", counted)

# %% [markdown]
# `os.cpu_count()` counts the machine's cores, even those that you can't use, so `num_workers=os.cpu_count()` starts 64
# workers on your one core of a node with 64. Ask `len(os.sched_getaffinity(0))` instead (on Linux, and inside the
# job), and if it's too small, try `--cpus-per-task=8` in Slurm, or `--cpu-bind depth -d 8` with the `mpiexec` of ALCF.
# <!-- given -->
#
# And the price? Your ratio cannot exceed your number of cores, but a big node has many of them. The supercomputing
# center [ALCF](https://www.alcf.anl.gov) measured 6 s of reading when each thread had its own core, and 30 s when all
# threads shared one, while preprocessing went from 19 s to 89 s.
#
# A container can fool this call as well. With `docker run --cpus=2` or in Kubernetes, it sees all cores, but in every
# 0.1 s it may use 0.2 s of core time; then it stands still until that tenth is over. PyTorch's warning about too many
# workers ignores such a limit, but `usable_cores()` above respects it. <!-- given -->
#
# ## Files
#
# A **forked** worker is a copy of the running Python process. It doesn't get new open files, it gets the same ones,
# and an open file has one *position*. If two workers seek at the same time, one of them reads at the other's position.
# Here each row holds its own index. Two forked workers read all rows, and we count those with a wrong one:

# %%
from course_utils.stories.worker_traps import show

one_handle = show("one_handle")
print(one_handle.numbers or one_handle.demo.ending)

# %% [markdown]
# There's no error, and would you have noticed so few wrong rows in training? <!-- notebook -->(If there were none, run
# the cell again. It's a matter of luck, which makes it worse.)<!-- end --> Under spawn you'd at least get a `TypeError:
# cannot pickle`. The fix is the same for both: open the file in the process that reads it.

# %% [markdown]
# ### Exercise 4.2 · 10 min · ●●○
#
# Write a dataset that reads a file whose rows have 8 numbers (int64). The notebook uses it first, then workers do,
# with every start method. Target: each of these processes opens the file once to read rows, no row is wrong, and the
# dataset keeps no rows.
#
# <details><summary>Hint 1: when to open</summary>
#
# Open the file on first use, and keep the `os.getpid()` of the process that opened it. After a fork, `self._file`
# exists, but it's the file of another process.
#
# </details>
# <details><summary>Hint 2: how it is sent</summary>
#
# `__getstate__` returns the state to pickle. `{**self.__dict__, "_file": None, "_opened_by": None}` leaves the open file
# out.
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
        self.length = os.path.getsize(path) // 64

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> np.ndarray:
        if not 0 <= index < self.length:
            raise IndexError(index)  # ends a loop over the dataset
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
cu.check("04.2", Rows)

# %% [markdown]
# Our version is `LazyFile` in `keepfed/src/keepfed/loaders/workers/worker.py`. It opens HDF5 and SQLite, too.
#
# ## When a worker fails
#
# An exception in `__getitem__` reaches you with its traceback, and that's the friendly case. The unfriendly one is an
# object that can't be *sent*.

# %%
cu.predict(
    "04e",
    "A sample contains a lock, which cannot be pickled. What do you get?",
    choices=["an error", "a batch without the sample", "a loop that waits forever"],
)

# %%
hang = show("unpicklable", seconds=5).demo
hang

# %%
cu.reveal("04e", "a loop that waits forever" if "Stopped" in hang.ending else "an error")

# %% [markdown]
# A thread of the worker pickles the batch. It prints its error, drops the batch and carries on, but the loop doesn't
# hear of it and waits forever. With `timeout=60` it raises an error instead, and if you send only tensors, arrays,
# numbers and strings, you won't need it. Other failures: <!-- given -->
#
# - `Can't get attribute 'MyDataset' on <module '__main__'`: the worker looks for your class in *its* `__main__`, which
#   is empty. That's why such cells begin with `%%worker_module`.
# - `exited unexpectedly`, `Segmentation fault`: run your script with `python -X faulthandler` and `num_workers=0`, and
#   the traceback shows the line.
# - Any other message: run `keepfed why "the message"` in a terminal, or `!keepfed why "the message"` in a cell.
# - You interrupted a loop (■): its workers end, but the traceback keeps their batches in memory. This call removes
#   them:

# %%
cu.cleanup_workers()  # also ends the persistent worker from above

# %% [markdown]
# ## The finished loader
#
# Here's all of it in one place, so you can copy it. Cover the comments and try to say what each line is for.

# %%
from keepfed.loaders.workers import worker_init

loader = DataLoader(
    reading,
    batch_size=4,
    collate_fn=pad_collate,
    num_workers=2,
    persistent_workers=True,  # workers start only once
    pin_memory=True,  # the GPU can fetch a batch while the CPU continues: notebook 09
    prefetch_factor=2,  # prefetched batches: they hide uneven loading times, not long ones
    timeout=60,  # seconds, after which a missing batch is an error
    worker_init_fn=worker_init,  # one thread per worker: see "Threads" in the extra part
)
print("pinned:", next(iter(loader))["pulses"].is_pinned())

# %% [markdown]
# `pin_memory=True` copies each batch once more, in a thread of the notebook, but without a GPU nothing is copied, and
# PyTorch warns that `no accelerator is found` (the course hides this warning).
#
# ## You now can
#
# - say what a worker knows, and what its start costs;
# - choose the number of workers, and say what limits them;
# - give each worker its own file, and read the message of a failing worker.
#
# Next: [05 Stream with IterableDataset and shuffle well](05_stream_and_shuffle.ipynb), because not all data have
# indices that a loop could hand out to its workers.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs the sections below, and each section needs only the core.
#
# ## Three ways to start a worker
#
# - **fork** copies the running Python process, which is fast. But if another thread holds a lock at this moment, the
#   lock is copied as well, nobody ever releases the copy, and the worker hangs.
# - **spawn** starts a new Python process, which imports everything again. It's safe, and the only method on Windows.
# - **forkserver** forks from a helper process that does nothing else. It's safe, too, and the default on Linux since
#   Python 3.14.

# %%
cu.predict(
    "04f",
    "How many times longer does the first batch take with spawn than with the fastest method?",
    unit="times",
)

# %%
import multiprocessing
import time

methods = multiprocessing.get_all_start_methods()
if "forkserver" in methods:
    multiprocessing.set_forkserver_preload(["torch", "course_utils.loading.events"])


def first_batch_s(method: str) -> float:
    begin = time.perf_counter()
    batches = iter(DataLoader(who, num_workers=1, multiprocessing_context=method))
    next(batches)
    seconds = time.perf_counter() - begin
    list(batches)  # so that the worker ends
    return seconds


# %%
from course_utils.stories.figures import bars

# the first worker of a forkserver also waits for the server, so use the second one
start_s = {m: [first_batch_s(m) for _ in range(1 if m == "spawn" else 2)][-1] for m in methods}
bars(start_s, "seconds to the first batch of a worker")

# %%
cu.reveal("04f", start_s["spawn"] / min(start_s.values()))

# %% [markdown]
# Under spawn the worker imports torch, which takes seconds. The forkserver's helper has imported it already, if you
# call `set_forkserver_preload` before the first worker starts. That's what `cu.ready` does, and it uses this method on
# every system that has it.
#
# ## The straggler
#
# Batches are delivered in order, like people in a queue at the post office. If one batch takes long, finished batches
# behind it have to wait.

# %%
# %%worker_module giants
import torch
from torch.utils.data import Dataset

from course_utils.teaching.explorer import use_cpu
from keepfed.measure.spans import stage


class SomeGiants(Dataset):
    """Samples of which every seventh takes ten times as long."""

    def __len__(self) -> int:
        return 28

    def __getitem__(self, index: int) -> torch.Tensor:
        with stage("decode"):
            use_cpu(100 if index % 7 == 3 else 10)
        return torch.tensor(index)


# %%
fast_gpu = cu.get_accelerator(step_ms=10)


def with_giants(in_order: bool) -> Trace:
    loader = DataLoader(SomeGiants(), num_workers=2, in_order=in_order)
    with cu.record() as trace:
        for batch in trace.batches(loader):
            fast_gpu.step(fast_gpu.upload(batch)).item()
    return trace


Timeline({"in order": with_giants(True), "as they come": with_giants(False)})

# %% [markdown]
# `in_order=False` delivers batches as soon as they're ready. But then you can't repeat a run exactly, and somebody
# still has to load the giants. It's better to find them with a histogram and cut them.
#
# ## Threads inside workers
#
# In a worker, torch computes with one thread, but the libraries below NumPy and OpenCV don't know where they run. They
# use as many threads as there are cores, in *every* worker.

# %%
cu.predict(
    "04g",
    "Two workers multiply matrices with NumPy. How many times faster are they if each of them "
    "may use only one thread?",
    unit="times",
)

# %%
from course_utils.stories.worker_traps import compare

before, after = compare("threads", seconds=12)
print(f"before: {before}\nafter:  {after}")

# %%
slow, fast = (run.numbers.get("seconds", 12) for run in (before, after))
cu.reveal("04g", slow / fast)

# %% [markdown]
# `worker_init_fn=worker_init` fixed this: it's in `keepfed/src/keepfed/loaders/workers/worker.py`, and its most
# important line is `threadpool_limits(1)` from the package `threadpoolctl`. How much you gain depends on the machine,
# and it's most on virtual ones.
#
# ## Memory: what grows
#
# Under fork, a worker shares all memory with the notebook, page by page, until one of the two writes to a page. Your
# workers only read, so that's fine, isn't it? But even *reading* a Python object writes, because every access
# increments its reference count and then decrements it.

# %%
cu.predict(
    "04h",
    "Two forked workers read a list of 300,000 file names, half of it each. By how many MB "
    "does each worker grow?",
    unit="MB",
)

# %%
from course_utils.stories.figures import bars
from course_utils.stories.worker_traps import compare

ways = dict(zip(("a list", "packed"), compare("strings", seconds=15), strict=True))
grown = {name: sum(run.numbers.values()) for name, run in ways.items()}  # no fork: 0
bars(grown, "MB by which a worker grows")

# %%
cu.reveal("04h", grown["a list"] if ways["a list"].numbers else "nothing: no fork on this system")

# %% [markdown]
# Each worker copied the half of the list that it read, and with shuffling it'd be nearly all of it. Such a job dies
# after an hour: `DataLoader worker (pid 1234) is killed by signal: Killed`. Instead, keep all names in one array of
# bytes, and their positions in another. Reading an array changes no reference count, so nothing is copied.
#
# Under spawn and forkserver nothing is shared, because each worker gets a pickled copy.

# %% [markdown]
# ### Exercise 4.3 · 10 min · ●●○
#
# Write a class that works like a list of strings, but consists of a few objects. `len(s)`, `s[0]`, `s[-1]` and `for
# text in s` work as with a list, and an index out of range raises `IndexError`. A string may contain any character,
# and all strings together may have more than 2 GB. <!-- given -->
#
# Target: at most 16 bytes per string in addition to its text. Reading a string must stay fast. <!-- given -->
#
# <details><summary>Hint 1: what to keep</summary>
#
# Join all texts in one `bytes` object. Keep an array of the N + 1 positions at which a text begins or ends.
#
# </details>
# <details><summary>Hint 2: in and out</summary>
#
# `text.encode()` gives bytes, and `.decode()` gives text again. `np.cumsum([0, *lengths])` gives the positions.
#
# </details>
# <details><summary>Hint 3: any index</summary>
#
# `range(len(self))[index]` counts negative numbers from the end, and raises the `IndexError`.
#
# </details>

# %%
# %%worker_module my_strings
import numpy as np


class MyStrings:
    """A list of strings that consists of two objects."""

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
        place = range(len(self))[index]
        begin, end = self.places[place], self.places[place + 1]
        return self.text[begin:end].decode()
        ### END SOLUTION


# %%
cu.check("04.3", MyStrings)

# %% [markdown]
# Our version is `PackedStrings` in `keepfed/src/keepfed/loaders/workers/worker.py`.
#
# ## Memory: what is sent at the start
#
# Under spawn and forkserver, the dataset is pickled for every worker. So how large is a pickled memory map?

# %%
import pickle

import numpy as np

path = folder / "npy" / "pulses.npy"
mapped = np.load(path, mmap_mode="r")
for name, kept in {"the map": mapped, "the path of the file": path}.items():
    print(f"{len(pickle.dumps(kept)) / 1e6:8.3f} MB for each worker that gets {name}")

# %% [markdown]
# The memory map was pickled with all its data. So keep the path, which costs nothing to send, and open the file in the
# worker.
#
# ## Memory: batches in flight
#
# Prefetched batches need memory as well, but how many of them are there? This dataset sets a mark in shared memory for
# each sample that was loaded, so we can count.

# %%
# %%worker_module frames
import torch
from torch.utils.data import Dataset


class Frames(Dataset):
    """Samples of 1 MB, and a mark for each sample that was loaded."""

    def __init__(self, count: int):
        self.made = torch.zeros(count, dtype=torch.bool).share_memory_()

    def __len__(self) -> int:
        return len(self.made)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.made[index] = True
        return torch.zeros(1_000_000, dtype=torch.uint8)


# %%
cu.predict(
    "04i",
    "There are three workers, batches of 8 MB and the default prefetch_factor. How many MB of "
    "batches exist while the loop works on one of them?",
    unit="MB",
)

# %%
import time

frames = Frames(128)
for number, _ in enumerate(DataLoader(frames, 8, num_workers=3)):
    if number == 4:
        time.sleep(1)  # during a long step, the workers load as much as they may
        megabytes = int(frames.made.sum()) - 4 * 8  # loaded so far, without the used batches

cu.reveal("04i", megabytes)

# %% [markdown]
# W × `prefetch_factor` batches are ready, and one is in use. On Linux they live in `/dev/shm`, and a Docker container
# gets only 64 MB of it, unless you ask for more.
#
# - `unable to allocate shared memory(shm) ...: No space left on device`, or `Bus error`: start the container with
#   `docker run --shm-size=2g`, or use fewer workers or smaller batches.
# - `Too many open files`: each batch that you *keep* holds a file open, so keep a `.clone()` instead.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **04f** Tempting: 2. The answer is 5 or more, because a spawned worker imports torch.
# - **04g** Tempting: 1, because "numpy is fast anyway", or 2, the number of workers. The answer depends on the
#   machine. On virtual machines it can be 10 or more.
# - **04h** Tempting: 0, because the list is only read. The list itself takes about 30 MB. The answer is about half of
#   this, because each worker copies the half that it reads.
# - **04i** Tempting: 24, or better 48. The answer is 56, because one batch is in use.
#
# **Goes wrong.**
#
# - In 4.3: `np.array(strings)`, which takes four bytes for each character and the length of the longest string for
#   all; positions counted in characters; keeping the list as well; `for text in s` that never ends. Ask how many bytes
#   an ß takes.
#
# **Extra.** Use these sections as homework, or to answer a question. 4.3 is about memory, and 4.4 is about random
# numbers.

# %% [markdown]
# ## Random numbers
#
# You may have read that `np.random` repeats in all workers. It used to, but PyTorch now seeds it in each worker. NumPy
# would rather have you use your own generator, and that brings the old trouble back if you create it in `__init__`:
# it's copied to every worker, and all copies draw the same numbers.

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
cu.predict(
    "04j", "Two workers draw 8 shifts in an epoch. How many of them are different?", unit="of 8"
)

# %%
shifts = DataLoader(Shifts(8), batch_size=2, num_workers=2)
epochs = [[int(shift) for batch in shifts for shift in batch] for _ in range(2)]
print(*epochs, sep="\n")
cu.reveal("04j", len(set(epochs[0])))

# %% [markdown]
# Every worker gets a copy of the same generator, in this epoch and in the next. PyTorch doesn't know about it. It
# seeds its *own* generator in each worker, with a new seed in each epoch, and all these seeds follow from
# `torch.manual_seed` in the notebook. Without workers, the generator of the notebook simply continues.

# %% [markdown]
# ### Exercise 4.4 · 5 min · ●○○
#
# Repair `Shifts`. These are the targets, with workers and without:
#
# - all shifts of an epoch differ, even if `ConcatDataset` joins two of your datasets;
# - the next epoch draws different shifts;
# - the same dataset draws the same shifts again after the same `torch.manual_seed`;
# - each integer below `below` is equally likely, and other code in the process is not affected.
#
# <details><summary>Hint 1: with torch</summary>
#
# `torch.randint(self.below, ())` draws from PyTorch's generator. Call it in `__getitem__`.
#
# </details>
# <details><summary>Hint 2: with numpy</summary>
#
# If only NumPy can draw what you need, create a generator for each sample, and let PyTorch draw its seed:
# `np.random.default_rng(int(torch.randint(2**63 - 1, ())))`.
#
# </details>

# %%
# %%worker_module my_shifts
import numpy as np
import torch
from torch.utils.data import Dataset


class MyShifts(Dataset):
    def __init__(self, length: int, below: int = 1_000_000):
        self.length = length
        self.below = below

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        """Return a random integer from 0 to self.below - 1."""
        ### BEGIN SOLUTION
        rng = np.random.default_rng(int(torch.randint(2**63 - 1, ())))
        return int(rng.integers(self.below))
        ### END SOLUTION


# %%
cu.check("04.4", MyShifts)

# %% [markdown]
# Our version is `worker_rng` in `keepfed/src/keepfed/loaders/workers/worker.py`. It returns such a generator wherever
# you call it.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **04j** Tempting: 8, because PyTorch seeds its workers. But it doesn't know this generator, which was copied. The
#   answer is 4.
