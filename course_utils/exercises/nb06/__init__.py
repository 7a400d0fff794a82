"""Exercises of notebook 06."""
