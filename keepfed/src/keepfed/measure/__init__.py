"""Record, compute and draw what a training loop does with its time."""
