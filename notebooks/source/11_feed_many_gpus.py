# %% [markdown]
# # 11 · Feed many GPUs and survive a restart
#
# {here: read, compute}
#
# **You will do:** train one model in two processes (*ranks*) with DDP, serve every sample once, find the rank that
# delays the others, end an epoch without a hang, and continue after a kill.
#
# **You will learn:**
#
# - how ranks train one model with DDP, and what `DistributedSampler` does silently; <!-- 11a 11b 11c -->
# - why the slowest rank sets the pace, and how to find it; <!-- 11d -->
# - why ranks wait forever at the end of an epoch, and how to prevent it; <!-- 11.2 -->
# - how a training continues after a restart. <!-- 11r 11.3 -->
#
# **You need:** notebooks 05 and 07. A CPU is enough.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("11")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *10 min* **One script, many processes.** Run the cell with `torchrun` first, because ranks take seconds to begin.
#   Read the loop while they do. Where are the gradients averaged?
# - *9 min* **Who serves what.** Ask for 11a, 11b and 11c before you run their cells.
# - *5 min* **The slowest rank.** Prediction 11d, then the timeline. What would a faster disk in rank 0 gain?
# - *5 min* **Uneven ends.** The cell hangs until its time limit, so announce it. Who waits for whom?
# - *17 min* **Exercise 11.2.** In pairs.
# - *9 min* **Survive a restart.** Prediction 11r.
# - *16 min* **Exercise 11.3.** In pairs.
#
# **Leave out.** Exercise 11.2. Let the cell hang, and give the exercise as homework.
#
# **Board.** Draw a row for each of three ranks, and a box for each batch. Draw a vertical line where the ranks
# synchronize. Make one box of the third row long, so that everybody waits at its line. Then give the first row one more
# box than the others, and ask what happens at its line.

# %% [markdown]
# ## One script, many processes
#
# To train one model on many GPUs, you start the same script once per GPU. Each of these processes is a **rank**, with
# its own copy of the model and its own loader. So what keeps the copies equal? In each step the ranks *synchronize*,
# which means that they average their gradients, so all of them take the same step. Two ranks with batches of 32 train
# on a **global batch** of 64. <!-- given -->
#
# Wrap the model in `DistributedDataParallel` (DDP), and `backward()` does the averaging. This is the loop that you'll
# write at work:


# %%
# %%worker_module ddp_loop
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(loader, epochs):
    model = DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            light = batch["n_pulses"].log10()[:, None]
            loss = nn.functional.mse_loss(model(light)[:, 0], batch["energy"])
            loss.backward()  # averages the gradients of all ranks
            optimizer.step()
            optimizer.zero_grad()
    return [loss.item(), *(weight.item() for weight in model.parameters())]


# %% [markdown]
# The script around it joins the group of ranks. On CPUs they talk through Gloo, on GPUs through NCCL, which needs its
# tensors there. So there you'd call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before anything touches a
# GPU, and then move the model and each batch to it.

# %%
# %%worker_module train_ddp
import sys

import torch
from ddp_loop import train
from torch import distributed
from torch.utils.data import DataLoader, DistributedSampler

from course_utils.loading.events import MemmapEvents, pad_collate

if __name__ == "__main__":
    distributed.init_process_group("gloo")  # on GPUs: "nccl"
    rank = distributed.get_rank()
    torch.manual_seed(rank)  # draws other first weights on each rank
    events = MemmapEvents(sys.argv[1])
    loader = DataLoader(events, 32, sampler=DistributedSampler(events), collate_fn=pad_collate)
    print(f"rank {rank}: last loss, weight and bias:", *train(loader, epochs=2))
    distributed.destroy_process_group()

# %% [markdown]
# In a terminal, `torchrun --nproc-per-node 2 train_ddp.py EVENTS` starts the script twice, and environment variables
# give each process its rank. Our function `torchrun()` does the same. Now each rank draws its own first weights and
# sees its own half of the events. How far apart will they end?

