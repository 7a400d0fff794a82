# %% [markdown]
# # 04 · Use workers and prefetching wisely
#
# **You will do:** ask workers where they are, find out how many help, and mend what goes wrong.
#
# **You will learn**
#
# - what a worker knows of your dataset, and what its start costs,
# - how many workers a loader needs, and what limits them,
# - to open files in workers, and to read what a failing worker says.
#
# **You need:** notebooks 01 and 02. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("04")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *3 min* **A worker is a process.** Prediction 04a. Draw the boxes while the cell runs.
# - *3 min* **What a start costs.** Point at the empty beginning of the first epoch, and at the second
#   one that has none.
# - *14 min* **How many workers?** Predictions 04b and 04c; `course demo workers` shows both on the
#   wall. The three lines of the table, then exercise 4.1.
# - *3 min* **Bound to one core.** Prediction 04d. Ask who has looked at the binding of a job of
#   theirs.
# - *11 min* **Files.** Show the wrong rows, ask why nobody would notice, then exercise 4.2.
# - *2 min* **When a worker fails, and the finished loader.** Prediction 04e; read the finished loader
#   line by line.
#
# **Board.** A box *notebook* and two boxes *worker*, each with its own small box *dataset*. An arrow
# with numbers to each worker, one arrow with batches back. Everything in this notebook is a question
# about that picture: in which box is it, and which arrow does it take?

# %% [markdown]
# ## A worker is a process
#
# `num_workers=2` starts two more Pythons. Each has a copy of your dataset in its own memory, and a queue with the
# numbers of its next samples. Finished batches come back through another queue.
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
# Each worker counted in its own copy; yours was never touched. The second epoch has new processes, which count
# from 1 again: the old copies are gone, with any cache that `__getitem__` filled. What all processes are to share
# has to lie in **shared memory** before they start: `torch.zeros(1000).share_memory_()`.
#
# ## What a start costs
#
# A worker that is **spawned**, as a fresh Python, imports torch, and that takes seconds. (The course uses a
# quicker way, see the extra part.) Here one spawned worker reads events from an emulated, busy Lustre, for two
# short epochs.

# %%
from torch.utils.data import Subset

from course_utils.loading.events import NpzEvents, pad_collate
from keepfed.measure.trace import Trace

folder = cu.data_path("events", "S")
lustre = cu.slow_storage(folder, "busy Lustre", cache_mb=0)
reading = NpzEvents(folder, fs=lustre)  # a file for each event
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
# The second epoch does not wait for its worker: `persistent_workers=True` kept it. Without that option each epoch
# would begin like the first one. A worker that is kept also keeps its copy of the dataset: what you change in the
# notebook later does not reach it.
#
# ## How many workers?
#
# Our first workers *wait* for the emulated Lustre, which serves 8 requests at a time. The next ones *compute*:
# they decode photographs.

# %%
from torch.utils.data import Dataset, RandomSampler

from keepfed.loaders.images import Jpegs
from keepfed.measure.throughput import steady_rate

decoding = Jpegs(cu.data_path("images"))


def rate(dataset: Dataset, batch_size: int, workers: int, **options) -> float:
    """Return the batches per second of a loader, once its workers are running."""
    order = RandomSampler(dataset, num_samples=100 * batch_size)
    loader = DataLoader(dataset, batch_size, sampler=order, num_workers=workers, **options)
    return steady_rate(loader, seconds=0.7).batches_per_s


# %%
cu.predict("04b", "Four workers instead of one: how many times faster is reading?", unit="times")

# %%
read_rates = {w: rate(reading, 4, w, collate_fn=pad_collate) for w in (1, 2, 4)}
cu.reveal("04b", read_rates[4] / read_rates[1])

# %%
cu.predict("04c", "And how many times faster is decoding, on this machine?", unit="times")

# %%
decode_rates = {w: rate(decoding, 16, w) for w in (1, 2, 4)}
cu.reveal("04c", decode_rates[4] / decode_rates[1])

# %% [markdown]
# The model of notebook 02 says min(W, P) / L batches per second. For reading P is 8, as many as this storage serves
# at a time; for decoding it is the number of cores.

# %%
from course_stories.figures import rates_and_model
from course_utils.hardware.machine import usable_cores

rates_and_model(
    {"reading waits": (read_rates, 8), "decoding computes": (decode_rates, usable_cores())}
)

