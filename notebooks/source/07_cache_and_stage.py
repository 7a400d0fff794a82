# %% [markdown]
# # 07 · Cache and stage to /dev/shm
#
# {here: read}
#
# **You will do:** break a script that stages data, then write a cache that all workers share.
#
# **You will learn:**
#
# - where data can be stored, and what deletes or evicts them there;
# - when a copy in `/dev/shm` pays, what it gains, and what it does not; <!-- 07a 07b -->
# - how a partial copy is mistaken for a whole one; <!-- 07c 7.1 -->
# - to keep samples in memory that workers share. <!-- 07d 7.2 -->
#
# **You need:** notebooks 01, 02 and 04. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("07")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *6 min* **The ladder of places.** Prediction 07a. Ask who has ever cleared a page cache before measuring.
# - *3 min* **When staging pays.** Prediction 07b, by arithmetic.
# - *6 min* **A script that stages.** Prediction 07c. Read the script aloud, line by line, and let the room find what
#   can go wrong in each line.
# - *20 min* **What does not fit.** Prediction 07d, then exercise 7.2.
# - *3 min* **What /dev/shm costs.** Ask where a byte of `/dev/shm` is stored. Unstage before you continue.
#
# **Leave out.** Prediction 07b. Calculate it together, on the board.
#
# **Board.** Draw five rungs: network, NVMe, page cache, `/dev/shm`, your own array. For each rung, ask what deletes
# your data there, and when. The answer matters more than the speed.

# %% [markdown]
# ## The ladder of places
#
# Where will your data still be in the next epoch?
#
# | Place | What it is | What removes your data |
# |---|---|---|
# | array in your process | memory | the end of the process |
# | page cache | free memory that the kernel uses for files | the kernel, at any time |
# | `/dev/shm` | a file system in memory | you, or on some systems the end of the job |
# | local NVMe | a disk in the node | often the batch system, after the job |
#
# The cluster's shared storage is slower than all of these, but by how much? Let's read 2,000 events in random order
# from four emulated storage systems and two real places. Our files are in the page cache, because they were read
# before, and `stage_to_shm` *stages* them: it copies them to `/dev/shm`. All times contain the same Python time, and
# the emulated ones add the waiting.

# %%
cu.predict("07a", "How many times faster is /dev/shm than a warm page cache?", unit="times")

# %%
from course_utils.stories.data_places import emulated_s, warm_s
from course_utils.stories.figures import dots
from keepfed.loaders.staging import stage_to_shm

folder = cu.data_path("events", "S")  # the small set: 2,000 events
staged = stage_to_shm(folder, progress=False)
warm, shm = warm_s(folder, staged.path)
presets = "S3", "busy Lustre", "NFS", "laptop SSD"
rungs = {f"emulated {name}": emulated_s(folder, name) + warm for name in presets}
rungs |= {"page cache": warm, "/dev/shm": shm}
dots(rungs, "seconds for an epoch, loading only", "{:.2g} s".format)

# %%
cu.reveal("07a", warm / shm)

# %% [markdown]
# Both are equally fast, apart from noise, because both are in memory. Staging speeds up your training only if the
# data came from slower storage before. Then why stage? **You don't stage to beat a warm cache. You stage so that
# your data can't go cold.** The page cache is a loan that the kernel may call in, but in `/dev/shm` no other job and
# no large copy evicts your data.
#
# Remember the cliff of notebook 02? If the data are slightly too large for the page cache and you read them again
# and again in the same order, you never find them there, because the cache evicts what was *least recently used*
# (LRU). There are two ways out: **stage** what fits into memory, otherwise keep what fits and **never evict** it.
#
# ## When staging pays
#
# A copy costs time once but saves time in every epoch, so it has paid after
#
# $$n = \frac{t_\text{stage}}{t_\text{cold epoch} - t_\text{staged epoch}}$$
#
# epochs. Compare 2,000 small files on NFS with one large file on busy Lustre. <!-- given -->

# %%
cu.predict("07b", "The 2,000 small files: after how many epochs has staging paid?", unit="epochs")

