"""Snippets of lecture notes, run as they are printed and mended."""

from notebooks.stories.snippets.snippets import (
    compare_snippets,
    numbered_shards,
)

__all__ = [
    "compare_snippets",
    "numbered_shards",
]
