"""What several ranks recorded, on one clock, and for which of them the others wait."""

from course_utils.measure.ranks.straggler import Straggler, find_straggler
from course_utils.measure.ranks.traces import RankTraces, load_ranks, save_rank