# %% [markdown]
# Many can wait at the same time; only as many can compute as there are cores. The notebook itself needs a bit
# of a core, too.
#
# <details><summary>With a real GPU it needs a whole core</summary>
#
# A program that waits for our emulated GPU sleeps meanwhile. On CUDA it keeps asking whether the GPU is done, and that
# keeps a core busy. So count one core less for the workers there.
#
# </details>
#
# Most batches do both: they wait `read_ms` for the storage **and** compute `cpu_ms` on a core. Then one P is
# not enough, since three things can be too slow:
#
# | What | Batches per ms, at most |
# |---|---|
# | W workers, each busy for L = `read_ms` + `cpu_ms` with a batch | W / L |
# | the storage, which serves `streams` batches at a time | `streams` / `read_ms` |
# | the cores | `cores` / `cpu_ms` |
#
# The smallest number decides. The GPU takes 1 / C, where C is `step_ms`. **W = ceil(L / C)** workers are enough for
# the first line. Where another line is too small, no number of workers helps.

# %% [markdown]
# ### Exercise 4.1 · 10 min · ●●○
#
# Times are per batch. A worker takes `worker_mb` of memory and keeps `prefetch_factor` batches ready; the loop
# holds one more, which is in use.

# %%
from course_exercises.nb04.problem import MACHINES, Machine, table

print(table(MACHINES))

# %% [markdown]
# Return the smallest W that keeps the GPU busy and fits into `free_mb`, or `None` where no W does. The check
# tries these machines and sixty more.
#
# <details><summary>Hint 1: enough</summary>
#
# One worker needs L = `read_ms + cpu_ms` for a batch, so W of them deliver one every L / W. Round up:
# `math.ceil`.
#
# </details>
# <details><summary>Hint 2: what forbids it</summary>
#
# The cores need `cpu_ms / cores` for each batch and the storage `read_ms / streams`, however many workers there
# are. Neither may be longer than `step_ms`.
#
# </details>
# <details><summary>Hint 3: the memory</summary>
#
# W workers hold `W * (worker_mb + prefetch_factor * batch_mb)`, and the loop holds one batch more.
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
# - **04a** Those who know say 0; the others say the number of samples.
# - **04b** Mostly right: about 4.
# - **04c** "Four workers, four times". It is the number of cores at most, so 2 or less on two cores.
#   On a machine with 8 cores it *is* nearly four; then let them raise the numbers of workers until it
#   bends.
# - **04d** Four workers, so "four times". It is about the number of cores that they had before, and
#   no more.
# - **04e** "It raises an error" is what one would want. It waits for ever.
#
# **Goes wrong.**
#
# - In 4.1: "never more workers than cores". The cluster node has 4 and needs 8, which wait.
# - In 4.1 somebody takes the P of the plot, the smaller one of cores and streams, or forgets that
#   None is an answer.
# - In 4.2 the file is opened in `__init__`, or once for all by a class attribute. Ask in which box of
#   the board that line runs.

# %% [markdown]
# ## Bound to one core
#
# A batch system **binds** your job to some cores, and workers inherit that. With a wrong option all of them share
# one core. Let us do that to our decoding workers.


# %%
# %%worker_module binding
import os


def to_one_core(worker: int) -> None:
    """Bind this worker to the first core that it may use, where the system can."""
    if hasattr(os, "sched_setaffinity"):  # on Linux
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


# %%
cu.predict("04d", "How many times slower do four workers decode on one core?", unit="times")

# %%
bound = rate(decoding, 16, 4, worker_init_fn=to_one_core)
slower = decode_rates[4] / bound
cu.reveal("04d", slower if hasattr(os, "sched_setaffinity") else "possible on Linux only")

# %% [markdown]
# Your ratio cannot exceed your number of cores. A lecture on data pipelines by the supercomputing centre
# [ALCF](https://www.alcf.anl.gov) shows 6 s of reading when threads had cores of their own, and 30 s when all shared
# one; preprocessing took 19 s and 89 s.
#
# So count your cores inside a job: `len(os.sched_getaffinity(0))` on Linux. Slurm's `--cpus-per-task=8` asks for
# more; with `mpiexec` it is `--cpu-bind depth -d 8`. <!-- given -->
#
# A container may have fewer than this says. `docker run --cpus=2` and Kubernetes let it see all cores, but once its
# share is used up they stop it for the rest of that tenth of a second. PyTorch's warning about too many workers does
# not know of such a limit; `usable_cores()` above does. <!-- given -->
#
# ## Files
#
# A worker can also be **forked**, as a copy of the running Python. Then it shares all files that are open, with
# their *position*: one worker seeks, another one seeks, and the first one reads in the wrong place. Here two
# forked workers read rows that hold their own numbers:

