# %% [markdown]
# # 11 · Feed many GPUs and survive a restart
#
# **You will do:** train in three processes (*ranks*) at once, serve every sample once, find the rank that holds up the others, and end an epoch
# without a hang.
#
# **You will learn**
#
# - which rank serves which sample, and what `DistributedSampler` does without telling you,
# - why the slowest rank sets the pace, and how to find it,
# - why ranks wait for ever at the end of an epoch, and how to prevent it,
# - how a training goes on after a restart.
#
# **You need:** notebooks 05 and 07. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("11")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *5 min* **One script, many processes.** A run of `torchrun` starts five processes: run the cell
#   first, then ask for prediction 11a.
# - *4 min* **Who serves what.** Predictions 11b and 11c, both before the cells.
# - *10 min* **Exercise 11.1.** In pairs.
# - *3 min* **The slowest rank.** Prediction 11d, then the timeline of all ranks. Ask what a faster
#   disk in rank 0 would gain.
# - *3 min* **Uneven ends.** The cell stands still until its time is up: say so before you run it, and
#   ask who waits for whom.
# - *10 min* **Exercise 11.2.** Leave it out if time is short.
# - *5 min* **Survive a restart.** Prediction 11r. `course demo resume` kills and goes on, on the
#   wall.
#
# **Board.** Three rows of boxes, a row for each rank, a box for each batch; a vertical line wherever
# the ranks meet. Make one box of the third row long: everybody waits at its line. Then give the first
# row one box more than the others, and ask what happens at its line.

# %% [markdown]
# ## One script, many processes
#
# To train one model on many GPUs, you start the same script once for each of them. Such a process is called a **rank**. It has
# a copy of the model and a loader of its own. After each step the ranks *meet*: they average their gradients, so
# that all copies of the model stay alike. So three ranks with batches of 16 train on a **global batch** of 48. <!-- given -->
#
# This is the loop of a rank. On GPUs the ranks meet through the library NCCL, elsewhere through Gloo; the code is the same.

# %%
# %%worker_module rank_loop
import torch
import torch.distributed as dist

import course_utils as cu
from course_utils.hardware.gpu import rank_accelerator
from keepfed.measure.ranks import save_rank


def train(loader, traces):
    gpu = rank_accelerator(step_ms=20)
    gradients = torch.zeros(1000, device="cpu" if gpu.emulated else "cuda")
    with cu.record() as trace:
        for batch in trace.batches(loader, ids="event_id"):
            gpu.step(gpu.upload(batch)).item()
            with cu.stage("wait", lane="other ranks"):
                dist.all_reduce(gradients)  # DistributedDataParallel does it in backward()
                gpu.synchronize()
    save_rank(trace, traces)


# %% [markdown]
# This script calls it. In a terminal you would type `torchrun --nproc-per-node 3 train_all.py EVENTS TRACES`. It starts the script three times, and
# tells each process through its environment its rank, and how many there are. `torchrun()` below does the same.

# %%
# %%worker_module train_all
import sys

from rank_loop import train
from torch import distributed
from torch.utils.data import DataLoader

from course_utils.loading.events import MemmapEvents, pad_collate

if __name__ == "__main__":
    folder, traces = sys.argv[1:]
    distributed.init_process_group()
    train(DataLoader(MemmapEvents(folder), 64, shuffle=True, collate_fn=pad_collate), traces)
    distributed.destroy_process_group()

# %%
cu.predict(
    "11a",
    "Three ranks each shuffle the same 2,000 events. Of all the events that they serve in an epoch, "
    "what share is distinct?",
    unit="%",
)

# %%
import tempfile

from course_utils.teaching.notebook import torchrun
from keepfed.measure.ranks import load_ranks

events = cu.data_path("events", "S")  # the small set: 2,000 events
room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
torchrun("train_all", events, f"{room.name}/all", ranks=3)

# %%
ranks = load_ranks(f"{room.name}/all")
print(ranks)
cu.reveal("11a", 100 * len(ranks.served) / ranks.served.total())

# %% [markdown]
# Every rank reads everything. Nothing fails, and three GPUs take as long for an epoch as one would.
#
# ## Who serves what
#
# `DistributedSampler` gives each rank a share. It asks torch for the rank, or takes it as an argument. With the argument we can look at all shares
# without starting a process.

