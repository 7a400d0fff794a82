"""The accelerator and the storage, real or emulated, and the clock that they tell the time by."""
