# %% [markdown]
# # 09 · Prefetch to CUDA
#
# **You will do:** hide the copies to the GPU behind its steps, get wrong numbers on the way, and repair a prefetcher.
#
# **You will learn**
#
# - what a copy to the GPU costs, and what `pin_memory` and `non_blocking` change,
# - what streams, events and device memory have to do with right results,
# - to write a prefetcher, and to prove that it overlaps and that its data are right.
#
# **You need:** notebooks 02 and 05. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("09")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *5 min* **What a copy costs.** Predictions 09a and 09b, both before the bars.
# - *3 min* **Streams and events.** Three definitions, prediction 09c, and no more theory.
# - *10 min* **Four designs.** Draw each before you run it; predictions 09d, 09e and 09f. `course demo
#   prefetch` toggles them on the wall.
# - *8 min* **What is wrong with the prefetcher of the notes?** Let the room count aloud for 09g, then
#   exercise 9.1.
# - *10 min* **Exercise 9.2.** Both of its likely verdicts are worth reading out.
#
# **Board.** Three queues side by side: host, copies, steps. An arrow is a wait. Ask at each design:
# who waits for whom? Every wrong result of today is an arrow that is missing, every lost overlap one
# too many.

# %% [markdown]
# ## What a copy costs
#
# A batch of 160 photographs in 8 bits is 24 MB. With a CUDA GPU, this notebook measures its copies. Without one the device is
# emulated, and its clock moves only where the program would have to wait: the times are exact, and nobody waits. <!-- given -->

# %%
import torch

from course_utils.hardware.gpu import timed_accelerator

gpu, clock = timed_accelerator("RTX 3090", step_ms=3)
hardware = "emulated" if gpu.emulated else gpu.name
images = [torch.randint(0, 256, (160, 3, 224, 224), dtype=torch.uint8) for _ in range(6)]
print(gpu)

# %% [markdown]
# Ordinary memory is **pageable**: the system may move a page at any moment, and the copy engine of the GPU cannot
# work with that. **Pinned** memory stays where it is. `non_blocking=True` asks a copy not to hold up the program.
# That makes four cases.

# %%
FOUR = ["none", "both with non_blocking", "both pinned", "pinned with non_blocking", "all four"]
cu.predict("09a", "Where does the program go on while the copy runs?", choices=FOUR)


# %%
def times(copy):
    """Return the ms until the program goes on, and until the batch is there."""
    gpu.synchronize()
    start = clock()
    copy()
    goes_on = clock()
    gpu.synchronize()
    return (goes_on - start) / 1e6, (clock() - start) / 1e6


# %%
from course_stories.prefetchers.pictures import draw_copies

pageable, pinned = images[0], gpu.pin(images[0])
cases = {
    "pageable": lambda: gpu.upload(pageable),
    "pageable, non_blocking": lambda: gpu.upload(pageable, non_blocking=True),
    "pinned": lambda: gpu.upload(pinned),
    "pinned, non_blocking": lambda: gpu.upload(pinned, non_blocking=True),
}
copies_ms = {name: min(times(copy) for _ in range(3)) for name, copy in cases.items()}
draw_copies(copies_ms, hardware)

# %%
free = [name for name, (held, there) in copies_ms.items() if held < 0.2 * there]
found = {0: "none", 1: "pinned with non_blocking"}.get(len(free), "both with non_blocking")
cu.reveal("09a", found)

# %% [markdown]
# From pageable memory the driver copies twice: the program's thread fills a pinned buffer of the driver, and from there the bytes go to
# the device. `non_blocking` changes next to nothing there, and does not complain. (Only for copies of up to 64 KB does CUDA let the program go on.) <!-- given -->
#
# So pin first? Many loops do, with one more line.

# %%
cu.predict(
    "09b",
    "batch.pin_memory().to('cuda', non_blocking=True) in the loop: how many times as long as plain "
    "batch.to('cuda') does it take until the batch is there?",
    unit="times",
)

# %%
copies_ms["pinned in the loop"] = min(
    times(lambda: gpu.upload(gpu.pin(pageable), non_blocking=True)) for _ in range(3)
)
draw_copies(copies_ms, hardware)

# %%
cu.reveal("09b", copies_ms["pinned in the loop"][1] / copies_ms["pageable"][1])

