# %% [markdown]
# # 09 · Prefetch to CUDA
#
# {here: transfer}
#
# **You will do:** overlap copies to the GPU with its training steps, see wrong results on the way, and repair a
# prefetcher.
#
# **You will learn:**
# - what a copy to the GPU costs, and what `pin_memory` and `non_blocking` change; <!-- 09a 09b -->
# - how streams, events and device memory decide whether results are right; <!-- 09c 09d 09e 09f -->
# - to write a prefetcher, and to prove that it overlaps and that its data are right. <!-- 09g 9.1 9.2 -->
#
# **You need:** notebooks 02 and 05. A CPU is enough.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("09")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *8 min* **What a copy costs.** Ask for predictions 09a and 09b before anybody sees the times.
# - *5 min* **Streams and events.** Give three definitions and prediction 09c, and no more theory.
# - *15 min* **Four designs.** Draw each design before you run it. Predictions 09d, 09e and 09f.
# - *12 min* **What is wrong with this prefetcher?** For 09g, let the room call out defects and count them. Then
#   exercise 9.1.
# - *16 min* **Exercise 9.2.** Read its two most likely messages aloud.
#
# **Leave out.** Exercise 9.2. Read its two most likely messages aloud, and give it as homework.
#
# **Board.** Draw three queues next to each other: host, copies, steps. An arrow means "waits for". Ask for each
# design who waits for whom. Every wrong result of today is a missing arrow. Every lost overlap is an arrow too many.

# %% [markdown]
# ## What a copy costs
#
# A batch of 160 photographs in 8 bits has 24 MB. If you have a CUDA GPU, this notebook measures its copies.
# Otherwise it emulates a GPU and simulates the time, which advances only when the program would have to wait.
# <!-- given -->

# %%
import torch

from course_utils.hardware.gpu import timed_accelerator

gpu, clock = timed_accelerator("RTX 3090", step_ms=3)
hardware = "emulated" if gpu.emulated else gpu.name
images = [torch.randint(0, 256, (160, 3, 224, 224), dtype=torch.uint8) for _ in range(6)]
print(gpu)

# %% [markdown]
# Ordinary memory is **pageable**: the system may move a page at any time, so the copy engine of the GPU cannot use
# it. **Pinned** memory stays where it is. `non_blocking=True` asks a copy not to block the program. That makes four
# cases.

# %%
FOUR = ["none", "both with non_blocking", "both pinned", "pinned with non_blocking", "all four"]
cu.predict("09a", "In which cases does the program continue while the copy runs?", choices=FOUR)


# %%
def times(copy):
    """Return the ms until the program continues, and until the batch has arrived."""
    gpu.synchronize()
    start = clock()
    copy()
    continues = clock()
    gpu.synchronize()
    return (continues - start) / 1e6, (clock() - start) / 1e6


# %%
pageable, pinned = images[0], gpu.pin(images[0])
cases = {
    "pageable": lambda: gpu.upload(pageable),
    "pageable, non_blocking": lambda: gpu.upload(pageable, non_blocking=True),
    "pinned": lambda: gpu.upload(pinned),
    "pinned, non_blocking": lambda: gpu.upload(pinned, non_blocking=True),
}
copies_ms = {name: min(times(copy) for _ in range(3)) for name, copy in cases.items()}
print(f"ms until the program continues, and until the batch has arrived ({hardware}):")
for name, (continues, arrived) in copies_ms.items():
    print(f"{name:23} {continues:5.2f} {arrived:5.2f}")

# %%
free = [name for name, (held, there) in copies_ms.items() if held < 0.2 * there]
found = {0: "none", 1: "pinned with non_blocking"}.get(len(free), "both with non_blocking")
cu.reveal("09a", found)

# %% [markdown]
# To send pageable memory, the driver first copies the bytes into its own pinned buffer, in the thread of your program,
# so your program waits. `non_blocking` changes almost nothing there, and PyTorch prints no warning. (Only
# for copies of up to 64 KB does CUDA let the program continue.) <!-- given -->
#
# Many loops pin each batch first, with one more call.

