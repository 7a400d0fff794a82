# %% [markdown]
# # 09 · Prefetch to CUDA
#
# **You will do:** hide the copies to the GPU behind its steps, get wrong numbers on the way, and repair a prefetcher.
#
# **You will learn**
#
# - what a copy to the GPU costs, and what `pin_memory` and `non_blocking` change,
# - what streams, events and the memory of the device have to do with right results,
# - to write a prefetcher that overlaps, and to prove that it does and that its data are right,
# - to say when all this gains nothing.
#
# **You need:** notebooks 02 and 05. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("09")

# %% [markdown] tags=["instructor"]
# **Instructor: plan.** Copies (7), streams (5), four designs (13), ours (3), ten defects and 9.1 (5 + 6), 9.2 (13),
# limits and 9.3 (2 + 6). Short of time: 9.3 is homework; in 9.2 let half of the room do the epochs and the
# break, the other half the streams.
#
# **Board.** Three queues side by side: host, copies, steps. An arrow is a wait. Draw each design before you run it, and
# ask: who waits for whom? Every wrong result of today is an arrow that is missing, every lost overlap one too many.

# %% [markdown]
# ## What a copy costs
#
# A batch of 160 photographs in 8 bits, 24 MB. With a CUDA GPU, this notebook measures it. Without, the device is
# emulated, and its clock moves only where the program would have to wait; nobody really waits. So the times are
# exact, and the cells are done at once. <!-- given -->

# %%
import torch

from course_utils.hardware.gpu import timed_accelerator

gpu, clock = timed_accelerator("RTX 3090", step_ms=3)
images = [torch.randint(0, 256, (160, 3, 224, 224), dtype=torch.uint8) for _ in range(6)]
print(gpu)

# %% [markdown]
# Ordinary memory is **pageable**: the system may move a page while nobody looks. The copy engine of the GPU cannot
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
pageable, pinned = images[0], gpu.pin(images[0])
cases = {
    "pageable": lambda: gpu.upload(pageable),
    "pageable, non_blocking": lambda: gpu.upload(pageable, non_blocking=True),
    "pinned": lambda: gpu.upload(pinned),
    "pinned, non_blocking": lambda: gpu.upload(pinned, non_blocking=True),
}
copies_ms = {name: min(times(copy) for _ in range(3)) for name, copy in cases.items()}

# %%
import matplotlib.pyplot as plt

plt.style.use("course_utils.plots")  # readable on light and on dark pages
hardware = "emulated" if gpu.emulated else gpu.name


def draw_copies():
    figure, panel = plt.subplots(figsize=(7, 2.2), layout="constrained")
    (held, there), names = zip(*copies_ms.values(), strict=True), list(copies_ms)
    panel.barh(names, there, color="none", edgecolor="C0", hatch="//", label="batch is there")
    panel.barh(names, held, color="C1", height=0.4, label="program goes on")
    panel.set(xlabel=f"ms until ... ({hardware})")
    panel.invert_yaxis()
    panel.legend()
    plt.close()  # the last line of a cell shows the figure; without this it would be shown twice
    return figure


# %%
draw_copies()

# %%
free = [name for name, (held, there) in copies_ms.items() if held < 0.2 * there]
found = {0: "none", 1: "pinned with non_blocking"}.get(len(free), "both with non_blocking")
cu.reveal("09a", found)

# %% [markdown]
# From pageable memory the driver copies twice: the program's thread fills a pinned buffer of the driver, and from there it goes to
# the device. `non_blocking` changes next to nothing there, and does not complain.
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
draw_copies()

# %%
cu.reveal("09b", copies_ms["pinned in the loop"][1] / copies_ms["pageable"][1])

# %% [markdown]
# To pin a tensor is to *copy* it, in your loop: the same copy that you wanted to save. PyTorch's tutorial on pinning
# finds it up to twice as slow as a plain `.to()`. `DataLoader(pin_memory=True)` does it in a thread, beside your loop. That
# costs a copy too, and pinned pages cannot be swapped: what you pin, all other programs lack. Without a GPU it does
# nothing; `gpu.pinned(loader)` stands for it below.
#
# ## Streams, events, and who waits for whom
#
# - A **stream** is a queue on the device. What is in it runs one after the other.
# - Two streams of PyTorch know nothing of each other. All you do without asking goes to the *default stream*.
# - An **event** is a mark in a stream. Another stream can wait for it, or the program can.
#
# The notes of a lecture prefetch batches, and say at the top of the training loop: *inputs and targets already on
# GPU before this line executes*. Look:

# %%
cu.predict(
    "09c",
    "upload(pinned, non_blocking=True) has returned. Has the batch arrived?",
    choices=["yes", "no"],
)

# %%
copies = gpu.Stream()
with gpu.stream(copies):  # in this block, this is where copies and steps go
    batch = gpu.upload(pinned, non_blocking=True)
    arrived = copies.record_event()

