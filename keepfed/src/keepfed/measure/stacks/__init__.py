"""Find the line of code that costs the time: sample the stacks of the processes that load."""

from keepfed.measure.stacks.lines import HotLine, Lines, read_lines
from keepfed.measure.stacks.sampler import StackSampler, is_ours, is_own

__all__ = ["HotLine", "Lines", "StackSampler", "is_ours", "is_own", "read_lines"]
