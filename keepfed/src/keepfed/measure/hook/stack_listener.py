"""Sample the stacks of the workers of a loader."""

from __future__ import annotations

from keepfed.measure.hook.loader_hook import Listener
from keepfed.measure.stacks import StackSampler


class StackListener(Listener):
    """A listener that samples each worker for as long as it lives."""

    def __init__(self, sampler: StackSampler):
        """Prepare a listener that samples as `sampler` does."""
        self._like = sampler.folder, sampler.name, sampler.reader

    def worker_started(self, worker_id: int) -> None:
        """Start to sample this worker."""
        StackSampler(*self._like).start()

    def failed(self, error: Exception) -> None:
        """Ignore the error, which loses only the lines of this worker."""
