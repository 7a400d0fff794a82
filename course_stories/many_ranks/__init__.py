"""What notebook 11 shows of ranks."""

from course_stories.many_ranks.shares import plot_shares
