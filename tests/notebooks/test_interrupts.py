"""Interrupting any cell of a notebook leaves no worker behind, and the notebook continues."""

import ast
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from notebooks.build import HERE
from tests.notebooks.kernel import code_cells, running_kernel, verdicts

NOTEBOOKS = sorted((HERE / "solutions").glob("*.ipynb"))

SHORTEST_INTERRUPTED_S = 0.7  # cells that run longer are interrupted
TRUNCATED_CACHE = "filecache"  # accepts truncated files after an interrupt, as notebook 07 explains
# Import everything first, because an interrupted import leaves a broken module in any kernel. This
# includes the lazy imports of matplotlib, torch and the event formats.
IMPORTED = """
import io
import course_utils as cu
import awkward, h5py, pandas, pyarrow.parquet, uproot, webdataset
import matplotlib.pyplot as plt
import torch
torch.optim.SGD(torch.nn.Linear(1, 1).parameters()).step()
for name in cu.__all__:
    getattr(cu, name)
plt.figure(layout="constrained").savefig(io.BytesIO())
plt.close()
"""
LEFT = """
cu.cleanup_workers()
import psutil
from course_utils.teaching.notebook.cleanup import _children
# a server that was interrupted while starting receives the signal later, and ends
_, left = psutil.wait_procs(_children(), timeout=20)
print(len(left), "left", *(f"\\n{p}: {p.ppid()} {p.cmdline()}" for p in left))
"""


@pytest.mark.full
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_interrupted_cell_leaves_no_worker_and_can_rerun(
    notebook: Path,
    start_method: str,
    data: Path,
    record_seconds: Callable[[str, float], None],
    tmp_path: Path,
) -> None:
    env = {"COURSE_DATA": str(data), "COURSE_SIZE": "S", "COURSE_START_METHOD": start_method}
    start, interrupted, found = time.perf_counter(), 0, {}
    ready, *cells = code_cells(notebook)
    with running_kernel(tmp_path, **env) as kernel:
        assert "Ready" in kernel.run(ready.source)
        assert not kernel.result(IMPORTED).error
        for cell in cells:
            assert not kernel.result(_imports(cell.source)).error
            patience = float("inf") if TRUNCATED_CACHE in cell.source else SHORTEST_INTERRUPTED_S
            result = kernel.result(cell.source, patience=patience)
            if result.interrupted:
                interrupted += 1
                left = kernel.run(LEFT)
                assert "0 left\n" in left, f"{cell.source}\n{left}"
                result = kernel.result(cell.source)
            assert not result.error, cell.source
            found |= dict(verdicts(result.outputs))
    record_seconds(f"{notebook.stem}, interrupted, {start_method}", time.perf_counter() - start)
    assert interrupted
    assert set(found.values()) <= {"right"}
    assert len(found) == sum(cell.source.count("cu.check(") for cell in cells)


def _imports(cell: str) -> str:
    """Return the import statements of a cell."""
    if cell.startswith("%%"):
        return ""
    statements = ast.parse(cell).body
    imports = [s for s in statements if isinstance(s, ast.Import | ast.ImportFrom)]
    return "\n".join(map(ast.unparse, imports))
