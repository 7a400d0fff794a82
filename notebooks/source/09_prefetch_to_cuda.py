# %% [markdown]
# # 09 · Prefetch to CUDA
#
# {here: transfer}
#
# **You will do:** overlap copies to the GPU with its training steps in plain `torch.cuda`, get wrong results on the
# way, and write a prefetcher that you can take to work.
#
# **You will learn:**
#
# - what a copy to the GPU costs, and what `pin_memory` and `non_blocking` change; <!-- 09a 09b -->
# - how streams, events and device memory decide whether results are right; <!-- 09c 09d 09e 09f -->
# - to find what is wrong with a prefetcher, and to write one that is right. <!-- 9.1 9.2 -->
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
# - *8 min* **What a copy costs.** Get predictions 09a and 09b on the wall before anybody sees a time.
# - *6 min* **Streams and events.** Three definitions, prediction 09c, and then stop. The theory is over.
# - *17 min* **Four designs.** Draw each one before you run it. Predictions 09d, 09e and 09f.
# - *8 min* **Take it with you.** Read the table aloud, one arrow a row. Let them type the prefetcher.
# - *11 min* **What is wrong with this prefetcher?** Let the room shout defects and count them. Then 9.1, then the proof.
# - *20 min* **Exercise 9.2.** Read its two most likely messages aloud.
#
# **Leave out.** Exercise 9.2. Read its two most likely messages aloud, and give it as homework.
#
# **Board.** Draw three queues side by side: host, copies, steps. An arrow means "waits for". For each design, ask who
# waits for whom. Every wrong result of today is a missing arrow, and every lost overlap is an arrow too many.

# %% [markdown]
# ## What a copy costs
#
# A batch of 160 photographs in 8 bits has 24 MB, and it has to get to the GPU somehow. If you have a CUDA GPU, we'll
# measure its copies. If you don't, we emulate one, and its time is simulated, so it advances only when the program would
# have to wait. <!-- given -->

# %%
import torch

from course_utils.hardware.gpu import timed_accelerator

gpu, clock = timed_accelerator("RTX 3090", step_ms=3)
hardware = "emulated" if gpu.emulated else gpu.name
images = [torch.randint(0, 256, (160, 3, 224, 224), dtype=torch.uint8) for _ in range(6)]
print(gpu)

# %% [markdown]
# Everything that copies is torch's own code here, so you can paste it into your training. There's one line that you'd
# leave out: inside `with cu.emulated_cuda(gpu):`, the names `torch.cuda`, `.to("cuda")` and `pin_memory()` act on the
# emulated GPU, and if yours is real, the block only records its copies.
#
# Ordinary memory is **pageable**: the system may move a page at any time, so the copy engine of the GPU can't use it.
# **Pinned** memory stays where it is. `non_blocking=True` asks a copy not to block the program. That makes four cases.

# %%
FOUR = ["none", "both with non_blocking", "both pinned", "pinned with non_blocking", "all four"]
cu.predict("09a", "In which cases does the program continue while the copy runs?", choices=FOUR)


# %%
def times(copy):
    """Return the ms until the program continues, and until the batch has arrived."""
    torch.cuda.synchronize()
    start = clock()
    copy()
    continues = clock()
    torch.cuda.synchronize()
    return (continues - start) / 1e6, (clock() - start) / 1e6


