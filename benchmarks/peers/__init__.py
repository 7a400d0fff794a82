"""Our loaders beside those of other libraries: `make peers`."""
