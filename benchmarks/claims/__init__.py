"""Measurements of the ratios that notebooks claim, one module per notebook."""
