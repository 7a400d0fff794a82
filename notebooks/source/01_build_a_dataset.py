# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 01 · Build a Dataset and feed it to a DataLoader
#
# **You will do:** turn a folder of detector events into batches, and see a GPU wait for them.
#
# **You will learn**
#
# - to look at the data before you write a loader for them,
# - what PyTorch asks of a dataset, and how little that is,
# - to make batches of events that differ in length,
# - to split data without telling the network the answers.
#
# **You need:** Python and numpy. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("01")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *5 min* **Look first.** Show a track and a cascade, then the lengths; prediction 01a and the
#   sorted file. End with one word: shuffle.
# - *3 min* **The contract.** A list is a dataset. Read `EventFiles` aloud: what happens in
#   `__init__`, and what when somebody asks for event 17?
# - *14 min* **Batches.** Let the error happen and read its last line together. Prediction 01b, then
#   exercise 1.1 in silence.
# - *2 min* **Order.** `drop_last`: who drops the same events in every epoch?
# - *10 min* **Parts.** Prediction 01c, one minute of talk about runs, then exercise 1.2.
# - *2 min* **Your loader feeds a GPU.** Prediction 01d; let the picture stand for a while. Ask what
#   could run at the same time, and do not answer: that is the next notebook.
#
# **Board.** One line from left to right: *index → sample → list of samples → batch*. Write over the
# arrows who does the work: sampler, `__getitem__`, `collate_fn`. Point at it all the time.

# %% [markdown]
# ## Look first
#
# The data are simulated. A telescope of 5,160 light sensors in the ice sees particles pass. One
# event is a list of pulses. A pulse is a row of four numbers: time (ns), charge, number of the sensor,
# and a flag.

# %%
import matplotlib.pyplot as plt
import numpy as np

from course_utils.loading.events import MemmapEvents, draw_event, read_labels, read_sensors

plt.style.use("course_utils.plots")  # readable on light and on dark pages
folder = cu.data_path("events")
labels, sensors = read_labels(folder), read_sensors(folder)
offsets = np.load(folder / "npy" / "offsets.npy")
n_pulses = np.diff(offsets)
print(f"{len(labels):,} events, {offsets[-1]:,} pulses, {len(set(labels.run_id))} runs")

# %% [markdown]
# A *track* crosses the detector, a *cascade* is a ball of light. Colour is time and size is charge. Small
# grey dots are flagged as noise, and the arrow shows where the particle truly went.

# %%
all_events = MemmapEvents(folder)
# the brightest event of each kind: 1 is a track, 0 is a cascade
track, cascade = (np.where(labels.kind == kind, n_pulses, 0).argmax() for kind in (1, 0))
draw_event(all_events[track], sensors)

# %%
draw_event(all_events[cascade], sensors)

# %% [markdown]
# How long are the events? That decides how you make batches.

# %%
plt.figure(figsize=(7, 2.5))
plt.hist(n_pulses, bins=np.geomspace(n_pulses.min(), n_pulses.max(), 60), log=True)
plt.gca().set(xscale="log", xlabel="pulses in an event", ylabel="events")
plt.title(f"median {np.median(n_pulses):.0f}, longest {n_pulses.max():,}")
plt.show()

# %% [markdown]
# The longest event is tens of times longer than the typical one, as is normal in physics. And are the
# first 64 events on the disk like all the others?

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
# Each dot is an event. The events lie sorted by energy, as the output of a production often does. Read them
# in this order, and every batch shows the network another small part of the world. So: **shuffle**.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **01a** Those who know that productions are sorted guess high; others ask why the two should
#   differ at all, and say 1. It is 8 or 9. Ask what the loss curve would look like: a sawtooth, once
#   per epoch.
#
# **Goes wrong.**
#
# - All that somebody sees is one blob in the displays. The brightest events were taken; typical ones
#   are dim.

# %% [markdown]
# ## The contract
#
# A dataset answers one question: *what is sample number 17?* That is `__getitem__`, and PyTorch asks
# for no more. A list can do it:

