"""Real and emulated accelerators and storage, and the clocks that they use."""