# %% [markdown]
# To pin a tensor is to *copy* it, in your loop, and that is the very copy that you wanted to save. [PyTorch's tutorial on pinning](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html)
# finds it up to twice as slow as a plain `.to()`. The first time costs some milliseconds more, for the driver to get the pages. PyTorch keeps them, rounded up to a power of two, here 32 MiB. <!-- given -->
#
# `DataLoader(pin_memory=True)` pins in a thread beside your loop. That costs a copy too, and other programs have that much less memory, since pinned
# pages cannot be swapped. Without a GPU the switch does nothing; `gpu.pinned(loader)` stands for it below.
#
# ## Streams, events, and who waits for whom
#
# - A **stream** is a queue on the device. What is in it runs one after the other.
# - Two streams of PyTorch know nothing of each other. What names no stream goes to the *default stream*.
# - An **event** is a mark in a stream. Another stream can wait for it, or the program can.
#
# The lecture notes that this course grew out of prefetch batches, and say at the top of the training loop: *inputs and targets already on
# GPU before this line executes*. Is that so?

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
# Nothing has arrived: the copy is *enqueued*. Is that good enough? It depends on who reads the batch, and in which queue.
#
# ## Four designs
#
# While the GPU works on a batch, copy the next: the loop gets batch 0 only when the copy of batch 1 has been launched.


# %%
def one_ahead(stage, batches):
    """Stage each batch before the one before it is handed over."""
    ready = None
    for batch in batches:
        ready, before = stage(batch), ready
        if before is not None:
            yield before
    if ready is not None:
        yield ready


# %% [markdown]
# A step of our device returns, as its loss, a checksum of what it read, which tells who computes with garbage. (The emulator returns
# NaN then.) Reading the loss makes the program wait for the step: see the row `main`.

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
# **Design 1** is that of the notes: pinned, non-blocking, ahead of time. (They put it into a thread. That is a
# queue for Python, not for the GPU.)


# %%
def in_the_loop(batches):
    for batch in batches:
        yield gpu.upload(batch, non_blocking=True)


def default_stream(batches):
    return one_ahead(lambda batch: gpu.upload(batch, non_blocking=True), batches)


# %%
cu.predict("09d", "Design 1: what share of the copying is hidden behind steps?", unit="%")

# %%
plain, right_plain = train(in_the_loop)
one_queue, right_one = train(default_stream)
print(f"right batches: {right_plain} and {right_one} of {len(wanted)}")
Timeline({"copied in the loop": plain, "1: ahead, default stream": one_queue})

# %%
cu.reveal("09d", 100 * hidden_share(one_queue.spans))

# %% [markdown]
# Right, and useless. Copy and step are in one queue, so one waits for the other, however early you enqueue it.
#
# **Design 2** has a stream of its own for the copies.


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
print(f"hidden: {100 * hidden_share(trace.spans):.0f} %, epochs all right: {right_epochs} of 20")
second = f"2: nobody waits, {right} of {len(wanted)} batches right"
Timeline({"1: default stream": one_queue, second: trace})

# %%
cu.reveal("09e", right_epochs)

# %% [markdown]
# All hidden. And on an emulated GPU, all wrong: the steps do not wait for their data. A real one is less strict: its copies often
# win the race, perhaps in all 20 epochs, and for weeks after. No error tells you, unless you ask for it: `TORCH_CUDA_SANITIZER=1 python train.py` reports exactly this race.
#
# **Design 3** adds the missing wait: what the loop launches from now on waits for *this* copy. The program does
# not wait.


# %%
def with_wait(batches):
    for batch, arrived in one_ahead(copy, batches):
        gpu.current_stream().wait_event(arrived)
        yield batch


waits, right_waits = train(with_wait)
hidden = 100 * hidden_share(waits.spans)
print(f"right batches: {right_waits} of {len(wanted)}, hidden: {hidden:.0f} %")
Timeline({"1: default stream": one_queue, "3: stream and event": waits})

# %% [markdown]
# Only the first copy is in sight, since there is no step before it to hide behind. (On a real GPU a little more is, because Python has to launch each step.)
# Are we done? Reading the loss after every step holds the program up, so good loops read it later. We now read all losses after the epoch.

# %%
cu.predict(
    "09f", "Design 3, losses read at the end: how many of 6 batches are right?", unit="batches"
)

