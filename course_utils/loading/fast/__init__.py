"""The fast path: batches gathered from one mapped file by the process that trains."""

from course_utils.loading.fast.mapped_loader import (
    MappedLoader,
)
from course_utils.loading.fast.ragged import (
    RaggedLoader,
)
from course_utils.loading.fast.records import (
    RecordLoader,
    write_records,
)

__all__ = [
    "MappedLoader",
    "RaggedLoader",
    "RecordLoader",
    "write_records",
]