# %%
from course_stories.worker_traps import show

one_handle = show("one_handle", fixed=False)
print(one_handle.numbers or one_handle.demo.ending)

# %% [markdown]
# There is no error, and in training nobody would notice so few wrong rows (in some runs there are none). Under
# spawn you get `TypeError: cannot pickle`. The cure for both is to open the file in the process that reads.

# %% [markdown]
# ### Exercise 4.2 · 10 min · ●●○
#
# Write a dataset on a file of rows of 8 numbers (int64). The notebook uses it first, then workers, however
# they start. Target: each of these processes opens the file once, and no row is wrong.
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
cu.check("04.2", Rows)

# %% [markdown]
# Ours is `LazyFile` in `keepfed/loaders/workers/worker.py`; it opens HDF5 and SQLite, too.
#
# ## When a worker fails
#
# An exception in `__getitem__` reaches you with its traceback. But some things cannot be *sent*.

# %%
cu.predict(
    "04e",
    "A sample contains a lock, which cannot be pickled. What does the loop do?",
    choices=["raises an error", "leaves the sample out", "waits for ever"],
)

# %%
hang = show("unpicklable", fixed=False, seconds=5).demo
hang

# %%
cu.reveal("04e", "waits for ever" if "Stopped" in hang.ending else "raises an error")

# %% [markdown]
# A thread of the worker pickles the batch. It prints its error, drops the batch and goes on; the loop never hears
# of it. So send tensors, arrays, numbers and strings. Other failures say more:
#
# - `Can't get attribute 'MyDataset' on <module '__main__'`: the worker looked for your class in *its* `__main__`,
#   which is empty. So such cells begin with `%%worker_module`.
# - `exited unexpectedly`, `Segmentation fault`: run your script by `python -X faulthandler` with `num_workers=0`,
#   and the traceback says where.
# - Anything else: `course why "what it says"` in a terminal, or [appendix A](A_field_guide.ipynb), knows fifty messages and what to do.
# - You interrupted a loop (■): its workers end, but the traceback keeps their batches. This clears them away:

# %%
cu.cleanup_workers()  # it also ends the persistent worker from above

# %% [markdown]
# ## The finished loader

# %%
from keepfed.loaders.workers import worker_init

loader = DataLoader(
    reading,
    batch_size=4,
    collate_fn=pad_collate,
    num_workers=2,
    persistent_workers=True,  # they start once
    pin_memory=True,  # from there a GPU fetches a batch while the CPU goes on: notebook 09
    prefetch_factor=2,  # batches ready: evens out loading times, makes none shorter
    timeout=60,  # seconds; a batch that never comes is an error then
    worker_init_fn=worker_init,  # one thread for each worker: see "Threads" in the extra part
)
print("pinned:", next(iter(loader))["pulses"].is_pinned())

# %% [markdown]
# `pin_memory=True` copies each batch once more, in a thread of the notebook. Without a GPU nothing is copied, and
# PyTorch warns that `no accelerator is found` (the course hides this).
#
# ## You now can
#
# - say what a worker knows, and what its start costs,
# - choose the number of workers, and say what limits them,
# - give each worker its own file, and read what a failing one says.
#
# Go on with notebook 05, or look into what is extra here.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs what follows, and each section only the core.
#
# ## Three ways to start a worker
#
# - **fork** copies the running Python. It is quick; but a lock that another thread holds at this moment is
#   copied too, and nobody will ever release the copy: such a worker hangs.
# - **spawn** starts a fresh Python. It is safe, and the only way on Windows. It imports everything again.
# - **forkserver** forks from a helper process that does nothing else. It is safe too, and the default on Linux
#   from Python 3.14 on.

