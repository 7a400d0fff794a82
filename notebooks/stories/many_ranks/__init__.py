"""What notebook 11 shows of ranks."""

from notebooks.stories.many_ranks.shares import plot_shares