# %%
cu.predict(
    "09b",
    "batch.pin_memory().to('cuda', non_blocking=True) in the loop: how many times as long as a plain "
    "batch.to('cuda') does it take until the batch has arrived?",
    unit="times",
)

# %%
copies_ms["pinned in the loop"] = min(
    times(lambda: gpu.upload(gpu.pin(pageable), non_blocking=True)) for _ in range(3)
)
print("pinned in the loop:      {:5.2f} {:5.2f}".format(*copies_ms["pinned in the loop"]))

# %%
cu.reveal("09b", copies_ms["pinned in the loop"][1] / copies_ms["pageable"][1])

# %% [markdown]
# Pinning a tensor *copies* it, inside your loop. The driver would make the same copy.
# [PyTorch's tutorial on pinning](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html) finds it up to
# twice as slow as a plain `.to()`. PyTorch keeps pinned memory for later batches, rounded up to a power of two, here
# 32 MiB. <!-- given -->
#
# `DataLoader(pin_memory=True)` pins in a separate thread. This costs a copy, too. Pinned pages cannot be swapped, so
# other programs have less memory. Without a GPU, the option has no effect, so we use `gpu.pinned(loader)` below.
#
# ## Streams, events, and who waits for whom
#
# - A **stream** is a queue on the device. Its operations run one after the other.
# - Two streams of PyTorch do not wait for each other. An operation without a stream goes to the *default stream*.
# - An **event** is a mark in a stream. Another stream can wait for an event, and so can the program.
#
# Many loops that prefetch begin with this comment: *inputs and targets already on GPU before this line executes*. Is it
# true?

# %%
cu.predict(
    "09c",
    "upload(pinned, non_blocking=True) has returned. Has the batch arrived?",
    choices=["yes", "no"],
)

# %%
copies = gpu.Stream()
with gpu.stream(copies):  # in this block, copies and steps go to this stream
    batch = gpu.upload(pinned, non_blocking=True)
    arrived = copies.record_event()

at_once = arrived.query()  # does not wait
arrived.synchronize()  # here the program waits
print("arrived at once:", at_once, "  after synchronize:", arrived.query())

# %%
cu.reveal("09c", "yes" if at_once else "no")

# %% [markdown]
# The batch has not arrived, because the copy is only *enqueued*. Whether a step may already use the batch depends on
# the stream of the step.
#
# ## Four designs
#
# All designs copy the next batch while the GPU computes the current one. The loop gets batch 0 only after the copy of
# batch 1 was launched.


# %%
def one_ahead(stage, batches):
    """Stage each batch before the previous one is yielded."""
    ready = None
    for batch in batches:
        ready, before = stage(batch), ready
        if before is not None:
            yield before
    if ready is not None:
        yield ready


# %% [markdown]
# A step of our device returns a checksum of its batch as the loss. A wrong checksum shows that the step has read
# garbage. Reading the loss makes the program wait for the step, as you see in the row `main`.

# %%
from course_utils.hardware.gpu import checksum
from keepfed.measure.picture import Timeline
from keepfed.measure.spans import hidden_share, stage

loader = list(gpu.pinned(images))  # as if from DataLoader(pin_memory=True)
wanted = [checksum([batch]).item() for batch in images]


# %%
def train(design, read_late=False):
    """Return the trace of an epoch, and how many batches were read right."""
    losses = []
    with cu.record(clock=clock) as trace:
        for batch in design(trace.batches(loader)):
            losses.append(gpu.step(batch))  # launched, like a copy
            if not read_late:
                with stage("wait"):
                    losses[-1].item()
        found = [loss.item() for loss in losses]
    return trace, sum(a == b for a, b in zip(found, wanted, strict=True))