# %%
import tempfile

from course_utils.teaching.notebook import torchrun

events = cu.data_path("events", "S")  # the small set: 2,000 events
results = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
torchrun("train_ddp", events, ranks=2)

# %% [markdown]
# They agree to the last digit: DDP copied the weights of rank 0 before the first step, and since then equal gradients
# have kept them equal. The losses differ, because each rank computes the loss of its last batch.
#
# ## Who serves what
#
# That was too easy, so let's break it and forget the sampler. Would anybody notice? To *watch* the ranks, the next loop
# records everything and trains nothing. Its emulated GPU takes 20 ms for a step, <!-- given --> and an `all_reduce` of
# zeros takes the place of DDP.

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
                dist.all_reduce(gradients)
                gpu.synchronize()
    save_rank(trace, traces)


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
    "Three ranks each shuffle the same 2,000 events. What share of the events that they serve in an "
    "epoch is distinct?",
    unit="%",
)

# %%
from keepfed.measure.ranks import load_ranks

torchrun("train_all", events, f"{results.name}/all", ranks=3)

# %%
ranks = load_ranks(f"{results.name}/all")
print(ranks)
cu.reveal("11a", 100 * len(ranks.served) / ranks.served.total())

# %% [markdown]
# Every rank reads everything. Nothing fails, but three GPUs need as long for an epoch as one. `DistributedSampler`
# gives each rank its own share. It takes the rank from torch, or as an argument, which lets us look at all shares in
# one process.

# %%
cu.predict("11b", "Four ranks share 10 samples. How many are served in an epoch?", unit="samples")

# %%
cu.predict("11c", "Nobody calls set_epoch. How many different orders has a sampler in 3 epochs?")

# %%
from torch.utils.data import DistributedSampler

shares = [list(DistributedSampler(range(10), num_replicas=4, rank=rank)) for rank in range(4)]
for rank, share in enumerate(shares):
    print(f"rank {rank}:", *share)

# %%
cu.reveal("11b", sum(map(len, shares)))

# %%
sampler = DistributedSampler(range(10), num_replicas=4, rank=0)
without = [list(sampler) for epoch in range(3)]
with_set_epoch = []
for epoch in range(3):
    sampler.set_epoch(epoch)
    with_set_epoch.append(list(sampler))
print("without set_epoch:", *without, "\nwith set_epoch:   ", *with_set_epoch)
cu.reveal("11c", len(set(map(tuple, without))))

# %% [markdown]
# The sampler does two things without telling you:
#
# - **It pads.** All ranks need the same number of batches (you'll see why), so it serves the first samples again. In
#   training that does no harm, but in an evaluation some samples count twice. (`drop_last=True` drops some instead.)
# - **It repeats the order.** It stays in epoch 0 until you call `set_epoch`, and many repositories never call it. It
#   shuffles with `seed + epoch`, so epoch 1 of seed 0 is also epoch 0 of seed 1.
#
# A sampler lives in the main process of its rank and can ignore workers. A *stream* can't, because every worker of
# every rank gets a copy, so it must deal its shards to all of them, as in exercise 5.1.
#
# ## The slowest rank sets the pace
#
# Now each event is served once, but how fast? Three nodes train together. Two of them have staged the events on their
# disks (notebook 07), and on the third somebody forgot, so its rank reads from a file server, and needs about 50 ms for a
# batch and then 20 for a step. <!-- given -->

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
    "11d", "What share of the time does the GPU of a rank with a staged copy compute?", unit="%"
)

# %%
torchrun("train_shares", events, f"{results.name}/shares", ranks=3)

# %%
ranks = load_ranks(f"{results.name}/shares")
ranks.timeline()

# %%
cu.reveal("11d", 100 * ranks.traces[0].summary().au)

# %% [markdown]
# The two fast ranks wait at every synchronization, so faster loaders would gain them nothing. On real GPUs `nvidia-smi`
# won't show this, because NCCL waits in a running kernel, so a waiting GPU counts as busy (notebook 02).
#
# All ranks are slow now, so which one is the culprit? Look for the rank that waits *least*, and then for its slow
# stage:

# %%
print(ranks)

# %% [markdown]
# ## Uneven ends
#
# So far all ranks had equally many batches, which a stream doesn't promise. Three ranks share seven shards, so one rank
# has a shard more than the others. At the end of the epoch all ranks synchronize to write a checkpoint (one rank
# writes, by custom rank 0). What will happen?

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
    distributed.init_process_group("gloo", timeout=timedelta(seconds=5))  # not 30 minutes
    stream = EventShards(sys.argv[1], shards=7, buffer=100)
    try:
        train(DataLoader(stream, 32, collate_fn=pad_collate), sys.argv[2])
        distributed.barrier()  # before the checkpoint
    except RuntimeError as error:
        print(stream.count_batches(32), "batches:", str(error).partition("] ")[2].split(".")[0])

# %%
torchrun("train_shards", events, f"{results.name}/shards", ranks=3)

# %% [markdown]
# Only the time limit ends the run. The rank with more batches waits for gradients while the others wait for it at the
# checkpoint, very politely, forever. Without a checkpoint they'd average gradients of different epochs, which is worse,
# because nobody would notice.
#
# Without `timeout=` Gloo would wait for 30 minutes and NCCL for ten. After that Gloo raises an error that you can
# catch. With NCCL, a watchdog thread ends the whole process, and `except` catches nothing. `TORCH_NCCL_BLOCKING_WAIT=1`
# makes it an error again.
#
# There are four ways out:
#
# | Solution | Costs |
# |---|---|
# | the same number of equal shards for each worker of each rank (exercise 10.2) | nothing, but sizes are rarely equal |
# | count the batches of each rank before the epoch, and take as many steps as the smallest count | the last batches, and each rank must know its number |
# | [`Join`](https://docs.pytorch.org/tutorials/advanced/generic_join.html): a rank that has finished still answers the others | steps with fewer ranks at the end |
# | ask before every step whether all ranks have a batch | one more small synchronization per step, and the last batches |
#
# ### Exercise 11.2 · 10 min · ●●○
#
# (Exercise 11.1 is in *Extra*.) Write the last one, which works for any stream. `in_step(batches)` yields the batches of this rank, as long as *every*
# rank has another one. Your targets:
#
# - all ranks take as many steps as the rank with the fewest batches, even if it has none,
# - no rank waits forever, and a rank with many batches leaves the rest unread,
# - `batches` may be a stream whose `len()` is missing or wrong, so request one batch at a time,
# - a batch may be any object, and isn't sent to other ranks,
# - an error of `batches` reaches the loop (the other ranks may run into their time limit).
#
# <details><summary>Hint 1: how to ask all</summary>
#
# `dist.all_reduce(tensor, dist.ReduceOp.MIN)` leaves the minimum in `tensor`, on every rank. (NCCL wants it on the GPU.)
#
# </details>
# <details><summary>Hint 2: how to notice the end</summary>
#
# `next(mine, END)` returns `END` when there's no batch left. Compare with `is`.
#
# </details>
# <details><summary>Hint 3: the rank that has none</summary>
#
# A rank without a batch must tell the others before it leaves, so it calls `all_reduce` with a 0.
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
# - **11a** Tempting: 100, because surely torch deals the events out. It is a third, as each rank serves everything.
# - **11b** Tempting: 10, because that is what you'd want. It is 12, because the sampler pads.
# - **11c** Tempting: 3, because it shuffles. It is 1 until somebody calls `set_epoch`.
# - **11d** Tempting: 80 or so, as for a rank that runs alone. It is about 30, the value of the late rank, because all
#   ranks synchronize in every step.
#
# **Goes wrong.**
#
# - In 11.2 the function returns when its own rank has no batch, before it has told the others. Who waits at the line on
#   the board?
# - A run of ranks seems to hang. It has a time limit, and then the cell ends with a message.