# %%
cu.predict(
    "04f",
    "How many times longer does the first batch take by spawn than by the quickest way?",
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
    list(batches)  # let the worker come to its end
    return seconds


# %%
from course_stories.figures import bars

# the first worker of a forkserver waits for the server itself
start_s = {m: [first_batch_s(m) for _ in range(1 if m == "spawn" else 2)][-1] for m in methods}
bars(start_s, "seconds to the first batch of a worker")

# %%
cu.reveal("04f", start_s["spawn"] / min(start_s.values()))

# %% [markdown]
# Under spawn the worker imports torch, which takes seconds. The forkserver's helper has done so already, **if it
# was told before its first worker**: that is the line with `set_forkserver_preload`. `cu.ready` chooses this method
# and tells the helper, on every system that has it.
#
# ## When workers do not help
#
# A batch from a worker is packed, sent and unpacked. For small samples that is more work than making them.
# Here are rows of 16 numbers:

# %%
import torch
from torch.utils.data import BatchSampler, TensorDataset

from course_stories.figures import bars

rows = TensorDataset(torch.randn(100_000, 16))
batches = BatchSampler(RandomSampler(rows), batch_size=512, drop_last=False)
loaders = {
    "rows": DataLoader(rows, 512, shuffle=True),
    "rows, 2 workers": DataLoader(rows, 512, shuffle=True, num_workers=2),
    "whole batches": DataLoader(rows, batch_size=None, sampler=batches),
}
speed = {name: steady_rate(one, seconds=0.5).samples_per_s for name, one in loaders.items()}
bars({name: rate / speed["rows"] for name, rate in speed.items()}, "samples per second, relative")

# %% [markdown]
# Workers made it slower. What helps is to index a whole batch at once. Lists of dicts or other Python objects suffer in
# the same way, since they are pickled one by one: turn them into arrays before they travel.
#
# ## The straggler
#
# Batches are handed out in order. If one takes long, the finished ones behind it have to wait.

# %%
# %%worker_module giants
import torch
from torch.utils.data import Dataset

from course_utils.teaching.explorer import use_cpu
from keepfed.measure.spans import stage


class SomeGiants(Dataset):
    """Every seventh sample takes ten times as long."""

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
# `in_order=False` hands out what is ready. But then no run can be repeated exactly, and the giants still have to
# be loaded. It is better to find them, with a histogram as in notebook 01, and to cut them.
#
# ## Threads inside workers
#
# In a worker torch computes with one thread. The libraries below numpy and OpenCV do not know where they
# are: they take as many threads as there are cores, in *every* worker.

# %%
cu.predict(
    "04g",
    "Two workers multiply matrices with numpy. How many times faster are they when each may "
    "use one thread only?",
    unit="times",
)

# %%
from course_stories.worker_traps import compare

threads = compare("threads", seconds=12)
threads

# %%
slow, fast = (run.numbers.get("seconds", 12) for run in (threads.before, threads.after))
cu.reveal("04g", slow / fast)

# %% [markdown]
# `worker_init_fn=worker_init` did it, from `keepfed/loaders/workers/worker.py`. Its heart is one line,
# `threadpool_limits(1)` of the package `threadpoolctl`. How much it brings depends on the machine; virtual
# machines exaggerate.
#
# ## Memory: what grows
#
# Under fork a worker shares all memory with the notebook, page by page, until one of the two writes. But even
# *reading* a Python object writes: whoever looks at it raises its reference count, and lowers it afterwards.

# %%
cu.predict(
    "04h",
    "Two forked workers read a list of 300,000 file names, a half each. By how many MB does "
    "each of them grow?",
    unit="MB",
)

# %%
from course_stories.figures import bars
from course_stories.worker_traps import compare

lists = compare("strings", seconds=15)
ways = {"a list": lists.before, "packed": lists.after}
grown = {name: sum(run.numbers.values()) for name, run in ways.items()}  # no fork: 0
bars(grown, "MB by which a worker grows")

# %%
cu.reveal("04h", grown["a list"] if lists.before.numbers else "nothing: no fork on this system")

# %% [markdown]
# Each worker copied the half of the list that it read. With shuffling it would be nearly all of it, in each
# worker. This is how a job dies after an hour: `DataLoader worker (pid 1234) is killed by signal: Killed`. Two
# arrays hold the same names, and reading bytes out of an array changes no count.
#
# Under spawn and forkserver nothing is shared in the first place: each worker gets a pickled copy.

# %% [markdown]
# ### Exercise 4.3 · 10 min · ●●○
#
# Write a class that is read like a list of strings, but consists of a few objects: `len(s)`, `s[0]`, `s[-1]` and
# `for text in s` work as with a list, and an index out of range raises `IndexError`.
#
# Target: at most a tenth of the growth of a list, and at most 16 bytes per string beside its text. <!-- given -->
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
# <details><summary>Hint 3: any index</summary>
#
# `range(len(self))[index]` counts negative numbers from the end, and raises the `IndexError`.
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
        place = range(len(self))[index]
        begin, end = self.places[place], self.places[place + 1]
        return self.text[begin:end].decode()
        ### END SOLUTION


# %%
cu.check("04.3", MyStrings)

# %% [markdown]
# Ours is `PackedStrings` in `keepfed/loaders/workers/worker.py`.
#
# ## Memory: what is sent at the start
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
# ## Memory: what is on its way
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
    "04i",
    "Three workers, batches of 8 MB, prefetch_factor as it is. How many MB of batches are there "
    "while the loop works on one of them?",
    unit="MB",
)

