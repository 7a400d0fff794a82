"""Make the course's data on this machine, from a seed, without a network."""
