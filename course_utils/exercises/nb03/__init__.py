"""The exercises of notebook 03."""