# %%
from course_utils.loading.events import MemmapEvents, NpzEvents
from course_utils.stories.data_places import break_even

cases = {
    "2,000 files on NFS": break_even("NFS", NpzEvents, folder, "npz"),
    "one file on Lustre": break_even("busy Lustre", MemmapEvents, folder, "npy"),
}
for name, (stage_s, cold_s) in cases.items():
    waits = f"{stage_s:.1f} s to stage, {cold_s:.1f} s for a cold epoch"
    print(f"{name}: {waits}, so staging has paid after {stage_s / cold_s:.2f} epochs")

# %%
stage_s, cold_s = cases["2,000 files on NFS"]
cu.reveal("07b", stage_s / cold_s)

# %% [markdown]
# Staging small files opens each of them, as an epoch does, so it costs about one epoch. The large file is copied
# with a few requests, but an epoch of random reads makes hundreds, so staging has paid before the first epoch ends.
# So pack first, then stage. But if the page cache holds everything, or workers overlap the loading with the
# training, it *never* pays.
#
# ## A script that stages
#
# Three lectures on fast loading stage like this:

# %%
from course_utils.stories.staging_scripts import (
    COMMON_SCRIPT,
    REPAIRED_SCRIPT,
    run_script,
    truncated_copy,
)

print(COMMON_SCRIPT)

# %% [markdown]
# It looks harmless, until the batch system kills your job while `cp` is running. You submit it again, it runs the
# same script and reads the pulses with `np.memmap`.

# %%
CHOICES = ["all pulses", "half of them, without an error", "nothing: there is an error"]
cu.predict("07c", "What does the second job read?", choices=CHOICES)

# %%
import numpy as np

source, shm = truncated_copy(folder)  # a killed cp leaves this
copy = run_script(COMMON_SCRIPT, source, shm)
pulses, wanted = (np.memmap(path, np.float32).size // 4 for path in (copy, source))
print(f"{pulses:,} of {wanted:,} pulses")

# %%
cu.reveal("07c", CHOICES[0 if pulses == wanted else 1 if pulses else 2])

# %% [markdown]
# `[ ! -e ]` only tests whether *any* file exists, and half a file is a file. The script has more faults:
#
# - Two jobs on a node write into the same file.
# - It doesn't check the free space.
# - A space in the name breaks it.
# - It removes nothing.
#
# Three ideas make it safe:
#
# - A file with the **final name** is always whole. Copy to another name in the same folder and then rename it, which
#   happens at once. (Between two file systems, `mv` copies.)
# - A **lock** that ends with its process lets one job copy, while others wait.
# - A copy is **compared** with its source: size and time before it's used again, bytes after it was copied.

# %%
print(REPAIRED_SCRIPT)
copy = run_script(REPAIRED_SCRIPT, source, shm)
print(f"\n{np.memmap(copy, np.float32).size // 4:,} of {wanted:,} pulses")

# %% [markdown]
# `stage_to_shm` does all this, and so does `keepfed stage PATH` in a terminal. (In exercise 7.1, you write it in
# Python.)
#
# ## What does not fit
#
# Keep the samples that fit. A simple cache needs few lines:


# %%
# %%worker_module keeps
from torch.utils.data import Dataset


class Keeps(Dataset):
    def __init__(self, dataset):
        self.dataset, self.kept = dataset, {}

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int):
        if index not in self.kept:
            self.kept[index] = self.dataset[index]
        return self.kept[index]


# %%
cu.predict("07d", "64 files, two workers: how many does the second epoch read again?", unit="files")

# %%
from torch.utils.data import DataLoader, Subset

from course_utils.loading.events import NpzEvents, pad_collate
from keepfed.loaders.cache import SampleCache

nfs = cu.slow_storage(folder, "NFS", cache_mb=0)
few = Subset(NpzEvents(folder, fs=nfs), range(64))


def requests_of_epochs(dataset):
    loader, requests = DataLoader(dataset, 16, num_workers=2, collate_fn=pad_collate), []
    for _ in range(2):
        nfs.reset_counters()
        list(loader)
        requests.append(nfs.counters().requests)
    return requests