# %%
cu.predict("11b", "Four ranks share 10 samples. How many are served an epoch?", unit="samples")

# %%
cu.predict("11c", "A rank goes through its sampler three times. How many different orders?")

# %%
from torch.utils.data import DistributedSampler

from course_stories.many_ranks import plot_shares

shares = [list(DistributedSampler(range(10), num_replicas=4, rank=rank)) for rank in range(4)]
plot_shares(shares)

# %%
cu.reveal("11b", sum(map(len, shares)))

# %%
sampler = DistributedSampler(range(10), num_replicas=4, rank=0)
as_it_is = [list(sampler) for epoch in range(3)]
told = []
for epoch in range(3):
    sampler.set_epoch(epoch)
    told.append(list(sampler))
print("as it is:", *as_it_is, "\ntold:    ", *told)
cu.reveal("11c", len(set(map(tuple, as_it_is))))

# %% [markdown]
# The sampler does two things without telling you:
#
# - **It pads.** All ranks need equally many batches (see below), so the first samples of the order are served once more. In a training, three more
#   in a million do no harm. In an evaluation, some samples count twice. (`drop_last=True` leaves some out instead.)
# - **It repeats the order.** It shuffles with `seed + epoch`, and does not know the epoch until it is told by `set_epoch`. The example in the
#   lecture notes that this course began with never calls it, and neither do many repositories.
#
# Workers need no care here: a sampler stays in the main process of its rank. But a *stream* is copied into every worker of every rank. There the
# shards are dealt out to ranks and workers, as in exercise 5.1; `EventShards` and `stream_shards` do so by themselves.
#
# ### Exercise 11.1 · 10 min · ●●○
#
# Write a sampler that neither pads nor drops, for evaluations, and with exercise 11.2 for trainings too. Your targets:
#
# - all ranks together serve each sample exactly once, however many there are,
# - the shares differ by one sample at most, and `len()` says how many a rank has,
# - each epoch has a new order, and the same epoch always the same order, after a restart too,
# - the random numbers of the training stay as they are.
#
# <details><summary>Hint 1: one order for all</summary>
#
# Every rank shuffles *all* samples, with a generator of its own whose seed all ranks share: `np.random.default_rng([self.seed, self.epoch])`.
#
# </details>
# <details><summary>Hint 2: shares</summary>
#
# Deal the order out like cards, as you did with shards.
#
# </details>


# %%
# %%worker_module my_sampler
import numpy as np
from torch.utils.data import Sampler


class EverySampleOnce(Sampler):
    def __init__(self, n_samples, rank, world_size, seed=0):
        self.n_samples, self.rank, self.world_size = n_samples, rank, world_size
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        ### BEGIN SOLUTION
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.n_samples)
        return iter(order[self.rank :: self.world_size].tolist())
        ### END SOLUTION

    def __len__(self):
        ### BEGIN SOLUTION
        return len(range(self.rank, self.n_samples, self.world_size))
        ### END SOLUTION


# %%
cu.check("11.1", EverySampleOnce)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **11a** Whoever expects a failure says 100. It is a third: each rank serves everything.
# - **11b** 10 is what one would want. It is 12: the sampler pads.
# - **11c** The name of the argument `shuffle=True` says 3. It is 1 until `set_epoch` is called.
#
# **Goes wrong.**
#
# - In 11.1 somebody shuffles within the share, so that a rank meets the same samples for ever. Ask
#   what rank 0 never sees.
# - In 11.1 somebody calls `torch.manual_seed`, and the training draws other numbers.

# %% [markdown]
# ## The slowest rank sets the pace
#
# Three nodes of a cluster train together. Two have staged the events on their disks (notebook 07). On the third the copy is missing: its rank reads
# from a file server, and needs longer for a batch than for a step.

# %%
# %%worker_module train_shares
import sys

from rank_loop import train
from torch import distributed
from torch.utils.data import DataLoader, DistributedSampler

import course_utils as cu
from course_utils.loading.events import MemmapEvents, pad_collate