# %% [markdown]
# **Design 1** copies pinned batches ahead of time, non-blocking, on the default stream.


# %%
def in_the_loop(batches):
    for batch in batches:
        yield gpu.upload(batch, non_blocking=True)


def default_stream(batches):
    return one_ahead(lambda batch: gpu.upload(batch, non_blocking=True), batches)


# %%
cu.predict("09d", "Design 1: what share of the copying overlaps with steps?", unit="%")

# %%
plain, right_plain = train(in_the_loop)
one_queue, right_one = train(default_stream)
print(f"right batches: {right_plain} and {right_one} of {len(wanted)}")
Timeline({"copied in the loop": plain, "1: ahead, default stream": one_queue})

# %%
cu.reveal("09d", 100 * hidden_share(one_queue.spans))

# %% [markdown]
# The results are right, but nothing overlaps. Copies and steps share one queue, so each operation waits for the
# previous one, however early you enqueue it.
#
# **Design 2** copies on a separate stream.


# %%
def copy(batch):
    with gpu.stream(copies):
        return gpu.upload(batch, non_blocking=True), copies.record_event()


def without_wait(batches):
    for batch, _ in one_ahead(copy, batches):
        yield batch


# %%
cu.predict("09e", "Design 2: in how many of 20 epochs are all batches right?", unit="epochs")

# %%
epochs = [train(without_wait) for _ in range(20)]
right_epochs = sum(right == len(wanted) for _, right in epochs)
trace, right = epochs[0]
print(f"overlap: {100 * hidden_share(trace.spans):.0f} %, right epochs: {right_epochs} of 20")
second = f"2: no wait, {right} of {len(wanted)} batches right"
Timeline({"1: default stream": one_queue, second: trace})

# %%
cu.reveal("09e", right_epochs)

# %% [markdown]
# All copies overlap, and on an emulated GPU all results are wrong, because the steps do not wait for their data. On a
# real GPU, the copy often wins this race, perhaps in all 20 epochs, and for weeks. You get no error unless you ask
# for one. PyTorch's sanitizer is a prototype that should report this race, and then ends the program. Run
# `TORCH_CUDA_SANITIZER=1 python train.py` in a terminal, or with a `!` before it in a cell on Colab.
#
# **Design 3** adds the missing wait. Steps that the loop launches from now on wait for *this* copy. The program does
# not wait.


# %%
def with_wait(batches):
    for batch, arrived in one_ahead(copy, batches):
        gpu.current_stream().wait_event(arrived)
        yield batch


waits, right_waits = train(with_wait)
hidden = 100 * hidden_share(waits.spans)
print(f"right batches: {right_waits} of {len(wanted)}, overlap: {hidden:.0f} %")
Timeline({"1: default stream": one_queue, "3: stream and event": waits})

# %% [markdown]
# Only the first copy does not overlap, because no step runs before it. (On a real GPU slightly less overlaps, because
# Python needs time to launch each step.)
#
# Reading the loss after every step blocks the program, so good loops read it later. We now read all losses after the
# epoch.

# %%
cu.predict(
    "09f", "Design 3, losses read at the end: how many of 6 batches are right?", unit="batches"
)

# %%
waits_late, right_late = train(with_wait, read_late=True)
cu.reveal("09f", right_late)

# %% [markdown]
# PyTorch's **caching allocator** manages device memory. When Python drops a batch, the allocator gives its memory at
# once to the next tensor of the same stream. Within one stream this is safe, because the stream writes the next tensor
# only after it has read the old one. But our step reads the batch on *another* stream. The program runs ahead, so
# it drops batches whose steps have not begun. The next copy then overwrites such a batch.
#
# **Design 4** tells the allocator which other stream uses the memory:


# %%
def with_record(batches):
    for batch, arrived in one_ahead(copy, batches):
        user = gpu.current_stream()
        user.wait_event(arrived)
        batch.record_stream(user)  # its memory stays until this stream has finished with it
        yield batch


