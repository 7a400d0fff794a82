"""Limits on what one address may post, so that one person cannot fill the board."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable

from course_stories.leaderboard.names import looks_of

# a class may share one address, for example on a JupyterHub
POSTS_A_MINUTE = 100
NAMES = 100


class PostLimits:
    """Counts posts and names by address. The counts are lost when the server stops."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with empty counts."""
        self._clock = clock
        self._posts = defaultdict[str, deque[float]](lambda: deque(maxlen=POSTS_A_MINUTE))
        self._names = defaultdict[str, set[str]](set)

    def refusal(self, address: str, name: object) -> str:
        """Count a post, and return why it exceeds a limit, or ""."""
        posts, names, now = self._posts[address], self._names[address], self._clock()
        if len(posts) == POSTS_A_MINUTE and now - posts[0] < 60:
            return f"Your address sent {POSTS_A_MINUTE} posts in a minute. Wait a minute."
        posts.append(now)
        looks = looks_of(name) if isinstance(name, str) else ""
        if looks not in names and len(names) >= NAMES:
            return f"Your address has posted {NAMES} names. Post under one of them."
        names.add(looks)
        return ""
