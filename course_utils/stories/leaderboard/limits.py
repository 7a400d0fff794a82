"""Limits on what one client may post, so that it cannot fill or slow down the server of a class."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable


class PostLimits:
    """Counts posts and names by client. The counts are lost when the server stops."""

    def __init__(
        self,
        burst: int = 100,
        a_second: float = 100 / 60,
        # a class may share one address, for example on a JupyterHub
        names: int = 100,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Allow `burst` posts at once, then `a_second`, under at most `names` names."""
        self._burst, self._a_second, self._most = burst, a_second, names
        self._clock = clock
        self._left = defaultdict[str, tuple[float, float]](lambda: (burst, clock()))
        self._names = defaultdict[str, set[str]](set)

    def refusal(self, client: str, name: object) -> str:
        """Count a post, and return why it exceeds a limit, or ""."""
        (left, when), names, now = self._left[client], self._names[client], self._clock()
        left = min(self._burst, left + (now - when) * self._a_second)
        self._left[client] = max(left - 1, left % 1), now
        if left < 1:
            return "You sent too many posts. Wait a minute."
        folded = name.casefold() if isinstance(name, str) else ""
        if folded not in names and len(names) >= self._most:
            return f"Your address has posted {self._most} names. Post under one of them."
        names.add(folded)
        return ""
