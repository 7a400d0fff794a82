"""The reference form of the datasets and loaders that the notebooks build."""
