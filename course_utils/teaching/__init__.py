"""What the notebooks need to ask, check and show."""
