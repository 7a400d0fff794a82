"""Check that a loader serves the right samples: each once, mixed, shared out, and undamaged.

This package imports nothing, because `attach` is loaded while torch is being imported.
"""
