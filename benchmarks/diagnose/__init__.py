"""Loops whose ailment is known: what `diagnose` says of them, and what its advice gains."""

from benchmarks.diagnose import by_cause, loaders, pictures, tables, text

__all__ = ["by_cause", "loaders", "pictures", "tables", "text"]  # each registers its loops
