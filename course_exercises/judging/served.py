"""Judge a stream that is divided: which worker of which rank serves what, and is it all, once?"""

import pickle
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar
from unittest.mock import patch

from torch.utils.data import DataLoader
from torch.utils.data._utils import worker as torch_worker

from course_exercises.judging.loading import WAIT_S
from course_utils.teaching.exercise import expect, refuse

Item = TypeVar("Item", bound=Hashable)
Place = tuple[int, int]  # rank, and worker of it


def serve(
    streams: Sequence[Any], workers: int, read: Callable[[Any], list[Item]]
) -> dict[Place, list[Item]]:
    """Return what each place serves; with 0 workers the main process of each rank is the place.

    Each rank has made its stream before its `workers` get copies; `read` takes an epoch from it.
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
    """What the places served of what there was to serve."""

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
        """Count the items that were served by nobody."""
        return sum(item not in self.counts for item in self.wanted)

    @property
    def all_ranks_alike(self) -> bool:
        """Tell whether something is served twice because all ranks serve the same."""
        return self.twice > 0 and self._alike(0)

    @property
    def all_workers_alike(self) -> bool:
        """Tell whether something is served twice because the workers of a rank serve the same."""
        return self.twice > 0 and self._alike(1)

    def _alike(self, which: int) -> bool:
        groups: dict[int, set[frozenset[tuple[Item, int]]]] = {}
        for place, items in self.by_place.items():
            groups.setdefault(place[1 - which], set()).add(frozenset(Counter(items).items()))
        several = len({place[which] for place in self.by_place}) > 1
        return several and all(len(group) == 1 for group in groups.values())

    def readers(self, some: Iterable[Item]) -> int:
        """Count the places that served any of these items."""
        those = set(some)
        return sum(not those.isdisjoint(items) for items in self.by_place.values())


def expect_the_same_in_real_workers(
    stream: Any,
    read: Callable[[Iterable[Any]], list[Item]],
    things: str,
    because: str,
    next_step: str,
) -> None:
    """Refuse a stream, that of the second of 2 ranks, which two real workers divide in another way.

    `read` takes its items, called `things`, from an epoch; other items come `because` of something.
    """
    try:
        pickle.dumps(stream)
    except RuntimeError:  # a lock that workers share is one for those who start them
        pass
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        refuse(
            f"Workers that are not forked get a pickled copy, and of yours there is none: {error}.",
            "Workers get what has a name in a file: functions with def, outside of any other.",
        )
    wanted = [item for items in serve([stream], 2, read).values() for item in items]
    served = read(DataLoader(stream, batch_size=None, num_workers=2, timeout=WAIT_S))
    expect(
        Counter(served) == Counter(wanted),
        f"In real workers, 2 of the second of 2 ranks, {len(served)} {things} are served instead "
        f"of {len(wanted)}: {because}.",
        next_step,
    )
