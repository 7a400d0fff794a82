# %% [markdown]
# # 01 · Build a Dataset and feed it to a DataLoader
#
# {here: read, decode, collate}
#
# **You will do:** turn a folder of detector events into batches, and see a GPU wait for them.
#
# **You will learn:**
#
# - to look at the data before you write a loader for them; <!-- 01a -->
# - what PyTorch needs from a dataset; <!-- 1.3 -->
# - to make batches of events that differ in length; <!-- 01b 1.1 -->
# - to split data without giving away the answers; <!-- 01c 1.2 -->
# - how little a fast file server delivers if you ask for small files. <!-- 01d -->
#
# **You need:** Python and NumPy.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("01")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *8 min* **Look first.** Show a track and a cascade, then the lengths. Go on with prediction 01a and the sorted file,
#   which leads to one word: shuffle.
# - *5 min* **The contract.** A list is a dataset. Read `EventFiles` aloud. What happens in `__init__`, and what happens
#   when the loader asks for event 17?
# - *22 min* **Batches.** Let the error happen and read its last line together, then do prediction 01b, and exercise 1.1
#   in silence.
# - *3 min* **Order.** Ask about `drop_last`: who loses the same events in every epoch?
# - *16 min* **Parts.** Prediction 01c, one minute of discussion about runs, then exercise 1.2.
# - *3 min* **Your loader feeds a GPU.** Prediction 01d. Give the room time to look at the picture. Ask what could run
#   at the same time, and don't answer, because the next notebook does.
#
# **Leave out.** Exercise 1.2. Discuss prediction 01c, and give the exercise as homework.
#
# **Board.** Draw one line from left to right: *index → sample → list of samples → batch*. Above each arrow, write who
# does the work: sampler, `__getitem__`, `collate_fn`. You'll point at it often.

# %% [markdown]
# ## Look first
#
# A telescope of 5,160 light sensors in the ice records particles that pass through it (ours are simulated). One event
# is a list of pulses, and a pulse is a row of four numbers: time (ns), charge, sensor number, and a flag.

# %%
import matplotlib.pyplot as plt
import numpy as np

from course_utils.loading.events import MemmapEvents, draw_event, read_labels, read_sensors

plt.style.use("course_utils.plots.style")  # readable on light and on dark pages
folder = cu.data_path("events")
labels, sensors = read_labels(folder), read_sensors(folder)
offsets = np.load(folder / "npy" / "offsets.npy")
n_pulses = np.diff(offsets)
print(f"{len(labels):,} events, {offsets[-1]:,} pulses, {len(set(labels.run_id))} runs")

# %% [markdown]
# A *track* crosses the detector, and a *cascade* is a ball of light. Color shows time and size shows charge, while the
# small gray dots are flagged as noise and the arrow shows the true path of the particle.

# %%
all_events = MemmapEvents(folder)
# the brightest event of each kind: 1 is a track, 0 is a cascade
track, cascade = (np.where(labels.kind == kind, n_pulses, 0).argmax() for kind in (1, 0))
draw_event(all_events[track], sensors)

# %%
draw_event(all_events[cascade], sensors)

# %% [markdown]
# How long are the events? You'll want to know, because their lengths decide how you make batches.

# %%
plt.figure(figsize=(7, 2.5))
plt.hist(n_pulses, bins=np.geomspace(n_pulses.min(), n_pulses.max(), 60), histtype="step")
plt.gca().set(xscale="log", yscale="log", xlabel="pulses in an event (log)", ylabel="events (log)")
plt.title(f"median {np.median(n_pulses):.0f}, longest {n_pulses.max():,}")
plt.show()

# %% [markdown]
# The longest event is tens of times longer than a typical one, which is normal in physics. But are the first 64 events
# on the disk at least similar to the others?

# %%
question = "How many times higher is the mean energy of all events than that of the first 64?"
cu.predict("01a", question, unit="times")

# %%
energy_gev = 10.0**labels.energy
cu.reveal("01a", energy_gev.mean() / energy_gev[:64].mean())

# %%
plt.figure(figsize=(7, 2.5))
plt.plot(labels.energy, ",")
plt.gca().set(xlabel="position on the disk", ylabel="log10 of the energy in GeV")
plt.show()