if __name__ == "__main__":
    folder, traces = sys.argv[1:]
    distributed.init_process_group()
    storage = "NFS" if distributed.get_rank() == 2 else "laptop SSD"
    events = MemmapEvents(folder, fs=cu.slow_storage(folder, storage, cache_mb=0))
    loader = DataLoader(events, 32, sampler=DistributedSampler(events), collate_fn=pad_collate)
    train(loader, traces)
    distributed.destroy_process_group()

# %%
cu.predict(
    "11d", "For what share of the time does the GPU of a rank with a staged copy compute?", unit="%"
)

# %%
torchrun("train_shares", events, f"{room.name}/shares", ranks=3)

# %%
ranks = load_ranks(f"{room.name}/shares")
ranks.timeline()

# %%
cu.reveal("11d", 100 * ranks.traces[0].summary().au)

# %% [markdown]
# The two quick ranks wait at every meeting. Their own loaders are fine: faster ones would gain nothing.
# On real GPUs `nvidia-smi` does not show it: NCCL waits in a running kernel, so a waiting GPU counts as busy (notebook 02).
#
# So look for the late rank first, and then for its stage. Whichever comes last to a meeting waits for nobody:

# %%
print(ranks)

# %% [markdown]
# ## Uneven ends
#
# Now the ranks read a stream. Seven shards are dealt out to three ranks, so one has a shard more than the others. At the end of the epoch all meet
# to write a checkpoint.

# %%
# %%worker_module train_shards
import sys
from datetime import timedelta

from rank_loop import train
from torch import distributed
from torch.utils.data import DataLoader

from course_utils.loading.event_shards import EventShards
from course_utils.loading.events import pad_collate

if __name__ == "__main__":
    distributed.init_process_group("gloo", timeout=timedelta(seconds=5))  # not half an hour
    stream = EventShards(sys.argv[1], shards=7, buffer=100)
    try:
        train(DataLoader(stream, 32, collate_fn=pad_collate), sys.argv[2])
        distributed.barrier()  # before the checkpoint
    except RuntimeError as error:
        print(f"rank {distributed.get_rank()}, {stream.count_batches(32)} batches: {error}")

# %%
torchrun("train_shards", events, f"{room.name}/shards", ranks=3)

# %% [markdown]
# Only the time limit ends the run. The rank with more batches waits for gradients, and the others wait for it at the checkpoint. The
# first to stop closes its connections. Without `timeout=` Gloo would wait for 30 minutes and NCCL for ten. NCCL then ends the process;
# `TORCH_NCCL_BLOCKING_WAIT=1` makes it raise an error. In a second epoch, the ranks would average gradients of different epochs.
#
# There are four ways out:
#
# | Way | Costs |
# |---|---|
# | equally many equal shards for each worker of each rank (exercise 10.2) | nothing; but sizes are rarely equal |
# | a fixed number of steps: the `MIN` of all ranks' numbers of batches, by `all_reduce` | the last batches; every rank has to know its number |
# | [`Join`](https://docs.pytorch.org/tutorials/advanced/generic_join.html): a rank that is through goes on meeting the others | steps with fewer ranks at the end |
# | ask before every step whether all have a batch | one more small meeting in each step; the last batches |
#
# ### Exercise 11.2 · 10 min · ●●○
#
# Write the last of these ways. `in_step(batches)` yields the batches of this rank, as long as *every* rank has another one. Your targets:
#
# - all ranks take as many steps as the one with the fewest batches, even if that is none,
# - no rank waits for another in vain,
# - `batches` may be a stream that has no `len()`, and is asked for one batch at a time,
# - a batch may be anything.
#
# <details><summary>Hint 1: how to ask all</summary>
#
# `dist.all_reduce(tensor, dist.ReduceOp.MIN)` leaves the minimum over all ranks in `tensor`, on every rank.
#
# </details>
# <details><summary>Hint 2: how to notice the end</summary>
#
# `next(mine, END)` returns `END` where there is no batch left. Compare with `is`.
#
# </details>
# <details><summary>Hint 3: who has none</summary>
#
# A rank without a batch must say so before it leaves: it takes part in the meeting, with a 0.
#
# </details>


# %%
# %%worker_module my_steps
import torch
import torch.distributed as dist

END = object()


def in_step(batches):
    ### BEGIN SOLUTION
    mine = iter(batches)
    while True:
        batch = next(mine, END)
        have_one = torch.tensor(0 if batch is END else 1)  # on GPUs: device="cuda"
        dist.all_reduce(have_one, dist.ReduceOp.MIN)
        if not have_one:
            return
        yield batch
    ### END SOLUTION


