"""Find the line of code that costs the time: sample the stacks of the processes that load."""

from keepfed.measure.stacks.lines import HotLine, Lines, read_lines
from keepfed.measure.stacks.outside import OutsideSampler
from keepfed.measure.stacks.place import is_ours, is_own
from keepfed.measure.stacks.sampler import StackSampler

__all__ = [
    "HotLine", "Lines", "OutsideSampler", "StackSampler", "is_ours", "is_own", "read_lines",
]  # fmt: skip