# %%
from torch.utils.data import DataLoader

list(DataLoader([3, 1, 4, 1, 5], batch_size=2))

# %% [markdown]
# A loader that is to choose the numbers itself, or to shuffle them, needs a `__len__` too. Such datasets
# are called *map-style*; those of Hugging Face's [datasets](https://huggingface.co/docs/datasets) are
# map-style too, unless they are streamed.
#
# Now a real one. Every event is there as a small `.npz` file. `__init__` only notes where the files
# are, and `__getitem__` opens one when it is asked for: that is *lazy* loading.
#
# `%%worker_module` writes the cell to a file and imports it. Workers, the processes that will load the
# data, can import a file, but they cannot see your notebook.

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
# Why not read everything in `__init__`? **If the data fit into memory once for each process, do so. If not,
# keep `__init__` light and `__getitem__` lazy.**

# %% [markdown]
# ## Batches
#
# The loader fetches samples and gives the list of them to `collate_fn`, which makes one batch. The
# default `collate_fn` stacks them, but our events differ in length. This error is meant to happen:

# %%
import sys
import traceback

try:
    next(iter(DataLoader(events, batch_size=4)))
except RuntimeError:
    traceback.print_exc(limit=-1, file=sys.stdout)

# %% [markdown]
# The usual cure is to **pad** all events to the length of the longest, and to keep a **mask** that says which
# pulses are real.

# %%
cu.predict("01b", "In a shuffled batch of 64 padded events, how much is padding?", unit="%")

# %% [markdown]
# ### Exercise 1.1 · 10 min · ●●○
#
# Write the `collate_fn`. It leaves the samples of `EventFiles` as they are and returns a dict:
#
# - `"pulses"`: float32, shape (events, longest, 4), as wide as the longest event *of this batch*, zeros
#   after the end of an event,
# - `"mask"`: bool, shape (events, longest), true where there is a pulse,
# - `"energy"`: float32, shape (events,).
#
# Target: every mixture of lengths becomes one batch, in a worker too.
#
# <details><summary>Hint 1: padding</summary>
#
# `torch.nn.utils.rnn.pad_sequence` pads a list of tensors. Look at its `batch_first`.
#
# </details>
#
# <details><summary>Hint 2: the mask</summary>
#
# Take it from the lengths, not from the values: a real pulse may contain zeros. Compare
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
# The course has a `collate_fn` like yours, `pad_collate`; `pad_collate??` in a cell shows its source.

# %%
from course_utils.loading.events import NpzEvents, pad_collate

loader = DataLoader(all_events, batch_size=64, shuffle=True, collate_fn=pad_collate)
padding = [1 - batch["mask"].float().mean().item() for batch in loader]
cu.reveal("01b", 100 * np.mean(padding))

# %% [markdown]
# One long event makes the whole batch wide. To waste less, crop long events, or put events of
# similar length together (and be careful: length and energy go together).
#
# If a dataset has a `__getitems__`, the loader hands it all numbers of a batch at once, and it may fetch
# them together. That pays where every request has its price.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **01b** Most say 30 to 50, from the typical length. It is about 70, because one long event makes
#   the whole batch wide. The tail of the histogram is easily forgotten: point at it afterwards.
#
# **Goes wrong.**
#
# - In 1.1 the mask is made from values (`pulses != 0`), and a true zero counts as padding. Ask where
#   the lengths are known.
# - In 1.1 the mask is upside down: `key_padding_mask` of PyTorch means the opposite of ours.
# - In 1.1 somebody pads to a fixed width, or changes the samples in place. The check names both.

# %% [markdown]
# ## Order
#
# A *sampler* decides which numbers the loader asks for. `shuffle=True` chooses one that draws every
# number once, in a new order each epoch.

# %%
import torch

for shuffle in (False, True):
    loader = DataLoader(range(len(events)), batch_size=8, shuffle=shuffle)
    print(next(iter(loader)).tolist())

# %% [markdown]
# `drop_last=True` leaves out the last batch if it is not full.