# %%
waits_late, right_late = train(with_wait, read_late=True)
cu.reveal("09f", right_late)

# %% [markdown]
# Device memory comes from the **caching allocator** of PyTorch. When Python drops a batch, its memory goes back to the
# stream that it was allocated on, at once. That is safe within a stream, which does things in order. But our step
# reads the batch on *another* stream, and the program is ahead: it drops batches whose steps have not begun. The next copy
# writes into one.
#
# **Design 4** tells the allocator who else uses the memory:


# %%
def with_record(batches):
    for batch, arrived in one_ahead(copy, batches):
        user = gpu.current_stream()
        user.wait_event(arrived)
        batch.record_stream(user)  # once dropped, it stays until this stream has done its work
        yield batch


for read_late in False, True:
    trace, right = train(with_record, read_late)
    when = "late" if read_late else "in each step"
    print(f"losses read {when}: {right} right, {100 * hidden_share(trace.spans):.0f} % hidden")

# %% [markdown]
# Design 4 is right and hides its copies, in both loops. It has a price. What a step still has to read stays taken, also after Python has dropped it, so a program that runs far
# ahead of its GPU piles up batches there. `CudaPrefetcher` is design 4 for any loader, any batch and any device, and holds the program up when it is more than two
# steps ahead:
#
# ```python
# from keepfed.loaders.prefetch import CudaPrefetcher
#
# loader = DataLoader(dataset, batch_size=256, num_workers=8, pin_memory=True)
# for batch in CudaPrefetcher(loader, "cuda"):
# ```
#
# It has no thread. The loader has its workers, and one thread that pins. All that
# is left to do is to enqueue, which takes microseconds. What one more thread would add is a way to hang.
#
# ## What is wrong with the prefetcher of the notes?
#
# Here it is, in our words. Find as many defects as you can.

# %%
import inspect

from course_stories.prefetchers import NotesPrefetcher

print(inspect.getsource(NotesPrefetcher))

# %%
cu.predict("09g", "How many defects do you see?", unit="defects")

# %%
from IPython.display import Markdown

from course_stories.prefetchers import prove_all

defects = prove_all()  # measured now on emulated GPUs, with the notes' design and with ours
rows = [f"| {d.number} | {d.title} | {d.notes} | {d.ours} |" for d in defects]
head = ["| | Defect | Seen, with the notes | With `CudaPrefetcher` |", "|---|---|---|---|"]
Markdown("\n".join(head + rows))

# %%
cu.reveal("09g", sum(defect.proven for defect in defects))

# %% [markdown]
# ### Exercise 9.1 · 5 min · ●○○
#
# Each of the ten has its symptom, and in real life that is all you get. Give each symptom its cause, a key of `CAUSES`; one is left over. In (h), (i) and (j)
# somebody has repaired what was wrong before, and meets the next defect.
#
# <details><summary>Hint</summary>
#
# Print for instance `CAUSES["no event"]`: it says how that cause shows. Four symptoms belong to the thread.
#
# </details>

# %%
from course_exercises.nb09.problem import CAUSES, SYMPTOMS

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
# Repair that prefetcher. Given are the launch of a copy and the handling of errors: an error of the loader is raised once all that was copied before it has been handed over. Targets:
#
# - all checksums are right, in loops that read each loss and in loops that read them late,
# - 80 % of the copying is hidden, for batches of any shape and a loader without `len()`, <!-- given -->
# - before a batch is handed over, the copies of `depth` more are on their way,
# - where each loss is read, no more than `depth + 1` batches are on the device.

# %%
from collections import deque

from course_utils.hardware.gpu import leaves


class Copies:
    """Given: the GPU of the program, a stream for copies, and how one is launched."""

    def __init__(self, loader, devices, depth=1):
        self.loader, self.depth = loader, depth
        self.gpu = devices.current()
        self.copies = self.gpu.Stream()

    def stage(self, batch):
        """Launch the copy of a pinned batch; return the batch and the event of its arrival."""
        with self.gpu.stream(self.copies):
            return self.gpu.upload(batch, non_blocking=True), self.copies.record_event()


