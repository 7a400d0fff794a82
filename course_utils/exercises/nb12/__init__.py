"""The exercises of notebook 12."""