# %%
for drop_last in (False, True):
    loader = DataLoader(range(len(events)), batch_size=64, drop_last=drop_last)
    served = torch.cat(list(loader)).tolist()
    lost = sorted(set(range(len(events))) - set(served))
    print(f"{drop_last=}: {len(loader)} batches, {len(lost)} events lost, first of them {lost[:3]}")

# %% [markdown]
# A loader that shuffles loses different events in each epoch, and you may not care. One that does not shuffle
# always loses the same ones: here those with the highest energies. So drop it in training, never in validation.

# %% [markdown]
# ## Parts
#
# `Subset(events, [3, 1, 4])` is a dataset of three of the events. `random_split` makes two random
# subsets, one for training and one for validation.

# %%
from torch.utils.data import Subset, random_split

train, valid = random_split(events, [0.8, 0.2])
print(f"{len(Subset(events, [3, 1, 4]))=}, {len(train)=:,}, {len(valid)=:,}")

# %% [markdown]
# That looks fair. But the events come from *runs* of a few hours each, which have their own noise, dead
# sensors and calibration.

# %%
cu.predict("01c", "How many of the runs in validation are also in training?", unit="%")

# %%
runs_train = set(labels.run_id[train.indices])
runs_valid = set(labels.run_id[valid.indices])
cu.reveal("01c", 100 * len(runs_valid & runs_train) / len(runs_valid))

# %% [markdown]
# No event is in both parts, and yet no run in validation is new. What can a network gain by knowing the
# run?

# %%
runs = np.unique(labels.run_id)
cascades = [100 * np.mean(labels.kind[labels.run_id == run] == 0) for run in runs]
plt.figure(figsize=(7, 2.5))
plt.bar(runs, cascades)
plt.gca().set(xlabel="run", ylabel="cascades (%)")
plt.show()

# %% [markdown]
# Whoever recognises the run by its noise can guess the kind of the event without looking at it. The score
# in validation will be too good, and the next run will tell you so. Split by **run**, or by patient, or
# by day: by whatever your samples have in common.

# %% [markdown]
# ### Exercise 1.2 · 10 min · ●●○
#
# Split by run. Return two arrays of event numbers (positions), for training and for validation.
#
# Target: no run is in both parts, every event is in exactly one, a `share` of the *runs* is in
# validation, drawn at random, and the seed decides which.
#
# <details><summary>Hint 1: what to shuffle</summary>
#
# `np.unique(run_id)` gives the runs. Shuffle those, not the events.
#
# </details>
#
# <details><summary>Hint 2: from runs to events</summary>
#
# `np.isin(run_id, valid_runs)` is true for the events of these runs. `np.flatnonzero` turns it into
# positions.
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
# - **01c** Whoever says none thinks of events: "it is a split". It is all of the runs, since each run
#   has hundreds of events.
#
# **Goes wrong.**
#
# - In 1.2 somebody cuts the sorted file: validation gets the highest energies, and every run. Draw
#   it.
# - In 1.2 somebody returns runs instead of positions, forgets the seed, or takes neighbouring runs.
#   The check names each.

# %% [markdown]
# ## Your loader feeds a GPU
#
# `NpzEvents` is a dataset like yours, and it can read from an **emulated** file server (NFS): a model on
# top of your disk, which takes its time and counts what it is asked for. The GPU is emulated too, if
# there is none. With a real one, `pin_memory=True` lets batches wait in memory from which they are copied
# faster.

# %%
cu.predict("01d", "How much of the time will the GPU be busy?", unit="%")

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
cu.reveal("01d", 100 * trace.summary().utilisation)

# %% [markdown]
# While the main process reads and decodes, the GPU waits. While the GPU computes, nobody reads. Nothing
# here is unusual, and yet most of the time is lost. What did the file server have to do?

# %%
print(server.counters())

