# %% [markdown]
# # A · Look up what goes wrong
#
# **You will do:** paste an error message, read what it means, and run the program that causes it, both
# broken and fixed.
#
# **You will learn:**
# - to find the one useful line in a long log;
# - what to do about it;
# - what to do if the guide does not know your message.
#
# **You need:** nothing. Use this notebook as a reference.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("A")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *2 min* **Look up a message.** Somebody pastes the last error of their own work into the box. Read
#   the entry aloud, and run it.
# - *1 min* **Which line of a log?** Hide the answer, and ask which line is useful.
# - *2 min* **Run what goes wrong.** Show the program that prints no message at all, and then the one that
#   hangs. Unfold the difference.
#
# **Leave out.** All programs except one.
#
# **Board.** Write two tracebacks below each other, one from the worker and one from the loop. Draw an
# arrow from the second to the first: read upwards.
#
# **Goes wrong.**
#
# - The guide finds nothing. Show what to do then, at the end of the second section: `num_workers=0`,
#   `faulthandler`, `py-spy dump`.
# - An entry needs something that this machine lacks, such as a GPU or fork. Then `show` prints the reason
#   and does not run it.
# - An entry takes long. Wait, or interrupt the cell. It runs in a subprocess with a time limit, and no
#   process remains.
#
# **Background.** Do not work through this notebook. Show it at the end of a day, and whenever somebody
# meets an error in another notebook. `keepfed why "TEXT"` does the same in a terminal.

# %% [markdown]
# ## Look up a message
#
# Paste the end of a traceback into the box, or write a few words, and search. Each entry has a button
# that runs its program.

# %%
from course_utils.stories.field_guide import Search

Search("DataLoader worker (pid 46794) is killed by signal: Bus error.")

# %% [markdown]
# The guide consists of files in this project, one for each problem, in `keepfed/src/keepfed/field_guide`. It uses no
# server and no language model, so the text that you paste stays on this machine. In a terminal, use
#
# ```bash
# keepfed why "is killed by signal: Bus error"
# keepfed why < train.log
# ```
#
# ## Which line of a log?
#
# A worker prints its own traceback, and the loop that waits for it prints another one. The last line is
# often the least useful one:

# %%
from keepfed.field_guide import look_up

log = """
AttributeError: Can't get attribute 'Events' on <module '__main__' (built-in)>
RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly
"""
print(*look_up(log))

# %% [markdown]
# The second line says only that a worker has ended, and this has many possible causes. The guide ignores
# the line if it finds a more useful one. If it is the only line you have, the cause is further up in the
# log:

# %%
print(*look_up("RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly"))

# %% [markdown]
# If the guide does not know a message, it prints this, too. Then
#
# - run the program again with `num_workers=0`, so that the traceback leads to your own line;
# - if a library crashes, run `python -X faulthandler train.py`;
# - if the loop hangs, run `py-spy dump --pid` with the process ID of the program, and then of each worker;
# - if Slurm ended the job, run `sacct -j JOBID --format=State,ExitCode,MaxRSS`, which shows for example
#   `OUT_OF_MEMORY`, `TIMEOUT` or `PREEMPTED`;
# - if the loop is only slow, there is no message. Use `cu.diagnose(loader, step)`.
#
# ## Run what goes wrong
#
# Each entry has a small program, as people write it, and the few lines that fix it. `show` runs both
# versions in subprocesses, which may hang or crash. The next program prints no message at all, which is
# the worst case:

# %%
from course_utils.stories.field_guide import show

show("same_random_numbers")

# %% [markdown]
# Unfold the program to see the difference. People write the lines with a minus, and the lines with a plus
# fix the program.
#
# The next program hangs. The worker prints the reason, but the loop never receives an error:

# %%
show("unpicklable_sample")

# %% [markdown]
# ## All entries
#
# The entries are sorted by their symptom. Unfold a title to read the entry, and run it with `show`. If it
# needs something that your machine lacks, such as a GPU, `show` prints this instead.

# %%
from course_utils.stories.field_guide import pages

pages()

# %% [markdown]
# ## You now can
#
# - find out what a message means, here and in a terminal;
# - distinguish a message with a cause from a message that says only that a process has ended;
# - run a failure and its fix before you change your own code.