for read_late in False, True:
    trace, right = train(with_record, read_late)
    when = "late" if read_late else "in each step"
    print(f"losses read {when}: {right} right, {100 * hidden_share(trace.spans):.0f} % overlap")

# %% [markdown]
# Design 4 is right and overlaps its copies in both loops. It costs memory. A batch stays allocated until its step has
# finished, even after Python has dropped it. If the program runs far ahead of the GPU, batches accumulate on the
# device.
#
# `CudaPrefetcher` implements design 4 for nested batches, and for objects with a method `.to()`. It blocks
# when the program is more than two steps ahead. On devices other than CUDA, it moves the batches without prefetching.
#
# ```python
# from keepfed.loaders.prefetch import CudaPrefetcher
#
# loader = DataLoader(dataset, batch_size=256, num_workers=8, pin_memory=True)
# for batch in CudaPrefetcher(loader, "cuda"):
# ```
#
# It needs no thread, because the loader already has workers and a thread that pins. The prefetcher only enqueues
# copies, which takes microseconds. Another thread could only add a way to hang.
#
# ## What is wrong with this prefetcher?
#
# A published course prints one like this, with a thread and a queue. Find its defects.

# %%
import inspect

from course_utils.stories.prefetchers import NotesPrefetcher

print(inspect.getsource(NotesPrefetcher))

# %%
cu.predict("09g", "How many defects do you see?", unit="defects")

# %%
from IPython.display import Markdown

from course_utils.stories.prefetchers import prove_all

defects = prove_all()  # measures both prefetchers now, on emulated GPUs
rows = [f"| {d.number} | {d.title} | {d.notes} | {d.ours} |" for d in defects]
head = ["| | Defect | With this prefetcher | With `CudaPrefetcher` |", "|---|---|---|---|"]
Markdown("\n".join(head + rows))

# %%
cu.reveal("09g", sum(defect.proven for defect in defects))

# %% [markdown]
# ### Exercise 9.1 · 5 min · ●○○
#
# Each of the ten defects has a symptom, and in real life you see only the symptom. For each symptom, write its cause,
# a key of `CAUSES`. One cause is left over. In (h), (i) and (j) the previous defect was repaired.
#
# <details><summary>Hint</summary>
#
# Print, for example, `CAUSES["no event"]`, which says how this cause shows. Four symptoms belong to the thread.
#
# </details>

# %%
from course_utils.exercises.nb09.problem import CAUSES, SYMPTOMS

for letter, symptom in SYMPTOMS.items():
    print(f"({letter}) {symptom}")
print("\nCAUSES:", *CAUSES, sep="\n  ")

# %%
a = "thread in __init__"  ### SOLUTION
b = "silent thread"  ### SOLUTION
c = "endless put"  ### SOLUTION
d = "default stream"  ### SOLUTION
e = "device of the thread"  ### SOLUTION
f = "batch = a pair"  ### SOLUTION
g = "queue too long"  ### SOLUTION
h = "no event"  ### SOLUTION
i = "no record_stream"  ### SOLUTION
j = "pageable memory"  ### SOLUTION

cu.check("09.1", a, b, c, d, e, f, g, h, i, j)

# %% [markdown]
# ### Exercise 9.2 · 10 min · ●●○
#
# Repair this prefetcher. You get `stage`, which launches a copy, and the error handling: the loop first gets all
# batches that were copied, and then the error. Targets:
#
# - All checksums are right, in loops that read each loss and in loops that read the losses late.
# - 80 % of the copying overlaps, for batches of any structure and a loader without `len()`. <!-- given -->
# - When the loop gets batch n, the copies of the next `depth` batches have been launched.
# - If each loss is read, at most `depth + 1` batches are on the device.
# - Each loop over it is a new epoch, even after an error, a `break`, or inside another loop.

# %%
from collections import deque

from course_utils.hardware.gpu import leaves


