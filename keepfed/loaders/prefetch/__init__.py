"""Load ahead: the next batches in a thread, the next batch on the device."""

from keepfed.loaders.prefetch.cuda import CudaPrefetcher
from keepfed.loaders.prefetch.thread import ThreadPrefetcher