at_once = arrived.query()  # does not wait
arrived.synchronize()  # here the program waits
print("arrived at once:", at_once, "  after synchronize:", arrived.query())

# %%
cu.reveal("09c", "yes" if at_once else "no")

# %% [markdown]
# Nothing has arrived: the copy is *enqueued*. Whether that is good enough depends on who reads, and in which queue.
#
# ## Four designs
#
# While the GPU works on a batch, copy the next. The loop gets batch 0 only when the copy of batch 1 has been
# launched:


# %%
def one_ahead(stage, batches):
    """Stage each batch before the one before it is handed over."""
    ready = None
    for batch in batches:
        ready, before = stage(batch), ready
        if before is not None:
            yield before
    yield ready


# %% [markdown]
# A step of our device returns a checksum of what it read, so we see who computes with garbage: the emulator gives
# NaN then.

# %%
from course_utils.hardware.gpu import checksum
from course_utils.measure.spans import hidden_share

loader = list(gpu.pinned(images))  # as if from DataLoader(pin_memory=True)
wanted = [checksum([batch]).item() for batch in images]


def train(design, read_late=False):
    losses = []
    with cu.record(clock=clock) as trace:
        for batch in design(trace.batches(loader)):
            loss = gpu.step(batch)  # launched, like a copy
            losses.append(loss if read_late else loss.item())
        found = [float(loss) for loss in losses]  # waits for each, and reads it
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
cu.predict(
    "09d",
    "Design 1: behind how much of its copying does the GPU compute?",
    unit="%",
)

# %%
from course_utils.measure.picture import Timeline

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
hidden = 100 * hidden_share(epochs[0][0].spans)
print(f"hidden: {hidden:.0f} %, epochs all right: {right_epochs} of 20")
epochs[0][0].timeline()

# %%
cu.reveal("09e", right_epochs)

# %% [markdown]
# All hidden. And on an emulated GPU, all wrong: the steps do not wait for their data. A real one is less strict: its copies often
# win the race, perhaps in all 20 epochs, and for weeks after. No error ever tells you.
#
# **Design 3** draws the missing arrow: what the loop launches from now on waits for *this* copy. The program does
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
# Only the first copy is in sight: before it there is no step to hide behind. Are we done? Reading the loss after
# every step holds the program up, so good loops read it later. We read the losses after the epoch.

# %%
cu.predict(
    "09f", "Design 3, losses read at the end: how many of 6 batches are right?", unit="batches"
)

# %%
waits_late, right_late = train(with_wait, read_late=True)
print(f"right batches: {right_late} of {len(wanted)}")

# %%
cu.reveal("09f", right_late)

# %% [markdown]
# Device memory comes from the **caching allocator** of PyTorch. When Python drops a batch, its memory goes back to the
# stream that it was allocated on, at once: that stream does things in order, so what it does next comes after. But our step
# reads the batch on *another* stream, and the program is ahead: it drops batches whose steps have not begun. The next copy
# writes into one.
#
# **Design 4** tells the allocator who else uses the memory:


# %%
def with_record(batches):
    for batch, arrived in one_ahead(copy, batches):
        user = gpu.current_stream()
        user.wait_event(arrived)
        batch.record_stream(user)  # do not give it away before this stream has got here
        yield batch


# %% [markdown]
# Two more look as good. One waits for the whole copy stream in place of the event. The other copies only when
# the loop asks for the batch.


# %%
def whole_stream(batches):
    for batch, _ in one_ahead(copy, batches):
        user = gpu.current_stream()
        user.wait_stream(copies)
        batch.record_stream(user)
        yield batch


def when_asked(batches):
    for batch, arrived in map(copy, batches):
        user = gpu.current_stream()
        user.wait_event(arrived)
        batch.record_stream(user)
        yield batch


# %%
cu.predict(
    "09g",
    "wait_stream(copies) instead of wait_event(arrived), each loss read: how much is hidden?",
    unit="%",
)

# %%
designs = [in_the_loop, default_stream, without_wait, with_wait]
designs += [with_record, whole_stream, when_asked]
figure, panels = plt.subplots(1, 2, figsize=(8, 2.8), sharey=True, layout="constrained")
for panel, late in zip(panels, (False, True), strict=True):
    runs = {design.__name__: train(design, late) for design in designs}
    shares = [100 * hidden_share(trace.spans) for trace, _ in runs.values()]
    colours = ["C0" if right == len(wanted) else "C1" for _, right in runs.values()]
    bars = panel.barh(list(runs), shares, color=colours)
    labels = [f"{right} of {len(wanted)} right" for _, right in runs.values()]
    panel.bar_label(bars, labels, padding=3, color=plt.rcParams["text.color"])
    panel.set(xlim=(0, 170), xticks=(0, 50, 100), xlabel=f"% of the copying hidden ({hardware})")
    panel.set_title("losses read late" if late else "loss read in each step")
