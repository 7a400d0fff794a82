"""Host memory that is used again, to hold what is on the emulated device."""

from __future__ import annotations

from collections import deque

import torch


class HostBlocks:
    """Copies of tensors, made in the memory of earlier ones.

    The system takes longer to hand out 20 MB of new memory than a GPU takes to fetch them.
    """

    def __init__(self, *, keep: int = 8):
        """Keep up to `keep` blocks that nobody uses, the latest."""
        self._keep = keep
        self._spare: list[torch.Tensor] = []
        self._returned: deque[torch.Tensor] = deque()  # finalizers may run anywhere: only append

    def copy(self, source: torch.Tensor) -> torch.Tensor:
        """Return a copy of `source`, in a block of up to twice its size; not for threads."""
        while self._returned:
            storage = self._returned.popleft().untyped_storage()
            self._spare.append(torch.empty(0, dtype=torch.uint8).set_(storage))
        del self._spare[: -self._keep]
        size = source.nbytes
        fits = [i for i, block in enumerate(self._spare) if size <= block.nbytes <= 2 * size]
        block = self._spare.pop(fits[-1]) if fits else torch.empty(size, dtype=torch.uint8)
        # By numpy, in this thread: torch would start others, which then spin for milliseconds.
        block[:size].numpy()[:] = source.contiguous().view(-1).view(torch.uint8).numpy()
        return block[:size].view(source.dtype).view(source.shape)

    def give_back(self, copy: torch.Tensor) -> None:
        """Take back a copy that nobody will use any more."""
        self._returned.append(copy)
