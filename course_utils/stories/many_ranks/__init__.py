"""A plot of ranks for notebook 11."""

from course_utils.stories.many_ranks.shares import plot_shares
