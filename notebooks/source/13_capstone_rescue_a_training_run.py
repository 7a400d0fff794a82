# %% [markdown]
# # 13 · Rescue a training run
#
# **You will do:** take over the training script of a colleague, in which seven things go wrong, and feed its GPU.
#
# **You will learn**
#
# - to work through a real loss of speed: measure, find the largest cause, mend it, measure again,
# - that a fault may hide behind another one,
# - to prove that a faster loader serves the same samples,
# - to report what you did, so that others can judge it.
#
# **You need:** notebooks 01 to 09. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("13")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *5 min* **A training worth rescuing.** Read `train` together, at the end of the script; prediction
#   13a, and the first timeline.
# - *30 min* **Exercise 13.1.** Give a class forty. Walk around, and ask one question: what did you
#   measure before you changed this?
# - *2 min* **Does it still learn?** Prediction 13b.
# - *2 min* **Write your report.** A class hands it in at home, or reads one aloud.
#
# **Board.** One column for each of hypothesis, evidence, change and effect. Fill in one line
# together.
#
# **Background.**
#
# - Nobody has to find all seven: with four of them the GPU is fed, and each of the other three makes
#   the check refuse that.
# - For a class, hand out another set: `course capstone --seed 7` writes the script, and `--answers`
#   says what is wrong with it.

# %% [markdown]
# ## A training worth rescuing
#
# Your colleague trains a small **transformer** on events of the neutrino telescope, in the manner of
# [PolarBERT](https://github.com/timinar/PolarBERT). It reads the pulses of an event as a language model reads words, and first it learns without labels: the
# sensors of some pulses are hidden, and it guesses from all other pulses which ones these were. After that it learns where the particle came from.
#
# On the slow storage of a computing centre, the script starves its GPU. Here it is:

# %%
from course_stories.capstone import hand_out

script = hand_out()
print(f"{script}: {len(script.read_text('utf-8').splitlines())} lines")

# %% [markdown]
# The file lies beside this notebook: a double click in the list on the left opens it in an editor. It is yours, and
# nothing overwrites it. Read `train` first, at the end of it, then `TokenStream`.
#
# A *job* gives the script all that it needs: where the events lie, on what to compute, which task to learn in each epoch. The job also follows the loop, and notes
# which samples the model gets. The one from `timed_job` has its events on an emulated busy Lustre, and an emulated GPU that takes 50 ms for a step. <!-- given -->
# It ends early, after some seconds.

# %%
cu.predict(
    "13a", "For what share of the time does the GPU compute, after the first step?", unit="%"
)

# %%
from course_stories.capstone import load, timed_job

events = cu.data_path("events", "S")
job = timed_job(events)
job.run(load(script).train)
job.trace.timeline()

# %%
cu.reveal("13a", 100 * job.trace.summary().au)

# %% [markdown]
# ## Rescue it
#
# Seven faults are in the script, each in a different place. Find the one that costs most, mend it, save the file, and run the two cells above again. Then look
# for the next one. You may use all that you have learnt: the timeline, `cu.diagnose`, py-spy, a counter of your own.
#
# A fault may be harmless as long as another one is there: what is wrong with workers shows only when there are some. So measure after each change, and
# let the check look at the samples each time.
#
# ### Exercise 13.1 · 30 min · ●●● <!-- timed -->
#
# Change the script as you like, but keep `train(job)`, read events by `job.events`, and tell `job.note` how each epoch went. Your targets:
#
# - in each epoch the model learns from each event of `job.training` once, in mixed batches of 16, and with others in its batch than in the epoch before, <!-- given -->
# - it sees the same tokens of each event as it does now,
# - the GPU computes 90 % of the time or more (AU), <!-- given -->
# - the first step comes within 3 s; what workers take to start does not count, <!-- given -->
# - at most 60 % of the events are held in memory at a time: the events stand for a data set 1,000 times as large, which would fit into no memory. <!-- given -->
#
# The check runs two epochs on other events. It counts the time for which the processes compute, and adds the time for which they would wait
# for storage and GPU, so it gives the same mark on a busy laptop. The AU is worth up to 60 points, 15 fewer each time that it is halved; the first step and the
# events held are worth 20 each. If the samples are wrong, there are no points.
#
# <details><summary>Hint 1: where to begin</summary>
#
# In the timeline, what is in the rows while a red gap lasts? Without workers, everything is in the row `main`.
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
# To halve a small part gains little. Count what each part costs in milliseconds for a batch, and mend the largest one first.
#
# </details>
# <details><summary>Hint 4: the seven places</summary>
#
# How events are read; what is done with each of them; which process does it; who serves which events; what the loop does besides the step; what
# is kept; what happens before the first step.
#
# </details>

