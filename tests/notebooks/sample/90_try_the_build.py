# %% [markdown]
# # 90 · Try the build
#
# **You will do:** run every kind of cell of the course's notebooks.
#
# **You will learn:** whether the build, the magic, the checks and the forms work together.
#
# **You need:** nothing. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("90")

# %% [markdown] tags=["instructor"]
# For the instructor: say nothing.

# %%
import sample_checks
from torch.utils.data import DataLoader

# %%
cu.predict("90a", "How many batches do 12 numbers make?", unit="batches")

# %% [markdown]
# ### Exercise 90.1 · 1 min · ●○○ <!-- timed -->
#
# Squares from a worker.
#
# <details><summary>Hint</summary>
#
# Multiply the index by itself.
#
# </details>

# %%
# %%worker_module sample_squares
import os

from torch.utils.data import Dataset


class Squares(Dataset):
    """The squares of 0 to 11, and the process that computed them."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[int, int]:
        ### BEGIN SOLUTION
        square = index * index
        return square, os.getpid()
        ### END SOLUTION


# %%
cu.check("90.1", Squares)

# %%
batches = 3  ### SOLUTION

# %%
cu.check("90.2", batches)

# %%
cu.reveal("90a", 3)

# %% tags=["solution"]
loader = DataLoader(Squares(), batch_size=4, num_workers=2)
print([squares.tolist() for squares, _ in loader])

# %% [markdown]
# You now can: build a notebook.
