"""Prefetch batches in a thread, or copy them to the device in advance."""

from keepfed.loaders.prefetch.cuda import CudaPrefetcher
from keepfed.loaders.prefetch.thread import ThreadPrefetcher
