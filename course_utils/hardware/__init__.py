"""The accelerator and the storage, real or emulated, behind one interface."""
