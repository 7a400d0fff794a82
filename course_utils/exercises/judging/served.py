"""Check which worker of which rank serves which part of a stream."""

import pickle
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar
from unittest.mock import patch

from torch.utils.data import DataLoader
from torch.utils.data._utils import worker as torch_worker

from course_utils.exercises.judging.loading import WAIT_S
from course_utils.teaching.exercise import expect, refuse

Item = TypeVar("Item", bound=Hashable)
Place = tuple[int, int]  # rank, and worker of it


def serve(
    streams: Sequence[Any], workers: int, read: Callable[[Any], list[Item]]
) -> dict[Place, list[Item]]:
    """Return the items that each worker of each rank serves.

    Args:
        streams: The stream of each rank, created in its main process.
        workers: Workers of each rank. With 0, the main process of the rank reads.
        read: Reads one epoch of a stream.
    """
    served = {}
    for rank, stream in enumerate(streams):
        for worker in range(max(workers, 1)):
            info = torch_worker.WorkerInfo(
                id=worker, num_workers=workers, seed=worker, dataset=stream
            )
            with patch.object(torch_worker, "_worker_info", info if workers else None):
                served[rank, worker] = read(stream)
    return served


@dataclass(frozen=True)
class Served(Generic[Item]):
    """Items that the workers served, and items that they should serve."""

    by_place: Mapping[Place, Sequence[Item]]
    wanted: Collection[Item]

    @cached_property
    def counts(self) -> Counter[Item]:
        """Count how often each item was served."""
        return Counter(item for items in self.by_place.values() for item in items)

    @cached_property
    def twice(self) -> int:
        """Count the items that were served more than once."""
        return sum(count > 1 for count in self.counts.values())

    @cached_property
    def lost(self) -> int:
        """Count the items that no worker served."""
        return sum(item not in self.counts for item in self.wanted)

    @property
    def all_ranks_alike(self) -> bool:
        """Return whether items are served twice because all ranks serve the same items."""
        return self.twice > 0 and self._alike(0)

    @property
    def all_workers_alike(self) -> bool:
        """Return whether items are served twice because the workers of a rank serve the same."""
        return self.twice > 0 and self._alike(1)

    def _alike(self, which: int) -> bool:
        groups: dict[int, set[frozenset[tuple[Item, int]]]] = {}
        for place, items in self.by_place.items():
            groups.setdefault(place[1 - which], set()).add(frozenset(Counter(items).items()))
        several = len({place[which] for place in self.by_place}) > 1
        return several and all(len(group) == 1 for group in groups.values())

    def readers(self, some: Iterable[Item]) -> int:
        """Count the workers that served any of these items."""
        those = set(some)
        return sum(not those.isdisjoint(items) for items in self.by_place.values())


def expect_the_same_in_real_workers(stream: Any) -> None:
    """Refuse a stream of numbers for rank 1 of 2 that two real workers divide differently."""

    def read(epoch: Iterable[Any]) -> list[int]:
        return [*map(int, epoch)]

    try:
        pickle.dumps(stream)
    except RuntimeError:  # a lock that workers share is one for those who start them
        pass
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        refuse(
            "Workers that are not forked get a pickled copy, but yours cannot be pickled: "
            f"{error}.",
            "Define functions with def, outside any other function, and not with lambda.",
        )
    wanted = [item for items in serve([stream], 2, read).values() for item in items]
    served = read(DataLoader(stream, batch_size=None, num_workers=2, timeout=WAIT_S))
    expect(
        Counter(served) == Counter(wanted),
        f"Two real workers of rank 1 serve {len(served)} events instead of {len(wanted)}, "
        "because get_worker_info() returns something else there.",
        "Call get_worker_info() inside __iter__, because only __iter__ runs in the worker.",
    )