in_a_dict, shared = requests_of_epochs(Keeps(few)), requests_of_epochs(SampleCache(few, 5))  # MB
print("requests in two epochs:", in_a_dict, "in a dict,", shared, "in a SampleCache")

# %%
cu.reveal("07d", in_a_dict[1])

# %% [markdown]
# All 64 of them. Each worker filled the dict of its own copy of the dataset, and the copies ended with the epoch.
# The cache died before anybody could use it. Data that must survive the epoch belong in **shared memory** that's
# created before the workers start, as in our `SampleCache`.
#
# `share_memory_()` moves a tensor to shared memory. Your cache may *seem* to work without it, because under
# `forkserver` and `spawn` the dataset is pickled for the workers, and pickling moves its tensors to shared memory.
# Under `fork` nothing is pickled, so a worker's plain tensor is lost.
#
# `SampleCache` never evicts, so if 40 % of the samples fit, 40 % are found in every later epoch: <!-- given --> the
# share of hits is the share that fits, in any order, and there's no cliff.
#
# ### Exercise 7.2 · 10 min · ●●○
#
# Write your own cache, around a dataset whose tensors all have the same shape and dtype. Targets:
#
# - It keeps at most `budget` bytes of samples and never evicts one.
# - From the second epoch on, it makes one request for each sample that doesn't fit, and none for the others, even if
#   workers fill it, with any start method.
# - It stays right if a returned sample is changed, if a read fails, or if two workers read the same sample at once.
#
# <details><summary>Hint 1: what to keep</summary>
#
# Keep one tensor for the samples, and one of `torch.bool` that records which samples are cached. Both need
# `.share_memory_()`.
#
# </details>
# <details><summary>Hint 2: where to keep it</summary>
#
# Without a lock, two workers that look for the next free place may get the same one. But you need no lock if sample
# i has place i, and samples from `budget // dataset[0].nbytes` on have no place.
#
# </details>
# <details><summary>Hint 3: in which order</summary>
#
# Read the sample, store it, and mark it as cached in the next line, because the read may fail.
#
# </details>


# %%
# %%worker_module my_cache
import torch
from torch.utils.data import Dataset


