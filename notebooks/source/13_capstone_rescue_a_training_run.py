# %% [markdown]
# # 13 · Rescue a training run
#
# {here: read, decode, collate, transfer, compute}
#
# **You will do:** take over a colleague's training script that has seven faults, and feed its GPU.
#
# **You will learn:**
#
# - to work through a slow training: measure, find the largest cause, fix it, measure again; <!-- 13a 13.1 -->
# - that one fault can hide another; <!-- 13.1 -->
# - to prove that a faster loader serves the same samples; <!-- 13b 13.1 -->
# - to report what you did, so that other people can judge it.
#
# **You need:** notebooks 01 to 09. A CPU is enough.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("13")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *5 min* **A training worth rescuing.** Read `train` together, at the end of the script. Then prediction 13a, and the
#   first timeline.
# - *66 min* **Exercise 13.1.** Walk around and ask one question: what did you measure before you changed this?
# - *2 min* **Does it still learn?** Prediction 13b.
# - *2 min* **Write your report.** Learners hand it in later, or one of them reads it aloud. End with Ada.
#
# **Leave out.** Prediction 13b and the report. Learners hand the report in later.
#
# **Board.** One column each for hypothesis, evidence, change and effect. Fill in one line together.
#
# **Background.**
#
# - Nobody has to find all seven faults at once. Fixing four of them feeds the GPU, and the check refuses the script because
#   of the other three.
# - One more piece of code looks slow and costs nothing. Ask people who remove it what they measured.
# - To give a class another set of faults, write `hand_out(7)` in the next cell. `faults_of(7)`, from the same package, lists
#   the faults.

# %% [markdown]
# ## A training worth rescuing
#
# Your colleague is on vacation, and the training that she left behind crawls. It's a small **transformer** on events of
# the neutrino telescope, similar to [PolarBERT](https://github.com/timinar/PolarBERT), and it reads the pulses of an
# event like words of a sentence. First it learns without labels: the script hides the sensors of some pulses, and the
# model predicts them from all other pulses. Then it learns where the particle came from. On the slow storage system of
# a computing center, the script starves its GPU. Here it is:

# %%
from course_utils.stories.capstone import hand_out

script = hand_out()
print(f"{script}: {len(script.read_text('utf-8').splitlines())} lines")

# %% [markdown]
# The file is in the same folder as this notebook, and you edit it with a double click in the list on the left. Be bold,
# because the course never overwrites your changes. Read `train` at the end of the script first, and then `TokenStream`,
# which feeds it.
#
# The script gets a *job*, which has everything it needs: the events, the device, and the task of each epoch. The job
# also records which samples the model gets, so don't try to cheat. `timed_job` creates a job whose events are on an
# emulated busy Lustre, and whose GPU is emulated and takes 50 ms per step. <!-- given --> It stops the script after a
# few seconds.

# %%
cu.predict(
    "13a", "For what share of the time does the GPU compute, after the first step?", unit="%"
)

# %%
from course_utils.stories.capstone import load, timed_job

events = cu.data_path("events", "S")
job = timed_job(events)
job.run(load(script).train)
job.trace.timeline()

# %%
cu.reveal("13a", 100 * job.trace.summary().au)

