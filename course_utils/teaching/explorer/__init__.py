"""Run a pipeline for real, and explore how loading strategies keep a GPU busy."""

from course_utils.teaching.explorer.explorer import (
    Explorer,
    explorer,
)
from course_utils.teaching.explorer.run_pipeline import (
    run_pipeline,
    use_cpu,
)

__all__ = [
    "Explorer",
    "explorer",
    "run_pipeline",
    "use_cpu",
]