# %% [markdown]
# Each dot is an event. The file is sorted by energy, like the output of many simulations, so if you read it in this
# order, every batch shows the network a different small part of the data. The cure is one word: **shuffle**.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **01a** Tempting: 1, because why should the first events be different? The answer is 8 or 9, because simulations
#   write sorted files. Ask what the loss curve would look like: a sawtooth, once per epoch.
#
# **Goes wrong.**
#
# - Somebody sees only one blob in the displays. These are the brightest events, and typical ones are dim.

# %% [markdown]
# ## The contract
#
# A dataset answers one question: *what is sample 17?* The method `__getitem__` returns it, and because PyTorch needs
# nothing else, even a list is a dataset:

# %%
from torch.utils.data import DataLoader

list(DataLoader([3, 1, 4, 1, 5], batch_size=2))

# %% [markdown]
# If the loader should choose the indices itself, for example to shuffle, the dataset also needs a `__len__`. Such
# datasets are called *map-style*. Those of Hugging Face's [datasets](https://huggingface.co/docs/datasets) library are
# map-style too, unless you stream them.
#
# That was too easy, so here's a real one, in which every event is stored in a small `.npz` file. `__init__` only lists
# the files, and `__getitem__` opens one when the loader asks for it, which is called *lazy* loading (and meant as
# praise).
#
# `%%worker_module` writes the cell to a file and imports it. Workers are the processes that will load the data, and
# they can import a file, but they can't see your notebook.

# %%
# %%worker_module event_files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset


class EventFiles(Dataset):
    def __init__(self, folder: Path):
        self.paths = [str(path) for path in sorted(folder.glob("npz/*/*.npz"))]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        with np.load(self.paths[index]) as file:
            energy = np.log10(file["event"]["energy_gev"])
            return {"pulses": torch.from_numpy(file["pulses"]), "energy": float(energy)}


# %%
events = EventFiles(folder)
sample = events[17]
print(f"{len(events):,} events; event 17 has {len(sample['pulses']):,} pulses, beginning with")
sample["pulses"][:3]

# %% [markdown]
# Why don't we read everything in `__init__`? Sometimes you should. **If every process has enough memory for all data,
# read them in `__init__`. If not, keep `__init__` light, and read each sample when it's requested.**

# %% [markdown]
# ## Batches
#
# The loader collects samples in a list and passes the list to `collate_fn`, which makes one batch. The default
# `collate_fn` stacks the samples, but our events differ in length. Let's see how it takes that:

# %%
import sys
import traceback

try:
    next(iter(DataLoader(events, batch_size=4)))
except RuntimeError:
    traceback.print_exc(limit=-1, file=sys.stdout)

# %% [markdown]
# The usual solution is to **pad** all events to the length of the longest one. A **mask** then marks the real pulses,
# so that nobody mistakes the zeros for physics.

# %%
cu.predict("01b", "In a shuffled batch of 64 padded events, how much is padding?", unit="%")

# %% [markdown]
# ### Exercise 1.1 · 10 min · ●●○
#
# Write the `collate_fn`. It mustn't change the samples, and it returns a dict:
#
# - `"pulses"`: float32, shape (events, longest, 4), as wide as the longest event *of this batch*, with zeros after the
#   end of an event;
# - `"mask"`: bool, shape (events, longest), true for a pulse;
# - `"energy"`: float32, shape (events,).
#
# Target: any mixture of lengths becomes one batch, even in a worker.
#
# <details><summary>Hint 1: padding</summary>
#
# `torch.nn.utils.rnn.pad_sequence` pads a list of tensors. Don't miss its argument `batch_first`.
#
# </details>
#
# <details><summary>Hint 2: the mask</summary>
#
# Compute the mask from the lengths and not from the values, because a real pulse may contain zeros. Compare
# `torch.arange(longest)` with the lengths as a column, `lengths[:, None]`.
#
# </details>

# %%
# %%worker_module my_collate
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence


