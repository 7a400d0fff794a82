"""The version of the course; `notebooks/build.py` writes it into every notebook."""

__version__ = "0.1.0"