# %% [markdown]
# ## Survive a restart
#
# A job often ends before its training does. The model is in a checkpoint, but where was the *loader*? If you repeat the
# epoch, some events come twice, and if you begin the next one, some never come.
#
# Let's see how far ahead a loader is. `batches` takes notes of what it asks for, two workers load, and the process dies
# while the loop has its tenth batch.

# %%
cu.predict("11r", "How many batches are requested from the workers by then?", unit="batches")

# %%
from itertools import islice

from torch.utils.data import DataLoader


def batches():
    for index in range(100):
        requested.append(index)
        yield [index]


requested = []
loader = DataLoader(range(100), batch_sampler=batches(), num_workers=2)
taken = [*islice(loader, 10)]
cu.reveal("11r", len(requested))

# %% [markdown]
# Each worker runs two batches ahead of the loop, and these batches die with the process, so count a batch when the
# *loop* takes it. And the order? You needn't save it if you *compute* it from a seed and the epoch. Then two numbers
# are enough, the epoch and how much of it was taken, and neither depends on workers.
#
# ### Exercise 11.3 · 10 min · ●●○
#
# `OrderedLoader` knows the batches of each epoch: `self.batches(epoch)` is a list of lists of indices.
# `self.load(batches)` returns a `DataLoader` of the batches you give it. Make `OrderedLoader` resumable:
#
# - `for batch in loader` serves the rest of an epoch, and the next loop serves the next epoch,
# - if the loop has its third batch when the state is saved, the state says 3. The state may also be saved after the
#   last batch, before the next loop,
# - a loader that gets a state continues with the next batch, even with other workers, or after a loop of its own,
# - it reads only what it serves, one batch at a time.
#
# <details><summary>Hint 1: the position</summary>
#
# Two numbers, `epoch` and `taken`. A list of batches can be cut before it is loaded.
#
# </details>
# <details><summary>Hint 2: when to count</summary>
#
# `yield` passes a batch to the loop and waits there. The code after it doesn't run until the loop requests the next
# batch, and the state is saved before that.
#
# </details>


# %%
# %%worker_module my_resume
from course_utils.exercises.nb11.problem import OrderedLoader


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
# One trap is left: a state that was saved with the last batch of an epoch gives an empty loop first, so count epochs by
# `loader.epoch`, not by loops. And with many ranks? Let `batches(epoch)` return the share of the rank. All ranks take
# equally many steps, so all of them save the same two numbers.
#
# Now let's kill a whole training, whose `ResumableBatches` keeps the same two numbers, and `follow` counts them. What
# else must the checkpoint contain, so that no loss curve shows the kill?
#
# - Model, optimizer and schedule, *and* the position, in one file, saved between two steps. `save_checkpoint` writes it
#   under another name and then renames it, so a kill while it writes leaves the previous file.
# - The state of the random numbers, for dropout. Each `for batch in loader` draws one number from torch's generator,
#   and a restarted run has one more such loop, so its dropout differs. Give the loader its own `generator=`.
# - Nothing for augmentation, if you create each sample's generator from seed, epoch and index, as `sample_rng` does.
#   Random numbers drawn from a worker's own generator, even from `worker_rng`, differ after a restart.


# %%
# %%worker_module survivor
import psutil

from course_utils.stories.small_training import Training
from keepfed.loaders.resume import load_checkpoint, save_checkpoint


def resume(events, path, workers, die_after=None):
    training = Training(events, workers=workers)  # network, optimizer, loader, ResumableBatches
    if saved := load_checkpoint(path):
        training.load_state_dict(saved)
    while training.batches.epoch.value < 2:
        for batch in training.batches.follow(training.loader):
            training.step(batch)
            save_checkpoint(path, training.state_dict())  # in a real run, every few minutes
            if len(training.losses) == die_after:
                psutil.Process().kill()  # SIGKILL, which no process can catch


# %%
from course_utils.teaching.notebook import run_demo


