"""The exercises of notebook 11."""
