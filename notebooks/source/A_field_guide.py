# %% [markdown]
# # A · Look up what goes wrong
#
# **You will do:** paste a message, read what it means, and run the program that causes it, broken and mended.
#
# **You will learn**
#
# - to find the one line of a long log that says something,
# - what to do about it,
# - what to do when nobody knows the message.
#
# **You need:** nothing; this is to be looked up, not read from the beginning to the end. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("A")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *2 min* **Ask.** Let somebody paste the last error of their own work into the box. Read the entry
#   aloud, and run it.
# - *1 min* **Which line of a log?** Hide the answer, and ask which of the lines tells something.
# - *2 min* **Run what goes wrong.** Show the program that makes no message at all, then the one that
#   hangs; unfold the difference.
#
# **Board.** Two tracebacks below each other, that of the worker and that of the loop. Draw an arrow
# from the second to the first: read upwards.
#
# **Goes wrong.**
#
# - Nothing is found. Show what to do then, at the end of the second section: `num_workers=0`,
#   `faulthandler`, `py-spy dump`.
# - An entry needs what this machine lacks, such as a GPU or fork. It says so, and is not run.
# - A run of an entry takes long. It has a time limit, in a process of its own: wait, or interrupt the
#   cell; nothing stays behind.
#
# **Background.** Not a notebook to work through: show it at the end of a day, and whenever somebody
# meets an error in another one. `course why "TEXT"` is the same in a terminal.

# %% [markdown]
# ## Ask
#
# Copy the end of a traceback into the box, or write a few words, and look it up. Below each entry is a button that runs it.

# %%
from course_stories.field_guide import Search

Search("DataLoader worker (pid 46794) is killed by signal: Bus error.")

# %% [markdown]
# The entries are in no model and on no server, only in files of this project: one for each thing that goes wrong, in `keepfed/field_guide`. Nothing
# that you paste leaves this machine. In a terminal the same is
#
# ```bash
# course why "is killed by signal: Bus error"
# course why < train.log
# ```
#
# ## Which line of a log?
#
# A worker has its own traceback, and the loop that waits for it has another one. The last line is often the one that says least:

# %%
from keepfed.field_guide import look_up

log = """
AttributeError: Can't get attribute 'Events' on <module '__main__' (built-in)>
RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly
"""
print(*look_up(log))

# %% [markdown]
# The second line only tells that a worker is gone. Many causes end like that, so the guide passes over it wherever it finds something better. Alone,
# it means: read further up.

# %%
print(*look_up("RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly"))

# %% [markdown]
# And if the guide knows nothing, it says so. Then
#
# - run again with `num_workers=0`: the traceback now leads to your own line,
# - for a crash of a library, run `python -X faulthandler train.py`,
# - for a loop that hangs, look where it is: `py-spy dump --pid` with the number of the process, and of its workers,
# - for a loop that is only slow, there is no message to look up: `cu.diagnose(loader, step)`.
#
# ## Run what goes wrong
#
# Each entry is a small program as people write it, with the few lines that mend it. `show` runs both, each in a process of its own
# that may hang or die. This one makes no message at all, which is the worst kind:

# %%
from course_stories.field_guide import show

show("same_random_numbers")

# %% [markdown]
# Unfold the program to see the difference: lines with a minus are what people write, lines with a plus are what mends it.
#
# This one hangs. What explains it is printed by the worker, and no error ever reaches the loop:

# %%
show("unpicklable_sample")

# %% [markdown]
# ## All entries
#
# By what you notice. Unfold a title to read it, and run it with `show`. If it needs what your machine lacks, such as a GPU, `show`
# says so instead.

# %%
from course_stories.field_guide import pages

pages()

# %% [markdown]
# ## You now can
#
# - find out what a message means, here and in a terminal,
# - tell a message that says something from one that only says that something is gone,
# - run a failure and its remedy before you change your own code.
