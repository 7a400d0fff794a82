"""Check the samples that a loader serves: each once, mixed, divided among workers, undamaged.

This package imports nothing, because `attach` is loaded while torch is being imported.
"""