panels[0].invert_yaxis()
plt.close()
figure

# %%
cu.reveal("09g", 100 * hidden_share(train(whole_stream)[0].spans))

# %% [markdown]
# `whole_stream` also waits for the copy *after* ours, which is under way already: it hides something only if the program is
# far ahead. So does `when_asked`: one `loss.item()`, and the next copy is not enqueued before the step is over. Design 4
# is right, and hides its copies, in both loops.
#
# It has a price. What a step still has to read stays taken, also after Python has dropped it: a program that runs far
# ahead of its GPU piles up batches there, in the end a whole epoch.
#
# ## Ours
#
# `CudaPrefetcher` is design 4 for any loader, any batch, any device, and holds the program up when it is more than two
# steps ahead. It takes an accelerator of this course, or a plain `"cuda"`.

# %%
from course_utils.loading.prefetch import CudaPrefetcher


def ours(batches):
    return CudaPrefetcher(batches, gpu)


epochs = [train(ours, read_late=number % 2) for number in range(20)]
right_epochs = sum(right == len(wanted) for _, right in epochs)
first_copy = next(span for span in epochs[0][0].spans if span.lane == "copy")
later = [span for span in epochs[0][0].spans if span is not first_copy]
print(f"hidden, after the first copy: {100 * hidden_share(later):.0f} %")
print(f"epochs all right: {right_epochs} of 20")

# %% [markdown]
# And on a real GPU? Recordings made on one are shown here, each beside an emulated device with its times. If there is none,
# the line says how to make one.

# %%
from course_utils.measure.exchange import listing, recordings

recorded = recordings()
print(listing(recorded))
display(*(recording.timeline() for recording in recorded))

# %% [markdown]
# Read it: `course_utils/loading/prefetch/cuda.py`. It has no thread. The loader has its workers, and one thread that pins; all that
# is left to do is to enqueue, and that takes microseconds. What a thread would add is a way to hang.
#
# ## Ten defects
#
# This is the design of the notes, in our words. Find what you can before you run the cell after it.

# %%
import inspect

from notebooks.stories.prefetchers import NotesPrefetcher

print(inspect.getsource(NotesPrefetcher))

# %%
cu.predict("09h", "How many defects do you see?", unit="defects")

# %%
from IPython.display import Markdown

from notebooks.stories.prefetchers import prove_all

defects = prove_all()  # measured now on emulated GPUs, with the notes' design and with ours
rows = [f"| {d.number} | {d.title} | {d.notes} | {d.ours} |" for d in defects]
head = ["| | Defect | Seen, with the notes | With `CudaPrefetcher` |", "|---|---|---|---|"]
Markdown("\n".join(head + rows))

# %%
cu.reveal("09h", sum(defect.proven for defect in defects))

# %% [markdown]
# ### Exercise 9.1 · 6 min · ●○○
#
# In real life you get the symptom. Give each its cause: a key of `CAUSES`. One of them is left over. From (h) on,
# somebody repairs step by step.
#
# <details><summary>Hint</summary>
#
# Print `CAUSES[...]`: each says how it shows. Four symptoms belong to the thread.
#
# </details>

# %%
from notebooks.exercises.nb09.problem import CAUSES, SYMPTOMS

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
# ### Exercise 9.2 · 13 min · ●●●
#
# Repair it. `devices.current()` is the GPU of the calling thread, with the methods of our `gpu`; batches are pinned, of
# any shape. Target: an error of the loader comes after the batches before it; every loop is an epoch, and nothing is loaded before it;
# `break` leaves nothing; at most `depth + 1` batches on the device where each loss is read; all checksums right, losses read late too; 80 % hidden. <!-- given -->
# Delete methods that you have no use for.
#
# <details><summary>Hint 1: no thread</summary>
#
# Make `__iter__` a generator. A `deque` holds what is staged, `depth` batches and one more. Then `yield` the oldest.
#
# </details>
# <details><summary>Hint 2: the device</summary>
#
# GPU and stream once, in `__init__`. `leaves(batch)` lists all that is in a batch; its tensors have `record_stream`.
#
# </details>
# <details><summary>Hint 3: errors, and the end</summary>
#
# `next(batches)` raises `StopIteration` at the end, or something worse. Keep either; hand over what is staged; then
# raise it if it was worse.
#
# </details>

# %%
from collections import deque

from course_utils.hardware.gpu import leaves