def run_until_killed(name, workers, die_after=None):  # in a separate process
    call = f"resume({str(events)!r}, {f'{results.name}/{name}.pt'!r}, {workers}, {die_after})"
    program = f"from survivor import resume\nif __name__ == '__main__':\n    {call}"
    return run_demo(program, seconds=120)


# %%
resume(events, f"{results.name}/whole.pt", workers=0)  # nobody kills this run
first = run_until_killed("killed", workers=2, die_after=23)
first

# %%
from course_utils.stories.figures import curves
from keepfed.loaders.resume import load_checkpoint

done = len(load_checkpoint(f"{results.name}/killed.pt")["losses"])
run_until_killed("killed", workers=0)

# %%
killed, whole = (load_checkpoint(f"{results.name}/{name}.pt") for name in ("killed", "whole"))
print("the same events in the same order:", killed["events"] == whole["events"])
print("the same losses, to the last digit:", killed["losses"] == whole["losses"])
steps = range(1, len(whole["losses"]) + 1)
resumed = f"{first.ending} after {done} steps, and resumed"
losses = {"not killed": whole["losses"], resumed: killed["losses"]}
curves(steps, losses, xlabel="step", ylabel="loss")

# %% [markdown]
# You see one curve, because the two agree, although the first run had two workers and the second none. (If the legend
# says "Stopped", your machine was so busy that the time limit came before step 23. It kills with the same signal, so
# the proof holds.)

# %% [markdown]
# ## You now can
#
# - train one model on several ranks, say which of them serves which sample, and count it;
# - find the rank that all others wait for, and the stage that makes it late;
# - end an epoch without a hang, however uneven the shards are;
# - continue after a kill with the very next batch, and show that it's the same training.
#
# Next: [12 Feed a language model](12_feed_a_language_model.ipynb), because tokens come without samples, and somebody
# has to cut them. Or take another track, because they come in any order.

# %% [markdown]
# # Extra
#
# The core ends here. Each of the following sections needs only this core.
#
# ## A sampler that serves every sample once
#
# ### Exercise 11.1 · 10 min · ●●○
#
# Write a sampler for evaluations, which neither pads nor drops. With exercise 11.2 it works for training, too. Your
# targets:
#
# - all ranks together serve each sample exactly once, for any number of samples,
# - the shares differ by at most one sample, and `len()` returns the size of the share,
# - each epoch has its own order, another seed has others, and all are the same after a restart and on any machine,
# - the global random generators stay unchanged.
#
# <details><summary>Hint 1: one order for all</summary>
#
# Every rank shuffles *all* samples, with a new generator whose seed all ranks share:
# `np.random.default_rng([self.seed, self.epoch])`.
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

# %% [markdown]
# ## A batch too large for the GPU
#
# Ranks divide a global batch in space. **Accumulation** divides it in time: several small batches, then one step of the
# optimizer. That works because `backward()` *adds* to the gradients. All other loops need `zero_grad()` for this
# reason. What if you forget it?

# %%
import torch

from course_utils.stories.small_training import light_and_energy

light, energy = light_and_energy(events)
order = torch.randperm(len(energy), generator=torch.Generator().manual_seed(0))
test, keep = order[:400], order[400:]


# %%
def trained(batch, batches_per_step=1, zero_grad=True):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, rows in enumerate(keep.split(batch), 1):
        loss = (model(light[rows]) - energy[rows]).square().mean()
        (loss / batches_per_step).backward()  # the mean over all batches of a step
        if number % batches_per_step == 0:
            optimizer.step()
            if zero_grad:
                optimizer.zero_grad()
    return model


