"""Load the fixtures; the tests of the course load the same ones."""

pytest_plugins = ["tests.fixtures"]
