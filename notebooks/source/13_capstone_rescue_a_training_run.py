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
# - to report what you did.
#
# **You need:** notebooks 01 to 09. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("13")

# %% [markdown] tags=["instructor"]
# **Instructor: plan.** The training and what it learns (5), first measurement (5), 13.1 (20 in the plan; give a class 40), the report (10). Nobody has to find all
# seven. For a class, hand out another set: `course capstone --seed 7` writes the script, and `--answers` shows what is wrong with it.
#
# **Board.** One column for each of the four words of the report: hypothesis, evidence, change, effect. Fill in one line together.
# What the exercise counts is processor time and emulated waiting, so that a busy laptop gets the same mark as an idle one.

# %% [markdown]
# ## A training worth rescuing
#
# Your colleague trains a small **transformer** on events of the neutrino telescope, in the manner of
# [PolarBERT](https://github.com/timinar/PolarBERT). It reads the pulses of an event as a language model reads words. First it learns without labels: the sensors of some pulses
# are hidden, and it guesses from all others which sensors these were. Then it learns where the particle came from.
#
# On the slow storage of a computing centre it starves its GPU. Here is the script:

# %%
from notebooks.stories.capstone import hand_out

script = hand_out()
print(f"{script}: {len(script.read_text().splitlines())} lines")

# %% [markdown]
# Open it: it lies beside this notebook, and a double click in the list of files on the left opens it in an editor. It is yours, and nobody
# overwrites it. Read `train` first, at its end, then `TokenStream`. All that the script gets comes from a *job*, which says where the
# events lie, and which follows the loop.
#
# `timed_job` emulates a busy Lustre and a GPU that takes 50 ms for a step. <!-- given --> It lets the script run for some seconds.

# %%
cu.predict("13a", "For what share of the time will the GPU compute (AU)?", unit="%")

# %%
from notebooks.stories.capstone import load, timed_job

events = cu.data_path("events", "S")
job = timed_job(events)
job.run(load(script).train)
job.trace.timeline()

# %%
cu.reveal("13a", 100 * job.trace.summary().au)

# %% [markdown]
# ## Rescue it
#
# Seven faults are in the script, each in another place of it. Look for the one that costs most, mend it, save the file, and run the cells above again from the
# one that makes the job. You may use everything that you learnt: the timeline, `cu.diagnose`, py-spy, a counter of your own.
#
# ### Exercise 13.1 · 20 min · ●●●
#
# Change the script as you like, and keep `train(job)`. Your targets:
#
# - each epoch serves each event of `job.training` once, in another order than the one before, and the model sees the same tokens of it,
# - AU of 90 % or more, <!-- given -->
# - the first step comes within 3 s, without what the workers themselves take to start, <!-- given -->
# - at most 40 % of the events are held at a time. <!-- given --> They stand for a data set 1,000 times as large, which would not fit into the memory. <!-- given -->
#
# The check runs two epochs, and counts the time that the processes compute, and would wait for the storage and the GPU. A right AU is worth
# 60 points, half of it 15 points less; each of the two limits is worth 20. If the samples are wrong, all of it is void.
#
# <details><summary>Hint 1: where to begin</summary>
#
# In the timeline, what is in the rows while the red gap lasts? Without workers, everything is in `main`.
#
# </details>
# <details><summary>Hint 2: no improvement?</summary>
#
# A cure shows only when it was the largest trouble. Count in milliseconds for a batch, not in percent.
#
# </details>
# <details><summary>Hint 3: seven places</summary>
#
# How events are read, what is done with each, who does it, who serves which events, what the loop does beside the step, what is kept, and what
# happens before the first step.
#
# </details>

# %% tags=["solution"]
from notebooks.stories.capstone import script_with

script.write_text(script_with([]), "utf-8")

# %%
cu.check("13.1", script)

# %% [markdown]
# ## Write your report
#
# A figure alone helps nobody who has to keep the script running. So write down for each change what you supposed, what you had
# measured before you changed anything, what you changed, and what you measured afterwards. A change that brought nothing belongs there too: it
# saves somebody else the same try.
#
# The form keeps every letter that you type. What you hand in is `capstone_report.md`, which appears beside this notebook.

# %%
from notebooks.stories.capstone import write_report

write_report()

# %% [markdown]
# ## You now can
#
# - take over a training script and find out what it waits for,
# - mend the largest cause first, and see when the next one becomes visible,
# - show that a faster loader serves the same samples,
# - report it so that somebody else can follow.

# %% [markdown]
# # Extra
#
# The core ends here, and each section stands for itself.
#
# ## A board for a class
#
# A class can see who came how far. `course leaderboard`, in a terminal, prints an address, and shows a page there that follows
# the class: with `--lan` to all in the same network, else to this machine alone.
#
# Choose a name, any name, and put in the address with its token. Of you the board gets this name, the figures of your best result and
# when you had it, and nothing else. It believes what it is told, and so it is for fun: an exam would run your script itself.

# %%
from course_utils.teaching.leaderboard import post
from notebooks.stories.capstone import best, seed_of

name, board = "", ""
print(post(name, best(seed_of(script)), board))

# %% [markdown] tags=["instructor"]
# **Instructor: the board.** It is kept in `work/leaderboard.json`, and goes on from there when you start it again; with a token of your own in
# `COURSE_TOKEN`, at the same address. To take a name off, delete its line in that file; the board may run meanwhile. It speaks plain HTTP:
# in a network that you do not trust, use it on one machine. Each set of faults, `course capstone --seed`, has a table of its own.
