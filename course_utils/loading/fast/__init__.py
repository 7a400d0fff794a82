"""The fast path: batches gathered from one mapped file by the process that trains."""

from course_utils.loading.fast.records import RecordLoader, write_records
