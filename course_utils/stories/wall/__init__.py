"""The wall of a class: its guesses against the measured values."""