class Cached(Dataset):
    def __init__(self, dataset, budget: int):
        self.dataset = dataset
        ### BEGIN SOLUTION
        first = dataset[0]
        places = min(len(dataset), budget // first.nbytes)
        self.kept = torch.zeros(places, *first.shape, dtype=first.dtype).share_memory_()
        self.here = torch.zeros(places, dtype=torch.bool).share_memory_()
        ### END SOLUTION

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> torch.Tensor:
        ### BEGIN SOLUTION
        if not 0 <= index < len(self.here):
            return self.dataset[index]
        if not self.here[index]:
            self.kept[index] = self.dataset[index]
            self.here[index] = True
        return self.kept[index].clone()
        ### END SOLUTION


# %%
cu.check("07.2", Cached)

# %% [markdown]
# Cache a sample *before* its random augmentation, because a cached augmentation is frozen and every epoch sees the
# same crop.
#
# ## What /dev/shm costs
#
# An empty `/dev/shm` costs nothing. Fill it, and every byte counts against *your* job's memory: cross the limit and
# the kernel kills you, not the file. By default it may grow to half the machine's memory (64 MB in Docker), and
# don't forget that your workers already park their batches there.
#
# How long do the files stay? On many systems, until you remove them. Some clusters use Slurm's
# `job_container/tmpfs`, which gives each job a private `/dev/shm` and empties it when the job ends, so jobs can't
# share a copy. On a workstation, systemd may remove your files when you log out, and if the node has swap, the
# kernel may move them to disk. Ask your computing center, and remove what you staged:

# %%
staged.unstage()

# %% [markdown]
# How many MB can you stage without killing your job? The smaller of two limits counts: the size of `/dev/shm`, and
# the memory of the job without its program and its workers. Each worker keeps `prefetch_factor` batches ready in
# `/dev/shm` and the loop uses one more, so subtract these batches from both limits. For your machine:

# %%
from course_utils.hardware.machine import memory, memory_free
from keepfed.loaders.workers import shm_budget

batch = pad_collate([few[event] for event in range(16)])
shm_budget(batch, num_workers=2, programs_bytes=memory() - memory_free())  # memory in use now

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **07a** Tempting: 10 or more, because a file system in memory sounds faster than a cache for files. It's about 1,
#   because both are memory.
# - **07b** Tempting: 2 or 3, because a copy is extra work. It's about 1, because staging small files opens each of
#   them, as an epoch does.
# - **07c** If somebody expects an error, ask which line would raise it. The second job reads half of the pulses.
# - **07d** Tempting: 0, because "they're in the cache". It's all 64. Notebook 04 has the reason: each worker has its
#   own copy.
#
# **Goes wrong.**
#
# - In 7.2, look for a counter of free places, which each worker has for itself, and for tensors that only pickling
#   shares, which fails under fork. Ask in which process that line writes.
# - A container with 64 MB of `/dev/shm` has space for all of this, but not for more workers. Start it with
#   `--shm-size=2g`.

# %% [markdown]
# ## You now can
#
# - say what removes your data in each place, and after how many epochs staging has paid;
# - stage a file so that a kill, a full disk or a second job leaves nothing broken;
# - keep samples in memory that all workers share, and say how much memory they may use.
#
# Next: [08 Augment on the CPU or on the GPU](08_augment_on_cpu_or_gpu.ipynb), because the random part can't be
# cached.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs the sections below, and each section needs only the core.
#
# ## Stage a file yourself
#
# Python has everything that the repaired script needs.
#
# ### Exercise 7.1 · 20 min · ●●●
#
# `stage(source, place)` copies a file into a folder and returns the path of the copy. Your job may only read the
# folder of the source. The check isn't kind: it kills the job while it copies, gives it too little space, runs it
# twice at once, and changes the source. It takes some seconds. Targets:
#
# - A file with the final name is always whole. An old copy keeps its name until a new one replaces it.
# - No partial copy remains, neither after an error nor after a killed job, once the next job has finished. The
#   caller gets the error.
# - The file is copied once, however many jobs need it, and again only if the source changes, even while it's copied.
#
# <details><summary>Hint 1: the order of things</summary>
#
# Take the lock. If a good copy exists, return it. Otherwise copy to another name *in the same folder*, then
# `os.replace(half, target)`.
#
# </details>
# <details><summary>Hint 2: the lock</summary>
#
# `with FileLock(f"{target}.lock"):` ends with its process, however the process ends. A lock file that you create and
# delete yourself stays if the job is killed.
#
# </details>
# <details><summary>Hint 3: a good copy</summary>
#
# A copy is good if its `st_size` and `st_mtime_ns` equal those of the source. `os.stat` reads no data. Read the time
# *before* you copy, and give it to the copy with `os.utime`, because `shutil.copy2` reads it afterwards.
#
# </details>


# %%
# %%worker_module my_staging
import os
import shutil
from pathlib import Path

from filelock import FileLock


def stage(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    ### BEGIN SOLUTION
    half = target.with_name(f"{target.name}.part")
    with FileLock(f"{target}.lock"):
        was = os.stat(source)
        if target.exists():
            now = target.stat()
            if (now.st_size, now.st_mtime_ns) == (was.st_size, was.st_mtime_ns):
                return str(target)
        try:
            shutil.copyfile(source, half)
            os.utime(half, ns=(was.st_atime_ns, was.st_mtime_ns))
            os.replace(half, target)
        finally:
            half.unlink(missing_ok=True)
    return str(target)
    ### END SOLUTION


# %%
cu.check("07.1", stage)

# %% [markdown]
# ## A cache of fsspec
#
# `fsspec` has a cache of whole files, `filecache::`, and you only add a prefix or wrap the file system:

# %%
import tempfile

import fsspec

from course_utils.loading.events import MemmapEvents
from course_utils.stories.data_places import epoch_s

slow = cu.slow_storage(folder, "busy Lustre", cache_mb=0)
room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
cached = fsspec.filesystem("filecache", fs=slow, cache_storage=room.name)
for epoch in range(2):
    slow.reset_counters()
    epoch_s(MemmapEvents(folder, fs=cached))
    print(f"epoch {epoch}: {slow.counters()}")

# %% [markdown]
# The second epoch makes no requests. But this cache has no size limit and no lock, and it writes directly to the
# final name, so if you interrupt a cell while it copies, the same kernel uses the partial file as if it were whole.
# And without `check_files=True`, the cache doesn't notice a changed source for a week.
#
# ## Before the random part
#
# Should you cache before or after an augmentation? Let's try, with a random stretch of 32 pulses as a crop.


# %%
# %%worker_module random_stretches
import torch
from torch.utils.data import Dataset


class RandomStretches(Dataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> torch.Tensor:
        pulses = self.dataset[index]["pulses"]
        first = torch.randint(len(pulses) - 31, ())
        return pulses[first : first + 32]


# %%
cu.predict(
    "07e",
    "An event is cached after its random stretch was cut. How many different stretches does the "
    "model see in eight epochs?",
)

# %%
events = MemmapEvents(folder)
long = int(np.diff(events.offsets).argmax())
orders = {
    "cut, then cached": Keeps(RandomStretches(events)),
    "cached, then cut": RandomStretches(Keeps(events)),
}
stretches = {
    name: len({dataset[long].numpy().tobytes() for _ in range(8)})
    for name, dataset in orders.items()
}
print(stretches)

# %%
cu.reveal("07e", stretches["cut, then cached"])

# %% [markdown]
# Cached after the random part, the augmentation is frozen: it costs as much as before and gains nothing. So cache
# what's expensive and always the same, for example decoded and resized images, and crop and rotate after that.
#
# ## Many nodes
#
# With several nodes, there's one more reason to stage. If one reader already uses the full bandwidth of a shared
# server, eight readers get an eighth each. But every node has its own NVMe disk, and the copy to all nodes uses the
# shared bandwidth only once. Courses of the Jülich Supercomputing Centre say that [copying ImageNet-21k to
# `$SCRATCH` takes more than 21
# minutes](https://helmholtzai-fzj.github.io/2023-deep-learning-for-neuroscience/02-speedup-data-loading.html), and
# advise [`/dev/shm` for data below 500
# GB](https://helmholtzai-fzj.github.io/2025-06-course-Bringing-Deep-Learning-Workloads-to-JSC-supercomputers/02-speedup-data-loading.html).
#
# Checkpoints use the same bandwidth in the other direction, and all nodes wait while one is written. So write it to
# the node first, then move it while the training continues.
#
# Large machines also improve the shared storage itself:
#
# - **Lustre** spreads a large file over many servers, but a metadata server handles every open. It's built for few
#   large files, and its speed is divided among all users.
# - **Burst buffers** are SSDs between the nodes and the parallel file system. A job gets them for its
#   run time. [Cori's burst buffer](https://docs.nersc.gov/filesystems/cori-burst-buffer/) had 1.8 PB and a
#   peak bandwidth of over 1.7 TB/s.
# - **[DAOS](https://github.com/daos-stack/daos)** is an object store made for NVMe and for small random requests.
#   A file system is only one of its interfaces.
# - **[3FS](https://github.com/deepseek-ai/3FS)** of DeepSeek connects the SSDs of many nodes by a fast
#   network. A read test on 180 storage nodes gave 6.6 TiB/s. Its authors say that data then need no shuffling in advance,
#   because the hardware makes random access fast.
# - **[CernVM-FS](https://cernvm.cern.ch/fs/)** provides software in the read-only folder `/cvmfs`. A node fetches
#   each file over HTTP when it's first used, and caches it. Use CernVM-FS for software environments with many small
#   files, but not for training data.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **07e** Tempting: 8, one per epoch. It's 1, because a cached random stretch never changes.
#
# **Goes wrong.**
#
# - In 7.1 the temporary name is the easy part. Look for a lock that's taken after the copy was inspected, and for
#   the partial file of a full disk. If somebody moves the copy in from `/tmp`, ask what a rename between two file
#   systems does.
#
# **Extra.** 7.1 (20 minutes, homework), `filecache` (2), augmentation (2), many nodes (2).