# %% [markdown]
# <details><summary>Hint 1: safe to use</summary>
#
# That is design 4. `leaves(batch)` lists all that is in a batch, however nested; its tensors are those that have `record_stream`.
#
# </details>
# <details><summary>Hint 2: how many</summary>
#
# In the `try`, fill `staged` with what `self.stage(next(batches))` returns, until there are `depth` batches and one more. After an error, ask no more.
#
# </details>
# <details><summary>Hint 3: hand over</summary>
#
# `yield` the oldest, if there is one: `self.hand_over(*staged.popleft())`. A variable that still holds the batch when the loop comes back keeps its memory.
#
# </details>


# %%
class Prefetcher(Copies):
    def hand_over(self, batch, arrived):
        """Make it safe for the loop to use the batch; return it."""
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
            except Exception as caught:  # StopIteration, the end, or something worse
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
# - **09a** "Both with non_blocking", as its name says. It is pinned with `non_blocking` alone.
# - **09b** Below 1, since pinned copies are fast. It is above 1, up to 2: to pin is to copy.
# - **09c** "Yes" by those who have read the notes. No: the copy is enqueued.
# - **09d** 80 to 100; let somebody draw the one queue. It is 0.
# - **09e** 18 or 19: races are thought to be rare. On an emulated GPU it is 0; a real one often hides
#   the bug.
# - **09f** 6, "now it waits". It is about half of them: ask who still holds batch 0.
# - **09g** 2 to 4 are usual. Ten are proven.
#
# **Goes wrong.**
#
# - In 9.1 (h), (i) and (j) are taken for the first defect again. Read what was repaired before.
# - In 9.2 `depth` batches are staged in place of one more. Count the copies that are on their way
#   when a batch is handed over.
# - In 9.2 a variable keeps a batch alive: `for batch in ...` holds the old one until the new one is
#   there.
# - Somebody asks for a real GPU. The extra part shows what `make gpu-check` recorded of one,
#   if anybody has run it, beside the emulated device.

# %% [markdown]
# ## You now can
#
# - say which copies hold the program up,
# - read from a timeline which queue waits for which,
# - write a prefetcher that hides its copies, and prove its data right,
# - find the defects of a given one.
#
# Next: [notebook 10](10_stream_shards.ipynb), data that come over the network.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs what follows, and each section only the core. (It uses the designs and `train` from above.)

# %% [markdown]
# ## Seven designs
#
# Two more designs look as good as design 4. Both wait for the whole copy stream in place of the event; one of them does so before the next copy is launched.


# %%
def whole_stream(batches):
    for batch, _ in one_ahead(copy, batches):
        user = gpu.current_stream()
        user.wait_stream(copies)  # the copy of the next batch is in it already
        batch.record_stream(user)
        yield batch


def stream_first(batches):
    batches, user = iter(batches), gpu.current_stream()
    staged = next(map(copy, batches), None)
    while staged is not None:
        user.wait_stream(copies)  # nothing but the copy of this batch is in it
        (batch, _), staged = staged, next(map(copy, batches), None)
        batch.record_stream(user)
        yield batch


# %%
cu.predict("09h", "whole_stream, each loss read: what share of the copying is hidden?", unit="%")

# %%
from course_stories.prefetchers.pictures import draw_designs

designs = [in_the_loop, default_stream, without_wait, with_wait, with_record]
designs += [whole_stream, stream_first]
runs = {}
for title, late in ("loss read in each step", False), ("losses read late", True):
    traces = {design.__name__: train(design, late) for design in designs}
    runs[title] = {
        name: (hidden_share(trace.spans), right) for name, (trace, right) in traces.items()
    }
draw_designs(runs, len(wanted), hardware)

# %%
cu.reveal("09h", 100 * runs["loss read in each step"]["whole_stream"][0])

# %% [markdown]
# `whole_stream` also waits for the copy *after* ours, which is under way already, so it hides something only if the program is
# far ahead. `stream_first` has the same lines in the other order, as the prefetcher in [NVIDIA's Apex](https://github.com/NVIDIA/apex/blob/123854c30cf2470e9295eefbe32efc8a81d08264/examples/imagenet/main_amp.py) has, and hides all but the first copy. Whoever waits for an event need not think about that order.
#
# `record_stream` is a convenience. PyTorch's documentation advises whoever owns a batch to keep it instead, until an event after its last step has passed.
#
# Make one stream for copies, and not one in each epoch. The allocator keeps the memory that a stream has had for the next batch of *that* stream, and PyTorch has 32 of them. <!-- given -->

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
# Guess before you run it: how many of 6 results are right?

