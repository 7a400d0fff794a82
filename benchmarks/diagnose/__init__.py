"""Loops with a known cause, to test the cause, advice and gain that `diagnose` reports."""

from benchmarks.diagnose import by_cause, loaders, pictures, tables, text

__all__ = ["by_cause", "loaders", "pictures", "tables", "text"]  # each registers its loops