# %%
import time

frames = Frames(128)
for number, _ in enumerate(DataLoader(frames, 8, num_workers=3)):
    if number == 4:
        time.sleep(1)  # a long step; meanwhile the workers load what they may
        megabytes = int(frames.made.sum()) - 4 * 8  # made so far, less what is used up

cu.reveal("04i", megabytes)

# %% [markdown]
# W × `prefetch_factor` are ready, and one is in use. They lie in `/dev/shm`, of which a container gets 64 MB.
#
# - `unable to allocate shared memory(shm) ...: No space left on device`, or `Bus error`: start the container
#   with `docker run --shm-size=2g`, or have fewer or smaller batches on their way.
# - `Too many open files`: each batch that you *keep* holds a file open. Keep a `.clone()` instead.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **04f** Most say 2. It is five and more: a spawned worker imports torch.
# - **04g** Most say 1, since "numpy is fast anyway", or 2, the number of workers. It depends on the
#   machine, and on virtual ones it can be ten and more.
# - **04h** Many say 0, since "it is only read"; the list itself takes about 30 MB. It is about
#   half of that, for each worker copies the half that it reads.
# - **04i** 24 is the usual answer, 48 the good one; the 56 have the batch in use.
#
# **Goes wrong.**
#
# - In 4.3: `np.array(strings)`, which takes four bytes for each character and the room of the
#   longest; offsets counted in characters; keeping the list as well; `for text in s` that never ends.
#   Ask what the ß takes in bytes.
# - `Bus error`, or "No space left on device": a container has 64 MB of `/dev/shm`. Start it with
#   `--shm-size=2g`.
#
# **Extra.** Homework, or an answer to somebody who asks. 4.3 is about memory, 4.4 about random
# numbers.

# %% [markdown]
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
cu.predict(
    "04j", "Two workers draw 8 shifts in an epoch. How many of them are different?", unit="of 8"
)

# %%
shifts = DataLoader(Shifts(8), batch_size=2, num_workers=2)
epochs = [[int(shift) for batch in shifts for shift in batch] for _ in range(2)]
print(*epochs, sep="\n")
cu.reveal("04j", len(set(epochs[0])))

# %% [markdown]
# Every worker got a copy of the same generator, and so do those of the next epoch. PyTorch looks after its *own*
# generator: each worker gets a seed of its own, a new one in each epoch, and all of them follow from
# `torch.manual_seed` in the notebook. Without workers it simply goes on.

# %% [markdown]
# ### Exercise 4.4 · 5 min · ●○○
#
# Repair `Shifts`. These are the targets, with workers and without:
#
# - all shifts of an epoch differ, also where `ConcatDataset` joins two of your datasets,
# - the next epoch brings others,
# - the same dataset after the same `torch.manual_seed` brings the same ones again.
#
# <details><summary>Hint 1: with torch</summary>
#
# `torch.randint(1_000_000, ())` draws from PyTorch's generator. Call it in `__getitem__`.
#
# </details>
# <details><summary>Hint 2: with numpy</summary>
#
# Where only numpy can draw what you need, make a generator for each sample, and let PyTorch draw its seed:
# `np.random.default_rng(int(torch.randint(2**63 - 1, ())))`.
#
# </details>

# %%
# %%worker_module my_shifts
import numpy as np
import torch
from torch.utils.data import Dataset


class MyShifts(Dataset):
    def __init__(self, length: int):
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        """Return a random integer below 1,000,000."""
        ### BEGIN SOLUTION
        rng = np.random.default_rng(int(torch.randint(2**63 - 1, ())))
        return int(rng.integers(1_000_000))
        ### END SOLUTION


# %%
cu.check("04.4", MyShifts)

# %% [markdown]
# Ours is `worker_rng` in `keepfed/loaders/workers/worker.py`: it returns such a generator, wherever you call it.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **04j** Whoever trusts PyTorch says 8, since it seeds workers. It seeds its own generator; this
#   one was copied, so it is 4.