# %%
print("read at once:", right_results(wait=False), " after an event:", right_results(wait=True))

# %% [markdown]
# Record an event after the copy and wait for it, as the loss of `gpu.step()` does: `item()` waits for one event, not for later steps.
#
# ## On a real GPU
#
# Recordings made on a real GPU are shown here, each beside an emulated device with its times. If there is no recording,
# a line says how to make one.

# %%
from course_utils.hardware.gpu.recordings import listing, recordings

recorded = recordings()
print(listing(recorded))
display(*(recording.timeline() for recording in recorded))

# %% [markdown]
# ## What prefetching cannot do
#
# Let C be a step, K a copy, and L the time between two batches of the loader. Without prefetching T = max(L, C + K), with it
# T = max(L, C, K). The gain is the ratio: never above 2. Here are three trainings, with lines for the prediction and
# points for the measurement. The workers are a clock here: they have a batch ready every L.


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
    "640 images, RTX 3090: the step takes 5 ms, the copy 4, and the workers deliver every 11 ms. "
    "How many times as fast does prefetching make the training?",
    unit="times",
)

# %%
from course_stories.prefetchers.pictures import draw_gains

trainings = {  # ms of a step: in any case, and for each image; ms of the workers for each image
    "small model": (1, 1 / 160, 0),
    "large model": (1, 1 / 16, 0),
    "small model, slow workers": (1, 1 / 160, 1 / 60),
}
gains = {name: {} for name in trainings}
for name, (launch, step, load) in trainings.items():
    for n in (10, 20, 40, 80, 160, 320, 640):
        job = n, launch + step * n, load * n
        ours = pace_ms(lambda batches: CudaPrefetcher(batches, gpu), *job)
        gains[name][n] = pace_ms(in_the_loop, *job) / ours
draw_gains(trainings, gains, copies_ms["pinned"][1] / 160, hardware)

# %%
cu.reveal("09i", gains["small model, slow workers"][640])

# %% [markdown]
# A copy that is small against the step is not worth hiding. And a loader that is slower than the GPU stays so: no
# prefetching makes it deliver more. Look at the trace before you take CUDA streams to it.
#
# ### Exercise 9.3 · 10 min · ●●○
#
# When does pinning pay? `Case` is a loop that prefetches on a stream of its own and reads each loss. How long does
# a step take, in ms? MB divided by GB/s is ms, and pinning runs at `PAGEABLE_GB_S`, whoever does it. (That rate was measured with 64 MiB; smaller copies from pageable memory are faster, so that pinning gains less.) <!-- given -->

# %%
from course_exercises.nb09.problem import CASES, PAGEABLE_GB_S, PINNED_GB_S, Case

print(f"pageable: {PAGEABLE_GB_S} GB/s, pinned: {PINNED_GB_S} GB/s")
for name, case in CASES.items():
    print(f"{name:16} {case}")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Who does it? The program does one thing after another: what it copies itself and the wait for the step add up.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Workers, the thread that pins, the copy engine and the GPU work side by side: the slowest sets the pace.
#
# </details>


# %%
def step_time_ms(case: Case) -> float:
    """Return how long a step takes in the long run."""
    ### BEGIN SOLUTION
    host_ms = case.mb / PAGEABLE_GB_S
    if case.pin == "in the loader":
        return max(case.load_ms, host_ms, case.step_ms)
    return max(case.load_ms, host_ms + case.step_ms)
    ### END SOLUTION


# %%
cu.check("09.3", step_time_ms)

# %% [markdown]
# Pinning in the loop costs what it saves, and in a loop that does not prefetch it loses, as in prediction 09b. Pinning in the loader pays, unless there is nothing to save: with small batches, for which
# one more thread is only one more hand-over, with slow workers, or on a host whose memory is busy already.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **09h** "As much as design 4". It is 0, for it also waits for the copy that has just begun.
# - **09i** Up to 2. It is 1: the workers are slower than step and copy together, and prefetching
#   makes nobody faster.
#
# **Extra.** Homework: seven designs, a real GPU, what prefetching cannot do, and 9.3, in which
# pinning in the loop is counted as free by those who have not read 09b.