# %% [markdown]
# ## Rescue it
#
# The script has seven faults, each in a different place, and one more piece of code that only looks slow. Find the fault
# that costs most, fix it, save the file, and run the two cells above again. Then look for the next one. You have the
# timeline, `cu.diagnose`, py-spy and your own counters, and you don't have to guess.
#
# Why one at a time? Because some faults show only after you have fixed others. With `WORKERS = 0`, for example, you
# can't see that two workers would serve every event twice. So measure after each change, and run the check as well,
# because only the check compares the samples.
#
# ### Exercise 13.1 · 60 min · ●●● <!-- timed -->
#
# Change the script as you like, but keep its first line and `train(job)`. Read events with `job.events`, and pass the
# losses of all steps and of the evaluation to `job.note`. The training must stay the same:
#
# - in each epoch, the model learns once from each event of `job.training`, in mixed batches of 16; <!-- given -->
# - each epoch has different batches, in a different order;
# - the tokens of each event, `learn`, the learning rate and the evaluation don't change.
#
# Your targets:
#
# - the GPU computes at least 90 % of the time after the first step (AU); <!-- given -->
# - the script reaches `job.follow` within 3 s; <!-- given -->
# - at most 60 % of the events of an epoch are in memory at a time. This counts events that wait for their step, cached
#   events, and events that are kept after their step. <!-- given -->
#
# The check first trains the model for a few steps, and then runs two epochs of other events in real time, as
# `timed_job` does. A busy laptop feeds the GPU less, so if your AU is too low, the check also runs a repaired script,
# and your AU counts in proportion to what that one reaches. The same script varies by a few points, so the check
# accepts 85 %. <!-- given --> An AU of 90 % gives 60 points, 45 % gives 45 points, and 22 % gives 30 points. Each of
# the other two targets gives 20 points. A different training gives no points, however fast it is. <!-- given -->
#
# <details><summary>Hint 1: where to begin</summary>
#
# In the timeline, which stages fill the rows during a red gap? Without workers, all stages are in the row `main`.
#
# </details>
# <details><summary>Hint 2: a second opinion</summary>
#
# `diagnose` needs a loader and a step, and your script has both:
#
# ```python
# colleague, job = load(script), timed_job(events)
# loader = colleague.make_loader(colleague.TokenStream(job, job.training))
# print(cu.diagnose(loader, lambda batch: job.compute(None, job.upload(batch))))
# ```
#
# </details>
# <details><summary>Hint 3: nothing improved?</summary>
#
# If you halve a small part, you gain little. Count how many milliseconds each part takes per batch, and fix the largest
# part first.
#
# </details>
# <details><summary>Hint 4: the seven places</summary>
#
# - how the script reads events,
# - how it transforms them,
# - which process does this,
# - which worker serves which events,
# - what the loop does in addition to the step,
# - what stays in memory,
# - what runs before the first step.
#
# </details>

# %% tags=["solution"]
from course_utils.stories.capstone import script_with

_ = script.write_text(script_with([]), "utf-8")

# %%
cu.check("13.1", script)

# %% [markdown] tags=["solution"]
# The faults, and why they cost so much. The last one is the decoy:

# %% tags=["solution"]
from textwrap import fill

from course_utils.stories.capstone import faults_of

for fault in faults_of(0):
    text = f"{fault.place:9}  {fault.name}. {fault.why}"
    print(fill(text, 90, subsequent_indent=" " * 11))

# %% [markdown]
# ## Does it still learn?
#
# A fast loader that feeds nonsense is still fast. So does the model learn from its samples? In the first task, it
# predicts a hidden sensor, and its loss is the *surprise* at the true sensor, in units called nats. A loss of x nats
# means that the model hesitates between e^x sensors. A guess that uses only how often each sensor is hit hesitates
# between about 5,000.

# %%
cu.predict(
    "13b", "Between how many sensors does the model hesitate after two epochs?", unit="sensors"
)

# %%
from math import exp

from course_utils.stories.capstone import Job
from course_utils.stories.capstone.learning import LearningCurves, plot_learning, recorded

real_job = Job(events, ["masked"] * 2, seconds=6)  # trains the real model on your machine
real_job.run(load(script).train)
mine = LearningCurves(real_job.losses, real_job.scores, "6 s on your machine")
plot_learning(recorded(), mine)

# %%
cu.reveal("13b", exp(recorded().ends("masked")[1][-1]))

# %% [markdown]
# The curve of 2,000 events is your script, which trained for a few seconds on a tenth of the data. The blue curves are
# from a full training with the fixed script, which we recorded. The right picture shows the second task, and the error
# of a *line fit*. This traditional method of physics assumes that a point moves along a straight line at constant
# speed, and fits the line to the places and times of the pulses. With the same samples, a slow loader and a fast loader
# give the same curve, and the fast one gives it sooner.
#
# ## Write your report
#
# "It's faster now" won't convince the people who maintain the script. For each change, write down your hypothesis, what
# you measured before the change, what you changed, and what you measured after it. Include changes that gained nothing,
# so that nobody has to try them again. Write into a new Markdown cell below, and hand in this notebook.
#
# ## And Ada?
#
# Ada expected ten days in notebook 02, and the bar told her a hundred for the first epoch alone. Each event took about
# ten times as long as before, because the file no longer fitted in the page cache, and you could get this factor back
# for her now. The other factor of ten stays: her epoch had ten million events instead of one million, and no loader
# repairs a file that's larger than you think.

