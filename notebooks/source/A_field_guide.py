# %% [markdown]
# # A · Look up what goes wrong
#
# **You will do:** paste a message, read what it means, and run what causes it.
#
# **You will learn**
#
# - what a message says, why, and what to do,
# - how to ask from a terminal.
#
# **You need:** nothing; it is there to be looked up. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("A")

# %% [markdown]
# ## Ask
#
# Paste the last lines of a traceback into the box, or write a few words, and press Enter.

# %%
from notebooks.stories.field_guide import Search

Search("DataLoader worker (pid 4711) is killed by signal: Bus error.")

# %% [markdown]
# ## You now can
#
# - look up what goes wrong.
