"""Compare our loaders with other libraries: `make peers`."""