# %% [markdown]
# ## You now can
#
# - take over a training script and find out what it waits for;
# - fix the largest cause first, and see when the next one becomes visible;
# - show that a faster loader serves the same samples;
# - report your changes so that other people can follow them.
#
# Next: your own training, because that's what all this was for, or a track: [shards](10_stream_shards.ipynb), [many
# GPUs](11_feed_many_gpus.ipynb), [tokens](12_feed_a_language_model.ipynb) or [physics](14_feed_physicists_data.ipynb).

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **13a** Tempting: 50 and more, because the script "only" reads small events. It is below 10.
# - **13b** Tempting: hundreds or thousands, because two epochs are few. It is about 30. A guess without a model would reach
#   5,000.
#
# **Goes wrong.**
#
# - If you read the script before you measure, you find `WORKERS = 0` first, change it, and are refused, because each event
#   comes twice. What does a copy of an `IterableDataset` know about the other copies?
# - The picture every four steps and the list of all batches come last, when `main` is all that's left after the workers are
#   fast. Point at that row.
# - Nothing changed? The script isn't saved. Save it, and run the two cells again.
# - A different `BATCH` is a different training, and a faster `neighbors` may count a pulse as its own neighbor. The check
#   refuses both.
#
# **Extra.** Other right solutions are a map-style dataset with `BlockSampler`, four workers, larger chunks, or a cache
# of some events.

# %% [markdown]
# # Extra
#
# The core ends here, and each section needs only the core.
#
# ## Another patient
#
# That was too easy? There are several faults for each of the seven places, and a seed selects among them. `hand_out(7)`
# writes `rescue_7.py`, which has other faults.<!-- notebook --> Set `script` to the returned path, and run the cells
# again, starting with `timed_job`.<!-- end -->
#
# ## Find the sample behind a loss spike
#
# The loss of a training jumps in one step, and you want to know which sample did it. `keepfed audit --log` runs an
# unchanged training and lists the samples of every batch. The training below has one event with a failed sensor.

# %%
import subprocess
import sys
from tempfile import mkdtemp


def run_keepfed(*words):
    command = [sys.executable, "-m", "keepfed.command", *words]
    ran = subprocess.run(command, capture_output=True, text=True)
    print(ran.stdout + ran.stderr)


log = f"{mkdtemp()}/samples.jsonl"
training = [sys.executable, "-m", "course_utils.stories.small_training.loss_spike"]
run_keepfed("audit", "--log", log, *training)

# %% [markdown]
# The spike is in step 26. <!-- given --> The log knows the worker, the epoch and the 32 samples of this step:
# <!-- given -->

# %%
import json
from pathlib import Path

rows = [json.loads(line) for line in Path(log).read_text().splitlines()]
print(rows[26])

# %% [markdown]
# Let's look at these samples, and replay the worst one. Its noise depends only on seed, epoch and index (`sample_rng`),
# so you get the same bits that the training got, before and after augmentation.

# %%
import torch

from course_utils.stories.small_training.loss_spike import SensorPulses, augment

pulses = SensorPulses(epoch=torch.zeros(1))
worst = max(rows[26]["samples"], key=lambda index: pulses.charges[index].max())
print("event", worst, "before", pulses.charges[worst])
print("event", worst, "after ", augment(pulses.charges[worst], epoch=0, index=worst))

# %% [markdown]
# ## A board for a class
#
# Do you want to know who in your class feeds the GPU best? Run `course wall` in a terminal. It prints the address of a
# page that shows all results, which everybody in your network can open if you add `--lan`.
#
# Choose any name, and enter the address with its token. The wall receives this name, the figures of your best result
# and its time, and nothing else. It verifies neither names nor results, so it's only for fun. (An exam would run your
# script itself.)

# %%
from course_utils.stories.capstone import best, post, seed_of

name, wall = "", ""
print(post(name, best(seed_of(script)), wall))

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Background.** `course wall --lan` stores all posts in `work/wall.jsonl` and continues with them after a restart. If
# you set your own token in `COURSE_TOKEN`, the address stays the same. To remove a name, stop the wall, delete the line
# in that file, and start it again. It uses plain HTTP, so if you don't trust the network, use it on one machine only.
# Each set of faults, such as `hand_out(7)`, has its own table.