# %% [markdown]
# A *look-up* asks for a size or a folder, a *request* reads. Each event costs an open and a request,
# however small it is; later notebooks bring both down.
#
# ## You now can
#
# - look at data before loading them, and say whether a batch is representative,
# - write a dataset, a `collate_fn` and a split that can be trusted,
# - read from a timeline what a GPU waits for.
#
# Notebook 2 explains who waits for whom.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **01d** Most say 50 and more. It is about a sixth: while the main process reads and decodes, the
#   GPU waits.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs what follows, and each section only the core.
#
# ## When loading everything is right
#
# The [BabyLM challenge](https://babylm.github.io) trains language models on 10 or 100 million words.
# The [dataset class](https://github.com/timinar/BabyLlama/blob/main/babylm_dataset.py) of one published
# entry, BabyLlama, reads all of it in `__init__`, against the usual advice. Is that right or wrong?
# Decide before you go on. Here is a class that does the same for plain words:

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
# We try it on a million words. BabyLlama's class does one thing more: it keeps the tokens on the disk,
# so that the next start need not encode the text again.

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
# So keep what you compute with in binary files; text has to be read word by word each time. And how
# much memory do the tokens take?

# %%
for name, bytes_each in {"int64": 8, "uint16": 2}.items():
    megabytes = bytes_each * len(tokens) / 1e6
    print(f"{name:6} {megabytes:3.0f} MB here, {100 * megabytes:3.0f} MB for 100 million tokens")

# %% [markdown]
# BabyLlama is right: any machine with a GPU has many times that memory, and from then on no disk can slow
# the training down. But count the copies. Each worker that is not forked (notebook 4 explains the
# ways to start one) gets a pickled copy of the dataset for itself:

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
# - **01e** Most say 2 to 5, since "reading is reading". It is hundreds of times and more: the text
#   has to be read word by word.
# - **01f** Whoever takes an epoch for an epoch says 100. It is 63.
#
# **Background.** A debate of three minutes, show of hands first: may BabyLlama load everything in
# `__init__`? For: simple, fast, small. Against: the copies under spawn; eight bytes for a token that
# needs two; the Python list while it is being built. A good end: "light `__init__`" is a consequence
# of size, not a law.

# %% [markdown]
# ## Several parts, and folds
#
# `ConcatDataset` puts datasets end to end. For a cross-validation in k folds, deal out the *runs* and
# let `Subset` do the rest; the data lie on the disk only once.

# %%
from torch.utils.data import ConcatDataset

print(f"{len(ConcatDataset([events, all_events])):,} events end to end")
dealt = np.random.default_rng(0).permutation(np.unique(labels.run_id))
for number, fold in enumerate(np.array_split(dealt, 4)):
    in_valid = np.isin(labels.run_id, fold)
    train, valid = (Subset(events, np.flatnonzero(part)) for part in (~in_valid, in_valid))
    print(f"fold {number}: {len(train):,} events for training, {len(valid):,} for validation")

# %% [markdown]
# ## Drawn with replacement
#
# Some samplers draw *with replacement*: each draw is from all events, whatever was drawn before.

# %%
cu.predict("01f", "You draw N times from N events. How many of them do you get to see?", unit="%")

# %%
from torch.utils.data import WeightedRandomSampler

draws = list(WeightedRandomSampler(torch.ones(len(events)), num_samples=len(events)))
cu.reveal("01f", 100 * len(set(draws)) / len(events))

# %% [markdown]
# The chance that N draws all miss an event is (1 − 1/N)^N, which is close to 1/e. So an "epoch" of this
# kind shows 1 − 1/e of the data, or 63 %. The other draws are repeats.