class Copies:
    """Given: the GPU of the program, a stream for copies, and a method that launches a copy."""

    def __init__(self, loader, devices, depth=1):
        self.loader, self.depth = loader, depth
        self.gpu = devices.current()
        self.copies = self.gpu.Stream()

    def stage(self, batch):
        """Launch the copy of a pinned batch. Return the batch and the event of its arrival."""
        with self.gpu.stream(self.copies):
            return self.gpu.upload(batch, non_blocking=True), self.copies.record_event()


# %% [markdown]
# <details><summary>Hint 1: safe to use</summary>
#
# Use design 4. `leaves(batch)` lists all values of a nested batch. Only tensors have `record_stream`.
#
# </details>
# <details><summary>Hint 2: how many</summary>
#
# In the `try`, append `self.stage(next(batches))` to `staged` until it has `depth` batches and one more. After an
# error, do not call `next` again.
#
# </details>
# <details><summary>Hint 3: yield</summary>
#
# If `staged` is not empty, `yield self.hand_over(*staged.popleft())`. Do not put the batch in a variable, which would
# keep its memory until the loop comes back.
#
# </details>


# %%
class Prefetcher(Copies):
    def hand_over(self, batch, arrived):
        """Make the batch safe for the loop, and return it."""
        ### BEGIN SOLUTION
        user = self.gpu.current_stream()
        user.wait_event(arrived)
        for leaf in leaves(batch):
            if hasattr(leaf, "record_stream"):
                leaf.record_stream(user)
        return batch
        ### END SOLUTION

    def __iter__(self):
        staged, error, batches = deque(), None, iter(self.loader)
        while error is None or staged:
            try:
                ### BEGIN SOLUTION
                while error is None and len(staged) <= self.depth:
                    staged.append(self.stage(next(batches)))
                ### END SOLUTION
            except Exception as caught:  # StopIteration at the end, or an error of the loader
                error = caught
            ### BEGIN SOLUTION
            if staged:
                yield self.hand_over(*staged.popleft())
            ### END SOLUTION
        if not isinstance(error, StopIteration):
            raise error


# %%
cu.check("09.2", Prefetcher)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **09a** Tempting: "both with non_blocking", because of the name. Only pinned memory with `non_blocking` is right.
# - **09b** Tempting: less than 1, because pinned copies are fast. It is more than 1, up to 2, because pinning copies.
# - **09c** People who have seen the comment say "yes". The answer is no, because the copy is only enqueued.
# - **09d** Tempting: 80 to 100. Let somebody draw the one queue. It is 0.
# - **09e** Tempting: 18 or 19, because races seem rare. On an emulated GPU it is 0. A real GPU often hides the bug.
# - **09f** Tempting: 6, "because now it waits". It is about half of them. Ask who still holds batch 0.
# - **09g** Tempting: 2 to 4. Ten are proven.
#
# **Goes wrong.**
#
# - In 9.1, some take (h), (i) and (j) for the first defect. Tell them to read the repair in each symptom.
# - In 9.2, some stage `depth` batches instead of one more. Count the copies in flight when the loop gets a batch.
# - In 9.2, a variable keeps a batch alive. `for batch in ...` holds the old batch until the new one is ready.
# - Somebody asks for a real GPU. The optional part shows recordings of `make gpu-check` next to the emulated device,
#   if anybody has run it.

# %% [markdown]
# ## You now can
#
# - say which copies block the program;
# - read from a timeline which queue waits for which;
# - write a prefetcher that overlaps its copies, and prove that its data are right;
# - find the defects of an existing prefetcher.
#
# Next: [notebook 10](10_stream_shards.ipynb), data that come over the network.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs the sections below, and each section needs only the core. (They
# use the designs and `train` from above.)

# %% [markdown]
# ## Seven designs
#
# Two more designs look as good as design 4. Both wait for the whole copy stream instead of the event.
# `whole_stream` launches the next copy and then waits. `stream_first` waits and then launches the next copy.