# %%
cu.check("11.2", in_step)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **11d** The tempting answer is that of a rank alone, 80 or so. It is about 30, that of the late
#   rank, since all meet in every step.
#
# **Goes wrong.**
#
# - In 11.2 the stub returns as soon as the rank itself has no batch, before it has told the others.
#   Ask who waits at the line on the board.
# - A run of ranks seems to hang. It has a time limit, and the cell ends with a sentence.

# %% [markdown]
# ## Survive a restart
#
# Jobs end before the training does: their time is up, or a node dies. The model is in a checkpoint, but where was the *loader*?
# Begin the epoch again, and some events come twice. Begin the next one, and the others never come.
#
# Two workers load for a loop, and the process dies while the loop has its tenth batch.

# %%
cu.predict("11r", "How many batches have the workers been asked for by then?", unit="batches")

# %%
from itertools import islice

from torch.utils.data import DataLoader


def batches():
    for index in range(100):
        asked_for.append(index)
        yield [index]


asked_for = []
loader = DataLoader(range(100), batch_sampler=batches(), num_workers=2)
taken = [*islice(loader, 10)]
cu.reveal("11r", len(asked_for))

# %% [markdown]
# The workers are ahead of the loop, by two batches each, and what they hold dies with the process. So count a batch when the *loop* takes it.
#
# The order needs no saving if it is *computed*, from a seed and the epoch. Then a position is two numbers, the epoch and the samples served, and
# neither depends on workers. `ResumableBatches` keeps them; its `follow` counts.


# %%
# %%worker_module survivor
import psutil

from course_stories.small_training import Training
from keepfed.loaders.resume import load_checkpoint, save_checkpoint


def go_on(events, path, workers, die_after=None):
    training = Training(events, workers=workers)  # network, optimiser, loader, ResumableBatches
    if saved := load_checkpoint(path):
        training.load_state_dict(saved)
    while training.batches.epoch.value < 2:
        for batch in training.batches.follow(training.loader):
            training.step(batch)
            save_checkpoint(path, training.state_dict())  # in earnest every few minutes
            if len(training.losses) == die_after:
                psutil.Process().kill()  # SIGKILL: nobody can say goodbye


# %%
from course_utils.teaching.notebook import run_demo


def live(name, workers, die_after=None):  # in a process of its own
    return run_demo(
        f"""
        from survivor import go_on
        if __name__ == "__main__":
            go_on({str(events)!r}, {f"{room.name}/{name}.pt"!r}, {workers}, {die_after})
        """,
        seconds=60,
    )


# %%
go_on(events, f"{room.name}/whole.pt", workers=0)  # nobody kills this one
live("killed", workers=2, die_after=23)

# %%
live("killed", workers=0)

# %%
from course_stories.small_training import draw_losses
from keepfed.loaders.resume import load_checkpoint

killed, whole = (load_checkpoint(f"{room.name}/{name}.pt") for name in ("killed", "whole"))
print("the same events in the same order:", killed["events"] == whole["events"])
print("the same losses, to the last digit:", killed["losses"] == whole["losses"])
draw_losses(whole["losses"], killed["losses"], at=23)

# %% [markdown]
# The first life had two workers and the second none, and nobody could tell from the curve. The extra part, *Resume exactly*, has more, and exercise
# 11.3.

# %% [markdown]
# ## You now can
#
# - say which rank serves which sample, and count it,
# - find the rank that all the others wait for, and the stage that makes it late,
# - end an epoch without a hang, however uneven the shards are,
# - go on after a kill with the very next batch, and show that it is the same training.
#
# Next: [notebook 12](12_feed_a_language_model.ipynb).

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs what follows, and each section only the core.

# %% [markdown]
# ## A batch too large for the GPU
#
# Ranks divide a global batch in space. **Accumulation** divides it in time: several small batches, then one step of the optimiser. It works because
# `backward()` *adds* to the gradients. That is also why all other loops need `zero_grad()`. The loop in the lecture notes has none.

# %%
import torch

from course_stories.small_training import light_and_energy

