"""The exercises of notebook 14."""