# %%
cu.predict(
    "11e",
    "A model trains for an epoch without zero_grad. How many times larger is its error on other "
    "events?",
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
# Four small batches do what one large one does. On three ranks the global batch would now have 192 samples. Only the
# last small batch of a step needs a synchronization, so put the others into `with model.no_sync():`. And keep the
# batches equally large, or the mean of the ranks' means isn't the mean over all samples.
#
# ## Ranks that must see the same batch
#
# A model too large for one GPU is cut up: tensor and pipeline parallelism put parts of it on several ranks. These ranks
# work together on *the same* samples, so how many batches do you need?

# %%
cu.predict(
    "11f",
    "A copy of the model takes 4 GPUs, and you have 8. How many different batches are in a step?",
)

# %%
first_batches = set()
for rank in range(8):
    copy = rank // 4  # number of the copy of the model
    batch = tuple(DistributedSampler(range(16), num_replicas=2, rank=copy))[:4]
    first_batches.add(batch)
    print(f"rank {rank}, copy {copy}: batch {batch}")
cu.reveal("11f", len(first_batches))

# %% [markdown]
# Count copies, not ranks. `DistributedSampler` without arguments, `split_by_node` and our streams use the rank of the
# process, so they'd give each GPU different data, but here four GPUs need the same. PyTorch calls such a grid of ranks
# a [DeviceMesh](https://docs.pytorch.org/tutorials/recipes/distributed_device_mesh.html), and
# `mesh["data"].get_local_rank()` returns the number of the copy. Random augmentation must agree as well.
#
# ## Diagnose the late rank
#
# `cu.diagnose(loader, step)` (notebook 03) works in a rank, too. It runs the loop for a fixed time, so each rank takes
# a different number of steps, and you know by now how that ends. Give it the step *without* the synchronization, and
# only on the late rank, which `print(ranks)` named above, because the other loaders are fast enough.
#
# ## Resume on more ranks, or with other loaders
#
# The position is the same on all ranks, so rank 0 saves it and all ranks load it. It's even valid for another number of
# ranks, because `ResumableBatches` deals the rest of *one* order.
#
# Well-known libraries got this wrong. After a restart in a later epoch, the Trainer of Hugging Face and `accelerate`
# skipped the right number of batches, but in the order of epoch 0. Some samples came twice, until the Trainer
# [was fixed in 2025](https://github.com/huggingface/transformers/pull/40691).
#
# ### `StatefulDataLoader`
#
# This loader of [torchdata](https://github.com/meta-pytorch/data) gets the state of its workers with each batch. With
# torchdata 0.11.0 and torch 2.15.0 we stopped a loop with two workers over 60 samples after 5 batches of 4, and then
# asked it to continue. <!-- given -->
#
# | What resumes | What happens |
# |---|---|
# | a shuffled map-style dataset, with two workers again | exact |
# | the same with none, one or three workers | `AssertionError`, for one and three without a message |
# | a stream without `state_dict` | right, but it reads the first 20 samples again and discards them |
# | a stream with its own `state_dict` | exact, and 40 samples are read |
# | random numbers that workers draw | differ from the run without a restart |
# | a state that was saved with the last batch of an epoch | one empty epoch comes first |
#
# The last line has cost people an epoch, because they count epochs by loops. `ResumableBatches` has this empty loop
# too, so our training asks `epoch.value`. One more warning for new versions of torch: this loader calls a function of
# torch, `set_vital`, which is deprecated.
#
# ### And a stream?
#
# Our streams don't resume, they start the epoch again. With another number of workers, shards go to other workers, so
# other events share a batch, and a shuffle buffer holds events that the loop has not seen yet. But if you can request
# samples by index, you don't need a stream: `ResumableBatches` has a position. For shards in remote storage,
# [MosaicML Streaming](https://docs.mosaicml.com/projects/streaming) also computes its order in advance.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **11e** Tempting: 1, because gradients "only add up", or a thousand, because that must explode. It is about 1.5.
#   Each step repeats all gradients before it, the model still learns, and nobody notices.
# - **11f** Tempting: 8, one for each GPU. It is 2, one for each copy of the model.
# - **11r** Tempting: 10, if workers wait for a request, or 12, if each is one batch ahead. It is 14. What happens to
#   the four?
# - **11s** Tempting: 2 or 3, one for each write. It is 1, because a whole file is renamed and replaces the other one.
#
# **Goes wrong.**
#
# - In 11.1 a learner shuffles within the share, so a rank always gets the same samples. What does rank 0 never see?
# - In 11.1 a learner calls `torch.manual_seed`, and the training draws different numbers.
# - In 11.3 a learner counts after `yield`. Let them say aloud which line runs when.
#
# **Extra.** A sampler for evaluations, 11.1 (10 minutes), accumulation with 11e (3), ranks that share a batch with 11f
# (3), and the part on Ray and Slurm for learners who have a cluster.

# %% [markdown]
# ## Beyond one machine
#
# ### Convert on many nodes
#
# Without MPI, only one process can write an HDF5 file. If many nodes convert your data, pick a format with one file per
# part. Which ones are there?

# %%
from course_utils.loading.events import FORMATS, EventArrays, Parts

arrays = EventArrays.load(events)
for name, form in FORMATS.items():
    if isinstance(form.write, Parts):
        print(f"{name}: {len(arrays.slices(form.write.size))} parts, such as {form.write.name(1)}")

# %% [markdown]
# `python -m data_scripts.convert_events FOLDER --to npz tar --engine ray` makes each part a task of
# [Ray](https://docs.ray.io) (after `pip install -e ".[cluster]"`). If a node dies, its tasks run again, maybe twice.

# %%
cu.predict(
    "11s",
    "A task dies while it writes events-00001.tar. Ray runs it again, on two nodes, because one of "
    "them had lost its connection. How many shards exist afterwards?",
)

# %%
from pathlib import Path

from data_scripts.on_ray import write_part

half = Path(results.name, "tar", ".events-00001.tar.of-a-dead-task.unfinished")
half.parent.mkdir()
half.write_bytes(b"half a part")
for _ in range(2):
    write_part(events, "tar", half.parent, 1)
print(sorted(path.name for path in half.parent.iterdir()))
cu.reveal("11s", len(list(half.parent.glob("events-*"))))

# %% [markdown]
# A task writes to its own file name and renames the file when it's whole, so even if one dies, the result is the same
# as without Ray. (If your data are small, you don't need Ray at all.)
#
# ### Feed trainers with Ray Data
#
# With Ray Data, other nodes read for you:
# `shares = ray.data.read_parquet(path).map_batches(decode).streaming_split(2)`, and each trainer loops over
# `share.iter_batches()`. Does each of two trainers get its half? When we tried it, no. One trainer got all 2,000 events
# of the file and the other got none, in both epochs and in the same order. Call `random_shuffle()` first and pass
# `equal=True`. Start the trainers with `num_cpus=0`, because with a core each they'd leave none for reading.
#
# ### Run on Slurm
#
# `data_scripts/slurm` has scripts that stage, convert and train (for HTCondor: `data_scripts/htcondor`). This is what
# `train.sh` requests:

# %%
import re

import course_utils.paths

job = (course_utils.paths.REPO / "data_scripts/slurm/train.sh").read_text()
print(*re.findall("^#SBATCH.*", job, re.MULTILINE), sep="\n")

# %% [markdown]
# - **Cores.** Without `--cpus-per-task` a task has one core for all its workers. Since Slurm 22.05 `srun` does not
#   inherit this value from `sbatch`, so pass it to both. `--hint=nomultithread` already binds the task to cores, so
#   don't add `--cpu-bind=cores`.
# - **Memory.** `--mem` limits each node. Workers and staged files in `/dev/shm` count too.
# - **torchrun** is one task. In `train_ranks.sh` each rank is a task.
# - **GPUs.** With `--gpus-per-task=1` a task sees one GPU, number 0, so `set_device(LOCAL_RANK)` fails on other ranks.
# - **The time limit.** The script gets a signal 120 s before it. <!-- given --> It queues the job again, at most 20
#   times, <!-- given --> and the next run continues from the checkpoint. The training gets no signal, so it loses what
#   it has learned since its last checkpoint.