light, energy = light_and_energy(events)
order = torch.randperm(len(energy), generator=torch.Generator().manual_seed(0))
test, keep = order[:400], order[400:]


# %%
def trained(batch, batches_per_step=1, zero_grad=True):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, rows in enumerate(keep.split(batch), 1):
        loss = (model(light[rows]) - energy[rows]).square().mean()
        (loss / batches_per_step).backward()  # the mean over all batches of a step
        if number % batches_per_step == 0:
            optimiser.step()
            if zero_grad:
                optimiser.zero_grad()
    return model


# %%
cu.predict(
    "11e",
    "A model trains for an epoch without zero_grad. How many times as large as with it is the error "
    "on other events?",
    unit="times",
)


# %%
def error(model):
    with torch.no_grad():
        return (model(light[test]) - energy[test]).square().mean().item()


large, small, forgotten = trained(64), trained(16, 4), trained(64, zero_grad=False)
weights = [torch.nn.utils.parameters_to_vector(model.parameters()) for model in (large, small)]
print(f"64 at once, or 4 times 16: the weights differ by {(weights[0] - weights[1]).norm():.0e}")
print(
    f"error {error(large):.2f}; without zero_grad {error(forgotten):.2f}; of guessing the mean: 1"
)
cu.reveal("11e", error(forgotten) / error(large))

# %% [markdown]
# Four small batches do what one large one does. On three ranks the global batch would now have 192 samples. Only the last small batch of a step
# needs the meeting: the others go into `with model.no_sync():`. And the mean of the ranks' means is the mean over all samples only where all batches
# are equally large.
#
# ## Ranks that must see the same batch
#
# A model that is too large for one GPU is itself divided: tensor and pipeline parallelism put parts of it on several ranks. These
# work together on *the same* samples.

# %%
cu.predict(
    "11f",
    "Of 8 GPUs, each copy of the model takes four. How many different batches are in a step?",
)

# %%
first_batches = set()
for rank in range(8):
    copy = rank // 4  # of the model
    batch = tuple(DistributedSampler(range(16), num_replicas=2, rank=copy))[:4]
    first_batches.add(batch)
    print(f"rank {rank}, copy {copy}: batch {batch}")
cu.reveal("11f", len(first_batches))

# %% [markdown]
# So count copies, not ranks. Whatever takes its share by the rank of its process is wrong here: `DistributedSampler` without arguments,
# `split_by_node`, and our own streams too. PyTorch calls such a grid of ranks a
# [DeviceMesh](https://docs.pytorch.org/tutorials/recipes/distributed_device_mesh.html), and `mesh["data"].get_local_rank()` gives the number of the
# copy. Random augmentation has to agree as well; often only one rank of each copy loads, and sends the batch to the others.
#
# ## Diagnose the late rank
#
# `diagnose` (notebook 03) works in a rank too. It runs the loop for as long as it needs, on each rank another number of steps. So give it the step
# *without* the meeting, or it hangs.

# %%
# %%worker_module diagnose_ranks
import sys

from torch import distributed
from torch.utils.data import DataLoader, DistributedSampler

import course_utils as cu
from course_utils.hardware.gpu import rank_accelerator
from course_utils.loading.events import MemmapEvents, pad_collate

if __name__ == "__main__":
    distributed.init_process_group()
    rank, gpu = distributed.get_rank(), rank_accelerator(step_ms=20)
    storage = cu.slow_storage(sys.argv[1], "NFS" if rank == 2 else "laptop SSD", cache_mb=0)
    events = MemmapEvents(sys.argv[1], fs=storage)
    loader = DataLoader(events, 32, sampler=DistributedSampler(events), collate_fn=pad_collate)
    found = cu.diagnose(loader, lambda batch: gpu.step(gpu.upload(batch)).item(), seconds=6)
    print(f"rank {rank}: {found.verdict} Change: {found.change}.")

# %%
torchrun("diagnose_ranks", events, ranks=3)