# %%
class Prefetcher:
    def __init__(self, loader, devices, depth=1):
        self.loader, self.depth = loader, depth
        ### BEGIN SOLUTION
        self.gpu = devices.current()
        self.copies = self.gpu.Stream()
        ### END SOLUTION

    def stage(self, batch):
        """Launch the copy; return the batch and the event of its arrival."""
        ### BEGIN SOLUTION
        with self.gpu.stream(self.copies):
            return self.gpu.upload(batch, non_blocking=True), self.copies.record_event()
        ### END SOLUTION

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
        ### BEGIN SOLUTION
        staged, error, batches = deque(), None, iter(self.loader)
        while error is None or staged:
            while error is None and len(staged) <= self.depth:
                try:
                    staged.append(self.stage(next(batches)))
                except Exception as caught:
                    error = caught
            if staged:
                yield self.hand_over(*staged.popleft())
        if not isinstance(error, StopIteration):
            raise error
        ### END SOLUTION


# %%
cu.check("09.2", Prefetcher)

# %% [markdown] tags=["instructor"]
# **Instructor.** Expect "both with non_blocking" for 09a, 80 to 100 for 09d (let somebody draw the one queue), and 18 or 19
# for 09e: races are thought to be rare. At 09f ask who still holds batch 0. Those who know CUDA will say 100 for
# 09g. Let the room count aloud for 09h.
#
# In 9.2 two slips are likely: the error overtakes the staged batch, and a variable keeps a third batch alive: `for batch in ...` holds the old one
# until the new one is there. Both verdicts are worth reading out.

# %% [markdown]
# ## What it cannot do
#
# A step takes C, a copy P, and the loader delivers a batch every L. Without prefetching T = max(L, C + P); with it
# T = max(L, C, P). The gain is the ratio: never above 2. Here are three trainings, with lines for the prediction and
# points for the measurement. The workers are a clock here: they have a batch ready every L.


# %%
from itertools import islice

import numpy as np

(many,) = gpu.pinned([torch.zeros(640, 3, 224, 224, dtype=torch.uint8)])
copy_ms = copies_ms["pinned"][1] / 160  # for one image


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
    "640 images, RTX 3090: the step takes 5 ms, the copy 4, and the workers deliver every 11 ms. How many times "
    "faster does prefetching make the training?",
    unit="times",
)

# %%
trainings = {  # ms per image: of the step, beside 1 ms in any case, and of the workers
    "small model": (1 / 160, 0),
    "large model": (1 / 16, 0),
    "small model, slow workers": (1 / 160, 1 / 60),
}
counts = [10, 20, 40, 80, 160, 320, 640]
gains = {}
for name, (step, load) in trainings.items():
    jobs = [(n, 1 + step * n, load * n) for n in counts]
    gains[name] = [pace_ms(in_the_loop, *job) / pace_ms(ours, *job) for job in jobs]

# %%
figure, panel = plt.subplots(figsize=(7, 2.8), layout="constrained")
fine = np.geomspace(counts[0], counts[-1], 200)
for (name, (step, load)), colour, form in zip(
    trainings.items(), ("C0", "C1", "C2"), "os^", strict=True
):
    L, C, P = load * fine, 1 + step * fine, copy_ms * fine
    predicted = np.maximum(L, C + P) / np.maximum(np.maximum(L, C), P)
    panel.plot(fine, predicted, color=colour)
    panel.plot(counts, gains[name], form, color=colour, label=name)
panel.set(xscale="log", xlabel="images in a batch (log)", ylabel=f"times faster ({hardware})")
panel.legend()
plt.close()
figure

# %%
cu.reveal("09i", gains["small model, slow workers"][-1])

# %% [markdown]
# A copy that is small against the step was not worth hiding, and a loader that is slower than the GPU stays so: no
# prefetching makes it deliver more. Look at the trace before you take CUDA streams to it.
#
# ### Exercise 9.3 · 6 min · ●●○
#
# When does pinning pay? `Case` is a loop that prefetches on a stream of its own and reads each loss. How long does
# a step take, in ms? MB divided by GB/s is ms, and pinning runs at `PAGEABLE_GB_S`, whoever does it.

# %%
from notebooks.exercises.nb09.problem import CASES, PAGEABLE_GB_S, PINNED_GB_S, Case

print(f"pageable: {PAGEABLE_GB_S} GB/s, pinned: {PINNED_GB_S} GB/s")
for name, case in CASES.items():
    print(f"{name:16} {case}")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Who does it? The program does one thing after another: what it copies itself, and waiting for the step, add up.
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
# Pinned in the loop, a batch costs what it saves; in a loop that does not prefetch it loses, that was 09b. In the loader it pays, unless there is nothing to save: small batches, for which a
# thread more is only one more hand-over, slow workers, or a host whose memory is busy already.

# %% [markdown]
# ## You now can
#
# - say which copies hold the program up, and what pinning costs,
# - read from a timeline which queue waits for which,
# - write a prefetcher that hides its copies, and prove its data right,
# - find the defects of one that you are given,
# - predict what prefetching gains, and when it gains nothing.
#
# Next: data that come over the network.