# %% [markdown]
# ## Ask for whole batches
#
# This dataset reads events from one large `.npy` file, on an emulated Lustre file system as busy as that
# of a cluster on a Monday, without a cache. `read` fetches neighbouring events with one request.

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
# A *block shuffle* draws blocks of neighbours; here a batch is eight blocks of eight events. The loader
# takes the numbers of whole batches from `batch_sampler`, and `collate_fn=list` leaves the events of a
# batch in a list.

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
# Write `__getitems__`. It gets the numbers of a batch and returns the events as a list, in the order
# asked for.
#
# Target: for such a batch at most a third of the requests above, and no more than twice the bytes.
#
# <details><summary>Hint 1: the idea</summary>
#
# Sort the numbers. Neighbours can be read with one `self.read(first, last)`. Keep what comes in a dict,
# and hand it out in the order asked for.
#
# </details>
#
# <details><summary>Hint 2: find the blocks</summary>
#
# `order = np.unique(indices)` is sorted. `np.split(order, np.flatnonzero(np.diff(order) > 1) + 1)` cuts
# it where a number is missing.
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
# Compare with `neighbours` in `course_utils/loading/events/contract.py`, which the datasets of the course
# use. Where two wanted events have a small gap between them, it reads the gap as well and throws it away.
# Why can that be faster, although it reads more?
#
# <details><summary>The answer</summary>
#
# A request waits 10 ms on this storage. In that time 5 MB could have come. <!-- given -->
#
# </details>

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **01g** Those who trust a trained model say the true share, about a tenth; others say 50, as in
#   the set that it learnt from. It is in between, and far too many.
#
# **Goes wrong.**
#
# - In 1.3 a loop over `self[i]` is one call and as many requests; the result comes in sorted order;
#   `set` loses what was asked for twice; somebody reads everything between the first and the last.
#   Ask for the counters of the storage each time.
# - In 1.4 weights are given to classes instead of pictures. `WeightedRandomSampler` draws pictures.
#
# **Extra.** Homework; exercise 1.3 is the one for those who are done early. The question below it: a
# request waits 10 ms on this storage, in which 5 MB could have come, so a small gap is cheaper read
# than left out.

# %% [markdown]
# ## Images
#
# For pictures that lie in a folder for each class nothing is left to write: `ImageFolder` finds them, and
# numbers the classes.

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
# Some classes are rare. Count the pictures of each class without opening one: `counts` is a dict from
# the name of a class to its number of pictures. Then give *every picture* a weight, so that
# `WeightedRandomSampler` draws all classes equally often.
#
# Target: each class has the same sum of weights.
#
# <details><summary>Hint</summary>
#
# `images.targets` has the class number of each picture, `images.classes` the names. A picture of a
# class of n gets the weight 1/n.
#
# </details>

# %%
from collections import Counter

counts = Counter(images.classes[target] for target in images.targets)  ### SOLUTION
weights = [1 / counts[images.classes[target]] for target in images.targets]  ### SOLUTION

# %%
cu.check("01.4", counts, weights)

# %% [markdown]
# ## Balanced, and then?
#
# Few of our events are cascades. To train on as many cascades as tracks, either draw cascades more often, as
# the sampler above does with rare classes, or leave out tracks. A database can do that before anything is
# loaded. This one has a row for each event: its kind, and two numbers that a small classifier may use.

# %%
from course_stories.imbalance import draw_calibration, event_table, fit

database = event_table(folder)  # in memory, by the sqlite3 of Python
query = """SELECT cascade, pulses, charge FROM events
           WHERE cascade OR event_id % :every = :epoch % :every"""


def select(every, epoch=0):
    return np.array(database.execute(query, {"every": every, "epoch": epoch}).fetchall(), float)


everything, balanced = select(every=1), select(every=7)
for table in everything, balanced:
    print(f"{len(table):,} events, {100 * table[:, 0].mean():.0f} % of them cascades")

# %% [markdown]
# `balanced` has all cascades and every seventh track. Another epoch takes other tracks, and after seven epochs
# each track was there once; the sampler reads more, and repeats the cascades.

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
draw_calibration(rare, said | corrected)

# %% [markdown]
# Both classifiers expect far too many cascades, because where they learnt every other event was one. The
# cure is to divide the odds by those of the training set, and to multiply them by the true ones. The order of
# the events stays the same, so the choice of events by a threshold does not change; but now a probability
# means what it says. Whenever you balance, and somebody uses the probabilities, correct them.
