"""The wall of a class: its guesses, its pace, its mistakes and its results on one page."""