# %% [markdown]
# ## Resume exactly
#
# What has to be in a checkpoint, so that no curve of losses shows the kill?
#
# - Network, optimiser and schedule, *and* the position, in one file, saved between two steps. `save_checkpoint` writes that file
#   under another name and renames it: a kill half-way leaves the former file.
# - The state of the random numbers, for dropout. Mind: each time a loop begins, `DataLoader` takes a number from the generator of dropout, and a
#   restart is one loop more. Give the loader a `generator=` of its own.
# - Nothing for augmentation, if each sample has a generator made of seed, epoch and index, by `sample_rng`. What workers draw from generators of
#   their own, also from `worker_rng`, is different after a restart.
#
# The position is the same on all ranks: rank 0 saves it, and all load it. It holds with another number of ranks too, because
# `ResumableBatches` deals the rest of *one* order to however many there are.
#
# Well-known libraries have got this wrong. After a restart in a later epoch, the Trainer of Hugging Face and `accelerate` skipped the right
# number of batches, but in the order of epoch 0: some samples came twice, others never.
#
# ### Exercise 11.3 · 10 min · ●●○
#
# `OrderedLoader` knows the batches of each epoch: `self.batches(epoch)` is a list of lists of indices. `self.load(batches)` returns a `DataLoader`
# of the batches you give it. Make `OrderedLoader` resumable:
#
# - `for batch in loader` serves what is left of an epoch, and the next loop serves the next epoch,
# - a state saved inside the loop counts the batch that the loop has; between two epochs it may be saved too,
# - a new loader that was given the state goes on with the next batch, also with other workers,
# - it reads only what it serves.
#
# <details><summary>Hint 1: the position</summary>
#
# Two numbers, `epoch` and `taken`. A list of batches can be cut before it is loaded.
#
# </details>
# <details><summary>Hint 2: when to count</summary>
#
# `yield` hands a batch to the loop and waits there. What stands behind it runs when the loop asks for the next one, and the state is
# saved before that.
#
# </details>


# %%
# %%worker_module my_resume
from course_exercises.nb11.problem import OrderedLoader


class ResumableLoader(OrderedLoader):
    epoch = taken = 0

    def __iter__(self):
        ### BEGIN SOLUTION
        rest = self.batches(self.epoch)[self.taken :]
        for batch in self.load(rest):
            self.taken += 1
            yield batch
        self.epoch, self.taken = self.epoch + 1, 0
        ### END SOLUTION

    def state_dict(self):
        return {"epoch": self.epoch, "taken": self.taken}  ### SOLUTION

    def load_state_dict(self, state):
        ### BEGIN SOLUTION
        self.epoch, self.taken = state["epoch"], state["taken"]
        ### END SOLUTION


# %%
cu.check("11.3", ResumableLoader)

# %% [markdown]
# ### `StatefulDataLoader`
#
# This loader of [torchdata](https://github.com/meta-pytorch/data) asks its workers for their state, and sends it along with each batch. With
# torchdata 0.11.0 and torch 2.15.0 we stopped a loop with two workers over 60 samples after 5 batches of 4. <!-- given -->
#
# | What goes on | What happens |
# |---|---|
# | a shuffled map-style dataset, with two workers again | exact |
# | the same with none, one or three workers | `AssertionError`, for one and three without a word |
# | a stream that has no `state_dict` | exact, but all 60 samples are read to serve the last 40 |
# | a stream with a `state_dict` of its own | exact, and 40 are read |
# | random numbers that workers draw | others than without the restart |
# | a state that was saved with the last batch of an epoch | one epoch without any batch comes first |
#
# The last line has cost people an epoch that they did not miss: whoever counts epochs by loops trains one less. The empty loop comes with
# `ResumableBatches` too, so our training asks for `epoch.value` and counts no loops. And this loader calls a function of
# torch, `set_vital`, which is deprecated; try it with each new version.
#
# ### And a stream?
#
# A stream has no position that would hold for another number of workers. `EventShards` deals shards to workers, so that other events would share a
# batch; and a shuffle buffer holds events that are read and not yet served. Our streams do not resume: they start the epoch again. If samples can be
# asked for by number, you need no stream: `ResumableBatches(n, 64, block=256)` reads blocks of neighbours, mixes a few of them as `BlockSampler`
# does (notebook 05), and has a position. [MosaicML Streaming](https://docs.mosaicml.com/projects/streaming) also computes its order in advance, for
# shards that lie far away.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **11e** Some say 1, since gradients "only add up", others that it explodes. It is about 1.5: it
#   still learns, and nobody notices. Each step repeats all gradients before it.
# - **11f** 8, as many as GPUs. It is 2, as many as copies of the model.
# - **11r** Whoever says 10 thinks that workers wait to be asked; whoever says 12 counts one for each.
#   It is 14: ask what happens to the four.
# - **11s** Those who count the writing say 2 or 3. It is 1: what is whole is renamed, and replaces
#   itself.
#
# **Goes wrong.**
#
# - In 11.3 somebody counts behind `yield`. Let them say aloud which line runs when.
#
# **Extra.** Accumulation with 11e (3 minutes), ranks that share a batch with 11f (3), resume exactly
# with 11.3 (15), and for those who have a cluster the part on Ray and Slurm.

