"""The exercises of notebook 08."""