# %%
pageable = images[0]
with cu.emulated_cuda(gpu):
    pinned = pageable.pin_memory()
    cases = {
        "pageable": lambda: pageable.to("cuda"),
        "pageable, non_blocking": lambda: pageable.to("cuda", non_blocking=True),
        "pinned": lambda: pinned.to("cuda"),
        "pinned, non_blocking": lambda: pinned.to("cuda", non_blocking=True),
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
# To send pageable memory, the driver first copies the bytes into its own pinned buffer. It does so in the thread of your
# program, so your program waits, whatever you asked for: `non_blocking` changes almost nothing there, and PyTorch prints
# no warning. (Only for copies of up to 64 KB does CUDA let the program continue.) <!-- given -->
#
# So let's pin first. Many loops do it like this, with one more call:

# %%
cu.predict(
    "09b",
    "batch.pin_memory().to('cuda', non_blocking=True) in the loop: how many times as long as a plain "
    "batch.to('cuda') does it take until the batch has arrived?",
    unit="times",
)

# %%
with cu.emulated_cuda(gpu):
    copies_ms["pinned in the loop"] = min(
        times(lambda: pageable.pin_memory().to("cuda", non_blocking=True)) for _ in range(3)
    )
print("pinned in the loop:      {:5.2f} {:5.2f}".format(*copies_ms["pinned in the loop"]))

# %%
cu.reveal("09b", copies_ms["pinned in the loop"][1] / copies_ms["pageable"][1])

# %% [markdown]
# Pinning a tensor *copies* it, inside your loop. The driver would have made the same copy, but piece by piece,
# sending one while it copies the next. So you've lost time.
# [PyTorch's tutorial on pinning](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html) finds it up to
# twice as slow as a plain `.to()`. PyTorch also keeps pinned memory for later batches, rounded up to a power of two,
# here 32 MiB. <!-- given -->
#
# `DataLoader(pin_memory=True)` pins in a separate thread. That's still a copy, but your loop doesn't make it. Pinned
# pages can't be swapped, so other programs have less memory. Without a GPU the option has no effect, which is why we pin
# a list of batches below.
#
# ## Streams, events, and who waits for whom
#
# - A **stream** is a queue on the device. Its operations run one after the other.
# - Two streams of PyTorch don't wait for each other. An operation without a stream goes to the *default stream*.
# - An **event** is a mark in a stream. Another stream can wait for an event, and so can the program.
#
# One published course puts this comment into a loop that prefetches: *inputs and targets already on GPU before this
# line executes*. You've seen that a `non_blocking` copy returns at once, so something has to wait. Here are two lines
# that do:

# %%
cu.predict(
    "09c",
    "wait_event(arrived) or arrived.synchronize(): which of them returns only when the batch is there?",
    choices=["both", "wait_event", "synchronize", "neither"],
)

# %%
with cu.emulated_cuda(gpu):
    copies = torch.cuda.Stream()
    with torch.cuda.stream(copies):  # in this block, copies and steps go to this stream
        batch = pinned.to("cuda", non_blocking=True)
        arrived = copies.record_event()
    there = {}
    torch.cuda.current_stream().wait_event(arrived)
    there["wait_event"] = arrived.query()  # asks, and doesn't wait
    arrived.synchronize()
    there["synchronize"] = arrived.query()
print("there, after", there)

# %%
after = [name for name, yes in there.items() if yes]
cu.reveal("09c", {0: "neither", 2: "both"}.get(len(after), "".join(after)))

# %% [markdown]
# `synchronize` stops the *program*. `wait_event` returns at once and stops the *stream*: whatever you launch there from
# now on begins after the copy. That's the better wait, because the program can keep launching, and it's why the comment
# is wrong but the step can be right. It all depends on the stream of the step.
#
# ## Four designs
#
# Now we'll build the prefetcher, and we'll get it wrong three times. All designs copy the next batch while the GPU
# computes the current one, so the loop gets batch 0 only after the copy of batch 1 was launched.


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
# `gpu.step(batch)` stands for your forward pass, backward pass and optimizer, because the emulated GPU computes nothing
# else. Its loss is a checksum of the batch. If that's wrong, the step has read garbage. Reading the loss makes the
# program wait for the step, which you'll see in the row `main`.

# %%
from course_utils.hardware.gpu import checksum
from keepfed.measure.picture import Timeline
from keepfed.measure.spans import hidden_share, stage

with cu.emulated_cuda(gpu):
    loader = [batch.pin_memory() for batch in images]  # as if from DataLoader(pin_memory=True)
wanted = [checksum([batch]).item() for batch in images]


# %%
def train(design, read_late=False):
    """Return the trace of an epoch, and how many batches were read right."""
    losses = []
    with cu.emulated_cuda(gpu), cu.record(clock=clock) as trace:
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
        yield batch.to("cuda", non_blocking=True)


def default_stream(batches):
    return one_ahead(lambda batch: batch.to("cuda", non_blocking=True), batches)


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
# The results are right, but nothing overlaps. Copies and steps share one queue, so each of them waits for the one
# before, however early you put it there.
#
# **Design 2** therefore opens a second queue: it copies on a separate stream.


# %%
def copy(batch):
    with torch.cuda.stream(copies):
        return batch.to("cuda", non_blocking=True), copies.record_event()


def without_wait(batches):
    for batch, _ in one_ahead(copy, batches):
        yield batch


# %%
cu.predict("09e", "Design 2, emulated GPU: how many of 20 epochs are right?", unit="epochs")

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
# All copies overlap, and on an emulated GPU all results are wrong, even where a copy ends before its step begins: nothing
# *orders* the step after the copy, so what it reads is a matter of luck, and the emulated GPU has none. It's a very fast
# way to train on garbage. On a real GPU, the copy often wins this race, perhaps in all 20 epochs, and for
# weeks, until you buy a faster GPU. You get no error unless you ask for one. PyTorch's sanitizer is a prototype that
# should report this race and then end the program. Run `TORCH_CUDA_SANITIZER=1 python train.py` in a terminal, or with a
# `!` before it in a cell on Colab.
#
# **Design 3** adds the wait that you've just met. Steps that the loop launches from now on wait for *this* copy, and the
# program doesn't.


# %%
def with_wait(batches):
    for batch, arrived in one_ahead(copy, batches):
        torch.cuda.current_stream().wait_event(arrived)
        yield batch


waits, right_waits = train(with_wait)
hidden = 100 * hidden_share(waits.spans)
print(f"right batches: {right_waits} of {len(wanted)}, overlap: {hidden:.0f} %")
Timeline({"1: default stream": one_queue, "3: stream and event": waits})

# %% [markdown]
# Only the first copy doesn't overlap, because no step runs before it. (On a real GPU slightly less overlaps, because
# Python needs time to launch each step.)
#
# Are we done? Reading the loss after every step blocks the program, so good loops read it later. Let's be good, then, and
# read all losses after the epoch.

# %%
cu.predict(
    "09f", "Design 3, losses read at the end: how many of 6 batches are right?", unit="batches"
)

# %%
waits_late, right_late = train(with_wait, read_late=True)
cu.reveal("09f", right_late)

# %% [markdown]
# What has happened? PyTorch's **caching allocator** manages device memory. When Python drops a batch, the allocator gives
# its memory at once to the next tensor of the same stream. Within one stream this is safe, because the stream writes the
# next tensor only after it has read the old one. But our step reads the batch on *another* stream, and the program runs
# ahead, so it drops batches whose steps have not begun. The next copy then overwrites such a batch, and the copy after
# it gets the other memory, because two batches exist at a time. So about half of them are read too late.
#
# **Design 4** tells the allocator which other stream uses the memory:


# %%
def with_record(batches):
    for batch, arrived in one_ahead(copy, batches):
        user = torch.cuda.current_stream()
        user.wait_event(arrived)
        batch.record_stream(user)  # its memory stays until this stream has finished with it
        yield batch


for read_late in False, True:
    trace, right = train(with_record, read_late)
    when = "late" if read_late else "in each step"
    print(f"losses read {when}: {right} right, {100 * hidden_share(trace.spans):.0f} % overlap")

# %% [markdown]
# Design 4 is right and overlaps its copies in both loops. It isn't free: a batch stays allocated until its step has
# finished, even after Python has dropped it, so batches pile up on the device if the program runs far ahead.
#
# ## Take it with you
#
# Every call that you've met either puts work into a queue or makes somebody wait. Who waits for what?
#
# | Call | Who waits |
# |---|---|
# | `batch.pin_memory()` | the program, for a copy in host memory |
# | `batch.to("cuda")` | the program, until the batch has arrived |
# | `pinned.to("cuda", non_blocking=True)` | nobody: a copy joins the current stream |
# | `with torch.cuda.stream(copies):` | nobody: `copies` is the current stream in the block |
# | `copies.record_event()` | nobody: a mark joins `copies` |
# | `user.wait_event(arrived)` | what you launch on `user` from now on, for everything before the mark |
# | `user.wait_stream(copies)` | the same, for everything launched on `copies` so far |
# | `batch.record_stream(user)` | the allocator: it reuses the memory only after the work that `user` has when Python drops the batch |
# | `arrived.synchronize()`, `loss.item()` | the program, for the mark, or for the step |
# | `torch.cuda.synchronize()` | the program, for everything |
#
# And here is design 4 on one page, for a loader of single tensors. Cover it, and try to type it from the table.


# %%
def hand_over(batch, arrived):
    user = torch.cuda.current_stream()
    user.wait_event(arrived)
    batch.record_stream(user)
    return batch


def prefetch(loader, copies):  # with pin_memory=True, and a torch.cuda.Stream()
    staged = []
    for batch in loader:
        with torch.cuda.stream(copies):
            staged.append((batch.to("cuda", non_blocking=True), copies.record_event()))
        if len(staged) > 1:
            yield hand_over(*staged.pop(0))
    if staged:
        yield hand_over(*staged.pop())


# %%
for read_late in False, True:
    trace, right = train(lambda batches: prefetch(batches, copies), read_late)
    print(f"{right} of {len(wanted)} right, {100 * hidden_share(trace.spans):.0f} % overlap")

# %% [markdown]
# If your batch is a list or a dict, copy and record each of its tensors, as in exercise 9.2. And if the loader raises an
# error, this page loses the batch that it has already copied, which 9.2 repairs, too.
#
# `CudaPrefetcher` is the same for nested batches, and for objects with a method `.to()`. It blocks when the program is
# more than two steps ahead, so that memory can't run out. On devices other than CUDA, it moves the batches without
# prefetching.
#
# ```python
# from keepfed.loaders.prefetch import CudaPrefetcher
#
# loader = DataLoader(dataset, batch_size=256, num_workers=8, pin_memory=True)
# for batch in CudaPrefetcher(loader, "cuda"):
# ```
#
# Neither of the two needs a thread, because the loader already has workers and a thread that pins. A prefetcher only
# enqueues copies, which takes microseconds. Another thread could only add a way to hang, as you'll see.
#
# When does all this help? These are two real GPUs, each of which copies a batch of 32 MB between steps of 10 ms. The last
# row is an emulated GPU with the times of the real one. Switch between the two cards. <!-- given -->

# %%
from course_utils.stories.prefetchers.recordings import real_cards

real_cards()

# %% [markdown]
# Most copies vanish below the steps, and yet the GPU is hardly busier. It mostly waits for the next batch, and on its
# fast bus a copy takes less than a millisecond. Real and emulated GPUs are busy for the same share of the time, to within
# 2.1 percentage points on the H200 and 1.7 on the H100, in eight loops.
#
# A prefetcher saves at most the time of the copies, and nothing if the loader is the limit: a ResNet on JPEGs read
# 3,361 images/s on an H100 with pinned memory alone, and 3,124 images/s with a prefetcher on top (November 2026). So it
# pays if your copies are long compared with the steps (large inputs, a small model, a slow bus) and the loader delivers
# in time. Remember Ada's hundred days in notebook 02? This notebook wouldn't have saved her one of them, because her
# GPU waited for the storage system.
#
# ## What is wrong with this prefetcher?
#
# A published course prints one like this, with a thread and a queue. How many defects can you find? Count them before
# you read on.

# %%
import inspect

from course_utils.stories.prefetchers import QueuePrefetcher

print(inspect.getsource(QueuePrefetcher))

# %% [markdown]
# ### Exercise 9.1 · 10 min · ●●○
#
# Each of the ten defects has a symptom, and in real life the symptom is all you see. For each symptom, write its cause,
# a key of `CAUSES`. One cause is left over. Somebody then repairs (d), which gives (h). The repair of (h) gives (i), and
# the repair of (i) gives (j).
#
# <details><summary>Hint</summary>
#
# Four symptoms belong to the thread.
#
# </details>

# %%
from course_utils.exercises.nb09.problem import CAUSES, SYMPTOMS

for letter, symptom in SYMPTOMS.items():
    print(f"({letter}) {symptom}")
print("\nCAUSES:", *(f"{cause}: {shows}" for cause, shows in CAUSES.items()), sep="\n  ")

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
# Did we make these symptoms up? Let's run both prefetchers into each of them, on emulated GPUs.

# %%
from IPython.display import Markdown

from course_utils.stories.prefetchers import prove_all

rows = [f"| {d.number} | {d.title} | {d.theirs} | {d.ours} |" for d in prove_all()]
head = ["| | Defect | With this prefetcher | With `CudaPrefetcher` |", "|---|---|---|---|"]
Markdown("\n".join(head + rows))

# %% [markdown]
# ### Exercise 9.2 · 10 min · ●●○
#
# Now write the prefetcher that has none of them, in torch alone. You get `stage`, which launches a copy, and the error
# handling: the loop first gets all batches that were copied, and then the error. Targets:
#
# - All checksums are right, in loops that read each loss and in loops that read the losses late.
# - 80 % of the copying overlaps, for batches of any structure and a loader without `len()`. <!-- given -->
# - When the loop gets batch n, the copies of the next `depth` batches have been launched.
# - If each loss is read, at most `depth + 1` batches are on the device, so no variable of yours may keep one.
# - Each loop over it is a new epoch, even after an error, a `break`, or inside another loop.

# %%
from collections import deque

from keepfed.batches import leaves, map_tensors


class Copies:
    """Given: a stream for copies, and a method that launches a copy."""

    def __init__(self, loader, depth=1):
        self.loader, self.depth = loader, depth
        self.copies = torch.cuda.Stream()

    def stage(self, batch):
        """Launch the copy of a pinned batch. Return the batch and the event of its arrival."""
        with torch.cuda.stream(self.copies):
            batch = map_tensors(lambda part: part.to("cuda", non_blocking=True), batch)
            return batch, self.copies.record_event()


# %% [markdown]
# <details><summary>Hint 1: safe to use</summary>
#
# Use design 4. `leaves(batch)` lists all values of a nested batch, of which only tensors have `record_stream`.
#
# </details>
# <details><summary>Hint 2: how many</summary>
#
# In the `try`, append `self.stage(next(batches))` to `staged` until it has `depth` batches and one more. After an
# error, don't call `next` again.
#
# </details>
# <details><summary>Hint 3: yield</summary>
#
# If `staged` isn't empty, `yield self.hand_over(*staged.popleft())`. Don't put the batch in a variable, which would
# keep its memory until the loop comes back.
#
# </details>


# %%
class Prefetcher(Copies):
    def hand_over(self, batch, arrived):
        """Make the batch safe for the loop, and return it."""
        ### BEGIN SOLUTION
        user = torch.cuda.current_stream()
        user.wait_event(arrived)
        for leaf in leaves(batch):
            if isinstance(leaf, torch.Tensor):
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
# - **09b** Tempting: less than 1, because pinned copies are fast. It's more than 1, up to 2, because pinning copies.
# - **09c** Tempting: "both", because both say wait. Ask *who* waits: `wait_event` returns at once.
# - **09d** Tempting: 80 to 100. Let somebody draw the one queue. It's 0.
# - **09e** Tempting: 18 or 19, because races seem rare. On an emulated GPU it's 0. A real GPU often hides the bug.
# - **09f** Tempting: 6, because now it waits. It's about half of them. Ask who still holds batch 0.
#
# **Goes wrong.**
#
# - Somebody calls `.to("cuda")` outside the block, and torch finds no GPU. Everything that *runs* belongs inside.
# - In 9.1, it's tempting to take (h), (i) and (j) for the first defect. Ask which repair the symptom mentions.
# - In 9.2, it's easy to stage `depth` batches instead of one more. Count the copies in flight when the loop gets one.
# - In 9.2, a variable keeps a batch alive. `for batch in ...` holds the old batch until the new one is ready.

# %% [markdown]
# ## You now can
#
# - say which copies block the program;
# - read from a timeline which queue waits for which;
# - write a prefetcher in torch alone that overlaps its copies, and prove that its data are right;
# - find the defects of an existing prefetcher, and say when you need none.
#
# Next: [13 Rescue a training run](13_capstone_rescue_a_training_run.ipynb), because you now have all the tools for it,
# while [shards](10_stream_shards.ipynb), [many GPUs](11_feed_many_gpus.ipynb),
# [tokens](12_feed_a_language_model.ipynb) and [physics](14_feed_physicists_data.ipynb) are tracks that you can take in
# any order.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs the sections below, and each section needs only the core. (They
# use the designs and `train` from above.)

# %% [markdown]
# ## Seven designs
#
# Two more designs look as good as design 4. Instead of the event, both wait for the whole copy stream. `whole_stream`
# launches the next copy and then waits, while `stream_first` waits and then launches the next copy. Does the order
# matter?


# %%
def whole_stream(batches):
    for batch, _ in one_ahead(copy, batches):
        user = torch.cuda.current_stream()
        user.wait_stream(copies)  # includes the copy of the next batch
        batch.record_stream(user)
        yield batch


def stream_first(batches):
    batches, user = iter(batches), torch.cuda.current_stream()
    staged = next(map(copy, batches), None)
    while staged is not None:
        user.wait_stream(copies)  # contains only the copy of this batch
        (batch, _), staged = staged, next(map(copy, batches), None)
        batch.record_stream(user)
        yield batch


# %%
cu.predict("09g", "whole_stream, each loss read: what share of the copying overlaps?", unit="%")

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
cu.reveal("09g", 100 * runs["loss read in each step"]["whole_stream"][0])

# %% [markdown]
# It does. `whole_stream` also waits for the copy *after* ours, which is already running, so it overlaps only if the
# program runs far ahead. `stream_first` has the same lines in another order, as in the prefetcher of
# [NVIDIA's Apex](https://github.com/NVIDIA/apex/blob/123854c30cf2470e9295eefbe32efc8a81d08264/examples/imagenet/main_amp.py),
# and overlaps all but the first copy. If you wait for an event, you don't have to think about the order of these lines.
#
# `record_stream` is a convenience. If your code owns the batch, PyTorch's documentation recommends another way: keep the
# batch until an event after its last step has passed.
#
# Create one stream for copies, and don't create one in each epoch, because the allocator keeps the memory of a stream for
# the next batch of *that* stream, and PyTorch has only 32 streams. <!-- given -->
#
# A CUDA graph reads fixed addresses, so it doesn't see a new batch. Copy each batch into the tensor that the graph was
# captured with: `static.copy_(batch)`.

# %% [markdown]
# ## Copy results to the host
#
# The other direction has a trap, too: a copy with `non_blocking=True` to the *host* returns before the data arrive.


# %%
def right_results(wait):
    right = 0
    for number in range(6):
        batch = torch.full((1_000_000,), float(number)).to("cuda")
        result = gpu.launch(lambda values: values * 2, batch, ms=5)
        host = result.to("cpu", non_blocking=True)
        if wait:
            torch.cuda.current_stream().record_event().synchronize()
        right += int((host == 2 * number).all())
    return right


# %% [markdown]
# Make a guess first. How many of 6 results are right?

# %%
with cu.emulated_cuda(gpu):
    print("read at once:", right_results(wait=False), " after an event:", right_results(wait=True))

# %% [markdown]
# So record an event after the copy and wait for it. The loss of `gpu.step()` does the same: `item()` waits for one event,
# but not for later steps.
#
# ## What prefetching cannot do
#
# Let C be the time of a step, K the time of a copy, L the time between two batches of the loader, and T the time per
# batch of the whole loop. Without prefetching T = max(L, C + K), and with it T = max(L, C, K). The gain is the ratio of
# the two, and never above 2. Is the model any good? The picture below shows three trainings, with lines for the
# prediction and points for the measurement. A clock replaces the workers here, and a batch is ready every L.


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
    "09h",
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
        with cu.emulated_cuda(gpu):
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
cu.reveal("09h", gains["small model, slow workers"][640])

# %% [markdown]
# If a copy is short compared with the step, prefetching gains little. A loader that is slower than the GPU stays slow,
# because nobody made it deliver more. So look at the trace before you write code with CUDA streams.
#
# Pinning in the loop costs as much time as it saves, and in a loop that doesn't prefetch it costs more, as in prediction
# 09b. Pinning in the loader pays in most cases. It doesn't for small batches, with slow workers, or if the memory of the
# host is already busy.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **09g** Tempting: as much as design 4. It's 0, because this design also waits for the copy that has just begun.
# - **09h** Tempting: up to 2. It's 1, because the workers are slower than step and copy together.
#
# **Extra.** Homework: seven designs, and what prefetching cannot do.
