"""Time the loops of this process, and record the cost of each iteration and fetch."""