# %% [markdown]
# ## Beyond one machine
#
# ### Convert on many nodes
#
# Only one process can write an HDF5 file. Many can write a format of many files, a part each.

# %%
from course_utils.loading.events import FORMATS, EventArrays, Parts

arrays = EventArrays.load(events)
for name, form in FORMATS.items():
    if isinstance(form.write, Parts):
        print(f"{name}: {len(arrays.slices(form.write.size))} parts, such as {form.write.name(1)}")

# %% [markdown]
# `python -m course_data.convert_events FOLDER --to npz tar --engine ray` makes each part a task of [Ray](https://docs.ray.io) (after
# `pip install -e ".[cluster]"`). When a node dies, its tasks run again.

# %%
cu.predict(
    "11s",
    "A task that writes events-00001.tar dies half-way. It runs again, on two nodes, since one of "
    "them was only cut off for a while. How many shards are there afterwards?",
)

# %%
from pathlib import Path

from course_data.on_ray import write_part

half = Path(room.name, "tar", ".events-00001.tar.of-a-dead-task.unfinished")
half.parent.mkdir()
half.write_bytes(b"half a part")
for _ in range(2):
    write_part(events, "tar", half.parent, 1)
print(sorted(path.name for path in half.parent.iterdir()))
cu.reveal("11s", len(list(half.parent.glob("events-*"))))

# %% [markdown]
# A task writes under a name of its own, and renames what is whole; the rest is removed in the end. Whichever task dies, the bytes are those of a run
# without Ray. For little data Ray hardly pays.
#
# ### Feed trainers with Ray Data
#
# Ray Data lets other nodes read: `shares = ray.data.read_parquet(path).map_batches(decode).streaming_split(2)`, and a trainer loops over
# `share.iter_batches()`:

# %%
import os
from importlib.util import find_spec

if not find_spec("ray"):
    print('Ray is not installed: run `pip install -e ".[cluster]"`, then this cell again.')
else:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # else Ray reports to its makers
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    file = ray.data.range(2000, override_num_blocks=1)  # as events that lie in one
    train = ray.remote(num_cpus=0)(lambda share: sum(len(b["id"]) for b in share.iter_batches()))
    for name, data, equal in ("plain", file, False), ("shuffled", file.random_shuffle(), True):
        shares = data.streaming_split(2, equal=equal)
        print(f"{name}: {ray.get([train.remote(share) for share in shares])} events")
    ray.shutdown()

# %% [markdown]
# Of 2,000 events in one file, one trainer got all and the other none, in the same order in both epochs. So shuffle,
# and ask for `equal=True`. The trainers take `num_cpus=0`: with a core each they would leave none for reading.
#
# ### Run on Slurm
#
# `course_data/slurm` has scripts that stage, convert and train. `train.sh` asks for:

# %%
import re

import course_utils.paths

job = (course_utils.paths.REPO / "course_data/slurm/train.sh").read_text()
print(*re.findall("^#SBATCH.*", job, re.MULTILINE), sep="\n")

# %% [markdown]
# - **Cores.** Without `--cpus-per-task` a task has one core for all its workers. Since Slurm 22.05 `srun` forgets what `sbatch` was told: tell
#   both. `--hint=nomultithread` binds the task to cores; do not add `--cpu-bind=cores`.
# - **torchrun** is one task, whose cores all ranks share; in `train_ranks.sh` each rank is a task.
# - **GPUs.** With `--gpus-per-task=1` a task sees one GPU, number 0, and `set_device(LOCAL_RANK)` fails on other ranks.
# - **The time limit.** A signal comes 120 s before it; <!-- given --> then the job queues again, and goes on from the checkpoint.