def pad_events(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Make one batch of events of different lengths."""
    ### BEGIN SOLUTION
    pulses = pad_sequence([sample["pulses"] for sample in samples], batch_first=True)
    lengths = torch.tensor([len(sample["pulses"]) for sample in samples])
    return {
        "pulses": pulses,
        "mask": torch.arange(pulses.shape[1]) < lengths[:, None],
        "energy": torch.tensor([sample["energy"] for sample in samples]),
    }
    ### END SOLUTION


# %%
cu.check("01.1", pad_events)

# %% [markdown]
# The course has a similar `collate_fn`, `pad_collate`. If you're curious, run `pad_collate??` in a cell.

# %%
from course_utils.loading.events import NpzEvents, pad_collate

loader = DataLoader(all_events, batch_size=64, shuffle=True, collate_fn=pad_collate)
padding = [1 - batch["mask"].float().mean().item() for batch in loader]
cu.reveal("01b", 100 * np.mean(padding))

# %% [markdown]
# One long event makes the whole batch wide, and the other 63 pay for it. To waste less, you can crop long events or
# sort the events by length, but be careful: long events have high energy, so if you sort by length, you sort by energy.
#
# A dataset may also have a method `__getitems__`, which the loader then calls once for a whole batch. This helps if
# each request costs time, as on a file server.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **01b** Tempting: 30 to 50, the padding at a typical length. The answer is about 70, because one long event makes
#   the whole batch wide. The tail of the histogram is easy to forget, so point at it afterwards.
#
# **Goes wrong.**
#
# - In 1.1, the mask is computed from values (`pulses != 0`), so a real zero counts as padding. Ask where the lengths
#   are known.
# - In 1.1, the mask is inverted, because PyTorch's `key_padding_mask` means the opposite.
# - In 1.1, somebody pads to a fixed width or changes the samples. The check names both mistakes.

# %% [markdown]
# ## Order
#
# Who chooses the indices? A *sampler*. With `shuffle=True`, it draws every index once, in a new order in each epoch.

# %%
import torch

for shuffle in (False, True):
    loader = DataLoader(range(len(events)), batch_size=8, shuffle=shuffle)
    print(next(iter(loader)).tolist())

# %% [markdown]
# `drop_last=True` drops the last batch if it isn't full. Is that harmless?

# %%
for drop_last in (False, True):
    loader = DataLoader(range(len(events)), batch_size=64, drop_last=drop_last)
    served = torch.cat(list(loader)).tolist()
    lost = sorted(set(range(len(events))) - set(served))
    print(f"{drop_last=}: {len(loader)} batches, {len(lost)} events lost, first of them {lost[:3]}")

# %% [markdown]
# A loader that shuffles loses different events in each epoch, which rarely matters. A loader that doesn't shuffle
# always loses the same ones, and here they're those with the highest energies. So use `drop_last=True` for training and
# never for validation.

# %% [markdown]
# ## Parts
#
# `Subset(events, [3, 1, 4])` is a dataset of three events. `random_split` makes two random subsets, one for training
# and one for validation.

# %%
from torch.utils.data import Subset, random_split

train, valid = random_split(events, [0.8, 0.2])
print(f"{len(Subset(events, [3, 1, 4]))=}, {len(train)=:,}, {len(valid)=:,}")

# %% [markdown]
# It looks fair, doesn't it? But the events come from *runs* of a few hours each, and every run has its own noise, dead
# sensors and calibration.

# %%
cu.predict("01c", "How many of the runs in validation are also in training?", unit="%")

# %%
runs_train = set(labels.run_id[train.indices])
runs_valid = set(labels.run_id[valid.indices])
cu.reveal("01c", 100 * len(runs_valid & runs_train) / len(runs_valid))

# %% [markdown]
# No event is in both parts, but every run in validation is also in training. What can a network gain if it recognizes
# the run?

# %%
runs = np.unique(labels.run_id)
cascades = [100 * np.mean(labels.kind[labels.run_id == run] == 0) for run in runs]
plt.figure(figsize=(7, 2.5))
plt.bar(runs, cascades)
plt.gca().set(xlabel="run", ylabel="cascades (%)")
plt.show()

# %% [markdown]
# A network that recognizes the run by its noise can guess the kind of an event from the run alone. Then the score in
# validation is too good, and you'll find out in the next run. So split by **run**, or by patient, or by day: by the
# thing that your samples share.

# %% [markdown]
# ### Exercise 1.2 · 10 min · ●●○
#
# Let's split by run. Return two arrays with positions of events, one for training and one for validation.
#
# Target: no run is in both parts, and every event is in exactly one. A `share` of the *runs* is in validation. The runs
# are drawn at random, and the seed decides which.
#
# <details><summary>Hint 1: what to shuffle</summary>
#
# `np.unique(run_id)` returns the runs, and it's the runs that you shuffle.
#
# </details>
#
# <details><summary>Hint 2: from runs to events</summary>
#
# `np.isin(run_id, valid_runs)` is true for the events of these runs. `np.flatnonzero` turns it into positions.
#
# </details>


# %%
def split_by_run(run_id: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the events for training and for validation."""
    ### BEGIN SOLUTION
    runs = np.random.default_rng(seed).permutation(np.unique(run_id))
    valid_runs = runs[: round(share * len(runs))]
    in_valid = np.isin(run_id, valid_runs)
    return np.flatnonzero(~in_valid), np.flatnonzero(in_valid)
    ### END SOLUTION


# %%
cu.check("01.2", split_by_run)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **01c** Tempting: 0, because a split has no common events. But each run has hundreds of events, so the answer is all
#   of the runs.
#
# **Goes wrong.**
#
# - In 1.2, somebody cuts the sorted file into two pieces, so validation gets the highest energies and every run. Draw
#   the two pieces on the board.
# - In 1.2, somebody returns runs instead of positions, ignores the seed, or takes neighboring runs. The check names
#   each mistake.

# %% [markdown]
# ## Your loader feeds a GPU
#
# `NpzEvents` is similar to your `EventFiles`, but here it reads through an **emulated** file server (NFS): your disk,
# made slower, with a counter. If you have no GPU, the GPU is emulated too. With a real one, `pin_memory=True` keeps
# batches in memory that it can copy faster.
#
# You know from notebook 00 that the GPU will wait, so this time let's watch the server.

# %%
question = "This server can send 117 MB/s. How much of that will your loop get?"
cu.predict("01d", question, unit="MB/s")

# %%
from itertools import islice

gpu = cu.get_accelerator(step_ms=30)
server = cu.slow_storage(folder, "NFS")
remote, pin = NpzEvents(folder, fs=server), torch.cuda.is_available()
loader = DataLoader(remote, 32, shuffle=True, collate_fn=pad_collate, pin_memory=pin)
server.reset_counters()
with cu.record() as trace:
    for batch in islice(trace.batches(loader), 30):
        loss = gpu.step(gpu.upload(batch))
        loss.item()

# %%
trace.timeline()

# %%
cu.reveal("01d", server.counters().bytes_read / 1e6 / trace.summary().total_s)

# %% [markdown]
# While the main process reads and decodes, the GPU waits, and while the GPU computes, nothing is read. This loop is
# normal, and yet most of the time is lost. But if the picture is full of reading, how can it bring so little? Let's ask
# the server what it had to do.

# %%
print(server.counters())

# %% [markdown]
# A *look-up* requests a size or a directory listing, and a *request* reads. Each event costs one open and one request,
# even if it's small, and your process waits for both before it asks for the next one. That's how you empty a lake with
# a teaspoon. Later notebooks ask less often, and for more.
#
# ## You now can
#
# - look at data before you load them, and say whether a batch is representative;
# - write a dataset, a `collate_fn` and a fair split;
# - say what a GPU and a file server wait for in a simple loop.
#
# Next: [02 See the GPU wait](02_see_the_gpu_wait.ipynb), because you've seen that a GPU waits, but how long, and why?

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **01d** Tempting: 117, or half of it, because this loop does little else than read. The answer is less than 1,
#   because an event has two kilobytes, and waiting for an open and for a request takes more than a hundred times as
#   long as sending them.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs the sections below, and each section needs only the core.
#
# ## If all data fit in memory
#
# The [BabyLM challenge](https://babylm.github.io) trains language models on 10 or 100 million words. The [dataset
# class](https://github.com/timinar/BabyLlama/blob/main/babylm_dataset.py) of one published entry, BabyLlama, reads all
# of it in `__init__`, against the usual advice. Is it right? Decide before you read on. Here's a class that does the
# same for plain words:

# %%
# %%worker_module corpus
from pathlib import Path

import torch
from torch.utils.data import Dataset


class Corpus(Dataset):
    def __init__(self, text: Path, length: int):
        known: dict[str, int] = {}
        tokens = [known.setdefault(word, len(known)) for word in text.read_text().split()]
        self.tokens, self.length = torch.tensor(tokens), length

    def __len__(self) -> int:
        return len(self.tokens) // self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tokens[index * self.length : (index + 1) * self.length]


# %% [markdown]
# Let's try it with a million words. BabyLlama's class also saves the tokens to the disk, so that the next start doesn't
# have to encode the text again. Is that worth it?

# %%
question = "How many times faster is it to load the tokens from a binary file than from the text?"
cu.predict("01e", question, unit="times")

# %%
import tempfile
from time import perf_counter

room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
text = Path(room.name) / "corpus.txt"
words = np.random.default_rng(0).zipf(1.3, 1_000_000).clip(max=50_000)
text.write_text(" ".join(map(str, words)))
began = perf_counter()
corpus = Corpus(text, length=128)
from_text = perf_counter() - began
np.save(text.with_suffix(".npy"), corpus.tokens.numpy().astype(np.uint16))
began = perf_counter()
tokens = np.load(text.with_suffix(".npy"))
cu.reveal("01e", from_text / (perf_counter() - began))

# %% [markdown]
# It is, because a text must be read word by word each time, so save the numbers that you compute with in binary files.
# And how much memory do the tokens need?

# %%
for name, bytes_each in {"int64": 8, "uint16": 2}.items():
    megabytes = bytes_each * len(tokens) / 1e6
    print(f"{name:6} {megabytes:3.0f} MB here, {100 * megabytes:3.0f} MB for 100 million tokens")

# %% [markdown]
# BabyLlama is right: any machine with a GPU has much more memory than this, and after the start no disk can slow the
# training down. But count the copies: a forked worker shares the memory of the main process (notebook 4 explains how
# workers start), while any other worker gets its own pickled copy of the dataset:

# %%
import pickle

for dataset in (events, corpus):
    megabytes = len(pickle.dumps(dataset)) / 1e6
    print(f"{type(dataset).__name__:10} {megabytes:6.2f} MB for each worker")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **01e** Tempting: 2 to 5, because "reading is reading". The answer is a factor of hundreds or more, because the text
#   must be read word by word.
# - **01f** Tempting: 100, because an epoch shows all events. It's 63.
#
# **Background.** A debate of three minutes, with a show of hands first. Should BabyLlama load everything in `__init__`?
# For: simple, fast, small. Against: the copies under spawn, eight bytes for a token that needs two, and the Python list
# while the tensor is built. A good conclusion is that a light `__init__` is a consequence of size, not a law.

# %% [markdown]
# ## Several parts, and folds
#
# `ConcatDataset` joins datasets end to end. And if you want a cross-validation with k folds, divide the *runs* into k
# groups and use `Subset`, which stores the data only once.

# %%
from torch.utils.data import ConcatDataset

print(f"{len(ConcatDataset([events, all_events])):,} events end to end")
dealt = np.random.default_rng(0).permutation(np.unique(labels.run_id))
for number, fold in enumerate(np.array_split(dealt, 4)):
    in_valid = np.isin(labels.run_id, fold)
    train, valid = (Subset(events, np.flatnonzero(part)) for part in (~in_valid, in_valid))
    print(f"fold {number}: {len(train):,} events for training, {len(valid):,} for validation")

# %% [markdown]
# ## Draw with replacement
#
# Some samplers draw *with replacement*: each draw is from all events, including those that you've already drawn.

# %%
cu.predict("01f", "You draw N times from N events. How many of them do you get to see?", unit="%")

# %%
from torch.utils.data import WeightedRandomSampler

draws = list(WeightedRandomSampler(torch.ones(len(events)), num_samples=len(events)))
cu.reveal("01f", 100 * len(set(draws)) / len(events))

# %% [markdown]
# The chance that N draws all miss one event is (1 − 1/N)^N, which is close to 1/e, so such an "epoch" shows 1 − 1/e of
# the data, or 63 %. The other draws are repeats.

# %% [markdown]
# ## Read whole batches
#
# This dataset reads events from one large `.npy` file, on an emulated Lustre file system that is as busy as a cluster's
# on a Monday and has no cache. `read` fetches neighboring events with one request.

# %%
# %%worker_module pulse_file
from typing import Any

import numpy as np

HEADER, ROW = 128, 16  # bytes before the first pulse in this .npy file, and bytes of a pulse


class PulseFile:
    def __init__(self, storage: Any, path: str, offsets: np.ndarray):
        self.storage, self.path, self.offsets = storage, path, offsets

    def __getitem__(self, index: int) -> np.ndarray:
        return self.read(index, index + 1)[0]

    def read(self, first: int, last: int) -> list[np.ndarray]:
        """Return the events first, ..., last - 1 with one request."""
        bounds = self.offsets[first : last + 1] - self.offsets[first]
        with self.storage.open(self.path) as file:
            file.seek(HEADER + ROW * self.offsets[first])
            rows = np.frombuffer(file.read(ROW * bounds[-1]), "<f4").reshape(-1, 4)
        return np.split(rows, bounds[1:-1])


# %% [markdown]
# A *block shuffle* draws blocks of neighbors: here, a batch consists of eight blocks of eight events. The loader takes
# the indices of whole batches from `batch_sampler`, and with `collate_fn=list`, a batch is just a list of events.

# %%
blocks = np.random.permutation(len(events) // 8)[:8]
batch = np.random.permutation([8 * b + i for b in blocks for i in range(8)]).tolist()
storage = cu.slow_storage(folder, "busy Lustre", cache_mb=0)
pulse_file = PulseFile(storage, "npy/pulses.npy", offsets)
loader = DataLoader(pulse_file, batch_sampler=[batch], collate_fn=list)
next(iter(loader))
print(storage.counters())

# %% [markdown]
# ### Exercise 1.3 · 20 min · ●●●
#
# That was a request for each event, even for neighbors. Write `__getitems__`, which receives the indices of a batch and
# returns the events as a list, in the same order. It keeps no events for later batches.
#
# Target: for such a batch, at most a third of the requests above, and at most twice the bytes.
#
# <details><summary>Hint 1: the idea</summary>
#
# Sort the indices, because one call of `self.read(first, last)` reads several neighbors. Put the events into a dict and
# return them in the order of `indices`.
#
# </details>
#
# <details><summary>Hint 2: find the blocks</summary>
#
# `order = np.unique(indices)` is sorted. `np.split(order, np.flatnonzero(np.diff(order) > 1) + 1)` splits it where an
# index is missing.
#
# </details>

# %%
# %%worker_module batched_pulse_file
import numpy as np
from pulse_file import PulseFile


class BatchedPulseFile(PulseFile):
    def __getitems__(self, indices: list[int]) -> list[np.ndarray]:
        """Return the events `indices`, in this order."""
        ### BEGIN SOLUTION
        found: dict[int, np.ndarray] = {}
        order = np.unique(indices)
        for block in np.split(order, np.flatnonzero(np.diff(order) > 1) + 1):
            first, last = int(block[0]), int(block[-1]) + 1
            found.update(zip(range(first, last), self.read(first, last), strict=True))
        return [found[index] for index in indices]
        ### END SOLUTION


# %%
cu.check("01.3", BatchedPulseFile)

# %% [markdown]
# Compare your method with `neighbors` in `course_utils/loading/events/contract.py`, which the datasets of the course
# use. If the gap between two events is small, `neighbors` reads the gap as well and drops it. It reads more than you
# do, so why can it be faster?
#
# <details><summary>The answer</summary>
#
# A request waits 10 ms on this file system, and in that time it could have delivered 5 MB. <!-- given -->
#
# </details>

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **01g** Tempting: the true share, about a tenth, if you trust a trained model; or 50, the share in the training set.
#   The answer is between the two, and far too high.
#
# **Goes wrong.**
#
# - In 1.3, a loop over `self[i]` is one call with many requests. Some return sorted events, lose repeated indices with
#   `set`, or read everything between the first and the last event. Ask for the counters of the storage system each
#   time.
# - In 1.4, somebody gives weights to classes instead of pictures. `WeightedRandomSampler` draws pictures.
#
# **Extra.** Homework. Exercise 1.3 is for people who finish early. The question below it: a request waits 10 ms on this
# file system, and 5 MB take the same time, so reading a small gap is cheaper than a second request.

# %% [markdown]
# ## Images
#
# If each class of pictures has its own folder, you don't have to write a dataset at all: `ImageFolder` finds the
# pictures and numbers the classes.

# %%
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.utils import make_grid

images = ImageFolder(cu.data_path("images"), transform=transforms.ToTensor())
pictures, classes = next(iter(DataLoader(images, batch_size=8, shuffle=True)))
plt.imshow(make_grid(pictures).permute(1, 2, 0))
plt.axis("off")
plt.title(", ".join(images.classes[label] for label in classes))
plt.show()

# %% [markdown]
# ### Exercise 1.4 · 5 min · ●○○
#
# Some classes are rare, so write a function that returns two things. The first is a dict from the name of a class to
# its number of pictures, counted without opening one of them. The second is a list with a weight for *every picture*,
# so that `WeightedRandomSampler` draws all classes equally often.
#
# Target: each class has the same sum of weights.
#
# <details><summary>Hint</summary>
#
# `images.targets` contains the class index of each picture, and `images.classes` contains the names. A picture of a
# class of n gets the weight 1/n.
#
# </details>

# %%
from collections import Counter


def balance(images: ImageFolder) -> tuple[dict[str, int], list[float]]:
    """Return the number of pictures of each class, and a weight for each picture."""
    ### BEGIN SOLUTION
    counts = Counter(images.classes[target] for target in images.targets)
    return counts, [1 / counts[images.classes[target]] for target in images.targets]
    ### END SOLUTION


# %%
cu.check("01.4", balance)

# %% [markdown]
# ## Balanced, and then?
#
# Few of our events are cascades. If you want to train on as many cascades as tracks, you can draw cascades more often,
# like the sampler above, or leave out tracks. A database can leave them out before you load anything. This one has a
# row for each event: its kind, and two numbers for a small classifier.

# %%
from course_utils.stories.imbalance import event_table, fit

database = event_table(folder)  # in memory, by the sqlite3 of Python
query = """SELECT cascade, pulses, charge FROM events
           WHERE cascade OR event_id % :every = :epoch % :every"""


def select(every, epoch=0):
    return np.array(database.execute(query, {"every": every, "epoch": epoch}).fetchall(), float)


everything, balanced = select(every=1), select(every=7)
for table in everything, balanced:
    print(f"{len(table):,} events, {100 * table[:, 0].mean():.0f} % of them cascades")

# %% [markdown]
# `balanced` contains all cascades and every seventh track. The next epoch uses different tracks, so after seven epochs
# each track has been used once. The sampler reads more and repeats the cascades.

# %%
question = "A model learns from `balanced`. What share of all events does it think are cascades?"
cu.predict("01g", question, unit="%")

# %%
rare = everything[:, 0]
weights_of_events = np.where(rare, 1 / rare.sum(), 1 / (1 - rare).sum())
drawn = list(WeightedRandomSampler(weights_of_events, len(rare)))
said, corrected = {}, {}
for name, table in {"SQL": balanced, "sampler": everything[drawn]}.items():
    classify = fit(table)  # a logistic regression: from rows to probabilities
    in_training, in_truth = table[:, 0].mean(), rare.mean()
    said[name] = classify(everything)
    odds = said[name] / (1 - said[name])
    odds *= in_truth / (1 - in_truth) / (in_training / (1 - in_training))
    corrected[f"{name}, corrected"] = odds / (1 + odds)
cu.reveal("01g", 100 * said["SQL"].mean())

# %%
from course_utils.stories.figures import drawing

predicted, lines = said | corrected, ("o-", "s--", "^:", "d-.")
with drawing(7, 3.2) as (figure, (panel,)):
    panel.plot([0, 1], [0, 1], color="gray", linewidth=1, label="ideal")
    for (name, probability), line in zip(predicted.items(), lines, strict=True):
        groups = np.array_split(np.argsort(probability), 8)  # of equal size
        means = [[column[group].mean() for group in groups] for column in (probability, rare)]
        panel.plot(*means, line, label=name)
    panel.set(xlabel="predicted probability", ylabel="share of cascades")
    panel.legend()
figure

# %% [markdown]
# Both classifiers see cascades everywhere, because half of their training events were cascades. To correct the odds,
# divide them by the odds in the training set and multiply them by the true odds. The order of the events stays the
# same, so the best 100 stay the best 100, but a cut at 0.5 then selects different events, so choose it again. After the
# correction, the outputs are true probabilities. If anybody uses the probabilities of your classifier, correct them
# after a balanced training.
#
# Two warnings. Many physics events have a *weight*, which may even be negative, and a sampler can't use that, so
# multiply the loss of each event by its weight. And since a loader takes only one sampler, you can't combine
# `WeightedRandomSampler` with the `DistributedSampler` of notebook 11.

# %% [markdown]
# ## Batches without padding
#
# Most of a padded batch of our events is padding (prediction 01b), and a model computes on the padding, too. Do we need
# it? No: a batch can keep all its pulses in one table, as the file does, and its **offsets** are the rows of the table
# at which the events begin.

# %%
# %%worker_module my_flat_collate
from typing import Any

import torch


def join_events(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    lengths = [len(sample["pulses"]) for sample in samples]
    return {
        "pulses": torch.cat([sample["pulses"] for sample in samples]),
        "offsets": torch.tensor([0, *lengths]).cumsum(0),
        "energy": torch.tensor([sample["energy"] for sample in samples]),
    }


# %%
batch = next(iter(DataLoader(all_events, 64, shuffle=True, collate_fn=join_events)))
first, last = batch["offsets"][5:7]
print(f"{len(batch['pulses']):,} pulses; event 5 has the pulses {first} to {last - 1}")

# %% [markdown]
# A layer that processes each pulse separately needs no change, but attention must stay within an event. PyTorch has a
# tensor type for this: `torch.nested` with `layout=torch.jagged` stores a table and its offsets. In `keepfed`,
# `RaggedCollate("pulses")` builds batches with offsets, and `RaggedLoader` reads them from one file.
#
# If your model can't do without padding, put events of similar length into the same batch, as `LengthBuckets` does.
# Let's train the small transformer of notebook 13 for one epoch on 192 events, with three kinds of batches.

# %%
question = "How many times faster is the epoch without padding than with padding?"
cu.predict("01h", question, unit="times")

# %%
from course_utils.stories.capstone.jagged import padding_costs
from course_utils.stories.figures import bars

costs = padding_costs(cu.data_path("events", "S"))
speed = {name: costs.seconds["padded"] / seconds for name, seconds in costs.seconds.items()}
for name, share in costs.padding.items():
    print(f"{name}: {100 * share:.0f} % of the rows are padding")
print(f"the losses of a padded and a flat batch differ by {costs.difference:.0e}")
bars(speed, "times as fast as padded batches", "{:.1f}".format)

# %%
cu.reveal("01h", speed["without padding"])

# %% [markdown]
# Length buckets avoid only part of the padding, and they sort events by energy, because long events usually have high
# energies. How much do the mean energies of the batches scatter, compared with random batches?

# %%
from course_utils.loading.quality import mixing
from keepfed.loaders.ragged import LengthBuckets

buckets = LengthBuckets(n_pulses, 64)
print(f"length buckets: {mixing(buckets, labels.energy).ratio:.1f} times the ideal scatter")

# %% [markdown]
# With length buckets, the events of a batch have nearly the same energy, while without padding a batch remains a random
# sample, so if your model can use a table and offsets, prefer them.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **01h** Tempting: 3, from 01b. The answer is usually higher, because the cost of attention grows with the square of
#   the padded length.
