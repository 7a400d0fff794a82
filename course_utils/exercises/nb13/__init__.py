"""Exercise of the capstone: a training script with seven faults, and the fixed script."""
