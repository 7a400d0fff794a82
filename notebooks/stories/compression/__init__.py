"""Where compression pays: on slow storage it does, on fast storage it does not."""

from notebooks.stories.compression.compression import (
    compare_codecs,
)

__all__ = [
    "compare_codecs",
]
