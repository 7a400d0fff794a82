"""The file formats side by side, on this disk and on emulated storage."""

from notebooks.stories.formats.drawing import (
    TABLE_STYLE,
)
from notebooks.stories.formats.table import (
    compare_formats,
)

__all__ = [
    "TABLE_STYLE",
    "compare_formats",
]