# %% tags=["solution"]
from course_stories.capstone import script_with

_ = script.write_text(script_with([]), "utf-8")

# %%
cu.check("13.1", script)

# %% [markdown] tags=["solution"]
# What was wrong, and why it cost so much:

# %% tags=["solution"]
from textwrap import fill

from course_stories.capstone import faults_of

for fault in faults_of(0):
    text = f"{fault.place:9}  {fault.name}. {fault.why}"
    print(fill(text, 90, subsequent_indent=" " * 11))

# %% [markdown]
# ## Does it still learn?
#
# A loader is worth something only if the model learns from what it serves. The loss of the first task is the *surprise* at a hidden sensor, in units called nats: x nats mean that
# the model hesitates among e^x sensors. Whoever knows nothing but how often each sensor is hit hesitates among some 5,000.

# %%
cu.predict(
    "13b", "Among how many sensors does the model hesitate after two epochs?", unit="sensors"
)

# %%
from math import exp

from course_stories.capstone import Job
from course_stories.capstone.learning import learning_curves, plot_learning, recorded

earnest = Job(events, ["masked"] * 4, seconds=12)  # with the real model, on your machine
earnest.run(load(script).train)
plot_learning(recorded(), learning_curves(earnest, "12 s on your machine"))

# %%
cu.reveal("13b", exp(recorded().ends("masked")[1][-1]))

# %% [markdown]
# The orange curve is your script, which has trained in earnest for a few seconds on a tenth of the data. The blue ones show a whole training, recorded with the
# mended script. The right picture is the second task, beside a *line fit*, as physicists have long computed the direction: that of a particle which flies straight
# through the pulses, and meets them as nearly as it can at their times. With the same samples, a slow and a fast loader would give the same curve.
#
# ## Write your report
#
# A figure alone helps nobody who has to keep the script running. So write down for each change what you supposed, what you had
# measured before you changed anything, what you changed, and what you measured afterwards. A change that brought nothing belongs there too: it
# saves somebody else the same try.
#
# The form keeps every letter that you type. What you hand in is `capstone_report.md`, which appears beside this notebook.

# %%
from course_stories.capstone.report import write_report

write_report()

# %% [markdown]
# ## You now can
#
# - take over a training script and find out what it waits for,
# - mend the largest cause first, and see when the next one becomes visible,
# - show that a faster loader serves the same samples,
# - report it so that somebody else can follow.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **13a** Most say 50 and more, since it "only" reads small events. It is below 10.
# - **13b** Most say hundreds or thousands, since two epochs are few. It is about 30; 5,000 is what
#   one could say without a model.
#
# **Goes wrong.**
#
# - Whoever reads the script before measuring finds `WORKERS = 0` first, changes it, and is refused:
#   each event comes twice. That is the moment to ask what a copy of an `IterableDataset` knows of the
#   others.
# - The picture every four steps and the list that keeps all batches are found last, by those who look
#   at `main` once the workers are fast. Point at that row.
# - An edited script was not saved, and nothing has changed. Save it, and run the two cells again.
# - A changed `BATCH` is another training; a faster `neighbours` counts a pulse as its own neighbour.
#   The check refuses both, and says so.
#
# **Extra.** Other right ways: a map-style dataset with `BlockSampler`, four workers, larger chunks.

# %% [markdown]
# # Extra
#
# The core ends here, and each section needs only the core.
#
# ## Another patient
#
# There are several faults for each of the seven places, and a seed chooses among them: `hand_out(7)` writes `rescue_7.py`, in which you will find
# others. Set `script` to what it returns, and run the cells from `timed_job` on again.
#
# ## A board for a class
#
# A class can see how far each of them came. `course leaderboard`, in a terminal, prints an address, and shows a page there that follows
# the class: with `--lan` for all in the same network, else for this machine alone.
#
# Choose a name, any name, and put in the address with its token. The board gets this name, the figures of your best result and when you had it, and nothing else
# about you. It believes what it is told, and so it is for fun: an exam would run your script itself.

# %%
from course_stories.capstone import best, seed_of
from course_stories.leaderboard import post

name, board = "", ""
print(post(name, best(seed_of(script)), board))

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Background.** The board of a class, `course leaderboard --lan`: it is kept in
# `work/leaderboard.json`, and goes on from there when you start it again; with a token of your own in
# `COURSE_TOKEN`, at the same address. To take a name off, delete its line in that file; the board may
# run meanwhile. It speaks plain HTTP: in a network that you do not trust, use it on one machine. Each
# set of faults, `course capstone --seed`, has a table of its own.
