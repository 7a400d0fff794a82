"""Put into the wheel what learners read: notebooks, recordings, the book."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = "notebooks", "docs/book/built"
LEFT_OUT = shutil.ignore_patterns("source", "*.py", "claims.toml", "__pycache__", ".*", "*.pyc")


class BuildWithTexts(build_py):
    """Copies them beside the package; a checkout that is installed with `-e` has them already."""

    def run(self) -> None:
        """Build the packages, then copy."""
        super().run()
        if self.editable_mode:
            return
        for name in SHIPPED:
            source = Path(name)
            target = Path(self.build_lib, "course_utils", "shipped", source.name)
            if source.is_dir():
                shutil.copytree(source, target, ignore=LEFT_OUT, dirs_exist_ok=True)
            elif source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)


setup(cmdclass={"build_py": BuildWithTexts})
