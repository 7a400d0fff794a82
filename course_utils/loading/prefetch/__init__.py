"""Load ahead: the next batches in a thread, the next batch on the device."""

from course_utils.loading.prefetch.cuda import CudaPrefetcher
from course_utils.loading.prefetch.thread import ThreadPrefetcher
