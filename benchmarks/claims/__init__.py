"""The ratios that notebooks claim, measured: a module for each notebook."""
