"""Traces of several ranks on one clock, and the rank that the others wait for."""

from keepfed.measure.ranks.straggler import Straggler, find_straggler
from keepfed.measure.ranks.traces import RankTraces, load_ranks, save_rank
