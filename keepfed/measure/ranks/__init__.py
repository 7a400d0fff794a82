"""What several ranks recorded, on one clock, and for which of them the others wait."""

from keepfed.measure.ranks.straggler import Straggler, find_straggler
from keepfed.measure.ranks.traces import RankTraces, load_ranks, save_rank