# %%
def whole_stream(batches):
    for batch, _ in one_ahead(copy, batches):
        user = gpu.current_stream()
        user.wait_stream(copies)  # includes the copy of the next batch
        batch.record_stream(user)
        yield batch


def stream_first(batches):
    batches, user = iter(batches), gpu.current_stream()
    staged = next(map(copy, batches), None)
    while staged is not None:
        user.wait_stream(copies)  # contains only the copy of this batch
        (batch, _), staged = staged, next(map(copy, batches), None)
        batch.record_stream(user)
        yield batch


# %%
cu.predict("09h", "whole_stream, each loss read: what share of the copying overlaps?", unit="%")

# %%
designs = [in_the_loop, default_stream, without_wait, with_wait, with_record]
designs += [whole_stream, stream_first]
runs = {}
for title, late in ("loss read in each step", False), ("losses read late", True):
    traces = {design.__name__: train(design, late) for design in designs}
    runs[title] = {
        name: (hidden_share(trace.spans), right) for name, (trace, right) in traces.items()
    }
for title, results in runs.items():
    print(f"{title}: copying overlapped ({hardware}), right batches of {len(wanted)}")
    for name, (share, right) in results.items():
        print(f"  {name:16} {share:4.0%} {right:3}")

# %%
cu.reveal("09h", 100 * runs["loss read in each step"]["whole_stream"][0])

# %% [markdown]
# `whole_stream` also waits for the copy *after* ours, which is already running. It overlaps only if the program runs
# far ahead. `stream_first` has the same lines in another order, as in the prefetcher of
# [NVIDIA's Apex](https://github.com/NVIDIA/apex/blob/123854c30cf2470e9295eefbe32efc8a81d08264/examples/imagenet/main_amp.py),
# and overlaps all but the first copy. If you wait for an event, the order of these lines does not matter.
#
# `record_stream` is a convenience. PyTorch's documentation recommends another way if your code owns the batch: keep the
# batch until an event after its last step has passed.
#
# Create one stream for copies, and not one in each epoch. The allocator keeps the memory of a stream for the next batch
# of *that* stream, and PyTorch has only 32 streams. <!-- given -->
#
# A CUDA graph reads fixed addresses, so it does not see a new batch. Copy each batch into the tensor that the graph
# was captured with: `static.copy_(batch)`.

# %% [markdown]
# ## Copy results to the host
#
# A copy with `non_blocking=True` to the *host* returns before the data arrive.


# %%
def right_results(wait):
    right = 0
    for number in range(6):
        batch = gpu.upload(torch.full((1_000_000,), float(number)))
        result = gpu.launch(lambda values: values * 2, batch, ms=5)
        host = result.to("cpu", non_blocking=True)
        if wait:
            gpu.current_stream().record_event().synchronize()
        right += int((host == 2 * number).all())
    return right


# %% [markdown]
# Make a guess first. How many of 6 results are right?

# %%
print("read at once:", right_results(wait=False), " after an event:", right_results(wait=True))

# %% [markdown]
# Record an event after the copy and wait for it. The loss of `gpu.step()` does the same: `item()` waits for one event,
# but not for later steps.
#
# ## On a real GPU
#
# This cell shows recordings from a real GPU, each next to an emulated device with the same times. `make gpu-check`
# makes them.

# %%
import json

from course_utils.paths import shipped
from keepfed.measure.exchange import load_chrome
from keepfed.measure.picture import Timeline

for path in sorted(shipped("notebooks/recordings").glob("*-measured.json")):
    about = json.loads(path.read_text("utf-8"))["otherData"]  # loop, GPU, date and command
    twin = path.with_name(path.name.replace("measured", "emulated"))
    recorded = {f"measured, {about['gpu']}": load_chrome(path), "emulated": load_chrome(twin)}
    busy, same = (trace.summary().utilization for trace in recorded.values())
    print(f"{about['loop']['name']}: GPU busy {busy:.1%}, emulated {same:.1%}", about["date"])
    display(Timeline(recorded))

