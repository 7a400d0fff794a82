"""Loaders, caches and prefetchers for trainings."""
