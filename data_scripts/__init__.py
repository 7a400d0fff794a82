"""Create the data of the course on this machine, from a seed, without a network."""
