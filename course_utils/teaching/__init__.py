"""Support for the notebooks: predictions, exercise checks, and the strategy explorer."""
