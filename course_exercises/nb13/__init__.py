"""The capstone: a training script with seven faults, and what it comes to once they are mended."""