# %% [markdown]
# ## What prefetching cannot do
#
# Let C be the time of a step, K the time of a copy, L the time between two batches of the loader, and T the time per
# batch of the whole loop. Without prefetching T = max(L, C + K). With prefetching T = max(L, C, K). The gain is the
# ratio of the two, and never above 2. The picture below shows three trainings, with lines for the prediction and points
# for the measurement. A clock replaces the workers here, and a batch is ready every L.


# %%
from itertools import islice

from keepfed.loaders.prefetch import CudaPrefetcher

(many,) = gpu.pinned([torch.zeros(640, 3, 224, 224, dtype=torch.uint8)])


def every(load_ms, batch):
    start = clock()
    for number in range(1, 8):
        clock.sleep_until(start + round(number * load_ms * 1e6))
        yield batch


def pace_ms(prefetch, count, step_ms, load_ms):
    ends = []
    for batch in islice(prefetch(every(load_ms, many[:count])), 6):
        gpu.step(batch, ms=step_ms).item()
        ends.append(clock())
    return (ends[-1] - ends[0]) / (len(ends) - 1) / 1e6


# %%
cu.predict(
    "09i",
    "640 images on an RTX 3090: a step takes 5 ms, a copy 4 ms, and the workers deliver a batch every "
    "11 ms. How many times as fast does prefetching make the training?",
    unit="times",
)

# %%
trainings = {  # fixed ms of a step, ms of a step per image, ms of the workers per image
    "small model": (1, 1 / 160, 0),
    "large model": (1, 1 / 16, 0),
    "small model, slow workers": (1, 1 / 160, 1 / 60),
}
gains, counts = {name: {} for name in trainings}, (10, 20, 40, 80, 160, 320, 640)
for name, (launch, step, load) in trainings.items():
    for n in counts:
        job = n, launch + step * n, load * n
        ours = pace_ms(lambda batches: CudaPrefetcher(batches, gpu), *job)
        gains[name][n] = pace_ms(in_the_loop, *job) / ours

# %%
import numpy as np

from course_utils.stories.figures import drawing

fine, copy_ms = np.geomspace(10, 640, 200), copies_ms["pinned"][1] / 160
with drawing(7, 2.8) as (figure, (panel,)):  # lines: the model, points: measured
    for number, (name, (launch, step, load)) in enumerate(trainings.items()):
        parts = load * fine, launch + step * fine, copy_ms * fine
        without = np.maximum(parts[0], parts[1] + parts[2])
        panel.plot(fine, without / np.maximum.reduce(parts), color=f"C{number}")
        points = [gains[name][n] for n in counts]
        panel.plot(counts, points, "os^"[number], color=f"C{number}", label=name)
    panel.set(xscale="log", xlabel="images in a batch (log)", ylabel=f"times faster ({hardware})")
    panel.set_xticks(counts, map(str, counts))
    panel.minorticks_off()
    panel.legend()
figure

# %%
cu.reveal("09i", gains["small model, slow workers"][640])

# %% [markdown]
# If a copy is short compared with the step, prefetching gains little. A loader that is slower than the GPU stays slow,
# because prefetching does not make it deliver more. Look at the trace before you write code with CUDA streams.
#
# Pinning in the loop costs as much time as it saves. In a loop that does not prefetch, it costs more than it saves, as
# in prediction 09b. Pinning in the loader pays in most cases. It does not pay for small batches, with slow workers, or if the memory
# of the host is already busy.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **09h** Tempting: "as much as design 4". It is 0, because this design also waits for the copy that has just begun.
# - **09i** Tempting: up to 2. It is 1, because the workers are slower than step and copy together.
#
# **Extra.** Homework: seven designs, a real GPU, and what prefetching cannot do.
