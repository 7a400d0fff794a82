"""Install the course in an environment with the versions of Colab, and run its notebooks there.

    python tests/colab/run.py FOLDER [NN ...]  # FOLDER: the environment, created if missing

The environment has the packages of `versions.txt`, and the installation must not change them. Use
Python 3.12, like Colab.
Each solved notebook runs in a separate folder outside the checkout, with data of size S.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
NOTEBOOKS = ("00", "01", "02", "03", "04", "05", "09")
RUN = """
import json, sys, nbformat
from nbclient import NotebookClient
VERDICT = "application/x-course-verdict+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
data = [out.get("data", {}) for out in outputs]
verdicts = [one[VERDICT] for one in data if VERDICT in one]
wrong = [verdict["exercise"] for verdict in verdicts if verdict["status"] != "right"]
timelines = sum("image/svg+xml" in one and WIDGET in one for one in data)
print(json.dumps({"wrong": wrong, "checked": len(verdicts), "timelines": timelines}))
"""


def main(arguments: list[str]) -> int:
    """Run the notebooks, and return the number of failures."""
    folder, chosen = Path(arguments[0]), arguments[1:] or NOTEBOOKS
    python = prepare(folder)
    failed = 0
    for number in chosen:
        (path,) = (REPO / "notebooks" / "solutions").glob(f"{number}_*.ipynb")
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as home:
            environment = {**os.environ, "COURSE_SIZE": "S", "COURSE_HOME": str(folder / "home")}
            environment.pop("PYTHONPATH", None)
            command = [python, "-c", RUN, str(path)]
            how = {"cwd": home, "env": environment, "capture_output": True, "text": True}
            run = subprocess.run(command, **how)
        found = json.loads(run.stdout.splitlines()[-1]) if not run.returncode else {}
        failed += bool(run.returncode or found["wrong"])
        said = found or run.stderr.strip().splitlines()[-1]
        print(f"{path.stem}: {time.monotonic() - began:.0f} s, {said}", flush=True)
    return failed


def prepare(folder: Path) -> str:
    """Create the environment, install the wheels of this checkout, and compare the versions."""
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        pip(python, "-r", str(HERE / "versions.txt"))
    before = dict(versions(python))
    with tempfile.TemporaryDirectory() as built:
        build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", built]
        subprocess.run([*build, str(REPO / "keepfed"), str(REPO)], check=True)
        course, keepfed = sorted(map(str, Path(built).glob("*.whl")))
        pip(python, "--force-reinstall", "--no-deps", course, keepfed)
        pip(python, f"{course}[colab]", keepfed)
    after = dict(versions(python))
    changed = {name for name, version in before.items() if after[name] != version}
    if changed - {"fast-data-loaders", "keepfed"}:
        raise SystemExit(f"The installation changed {', '.join(sorted(changed))}.")
    added = sorted(after.keys() - before.keys())
    print(f"No package was changed, and {len(added)} were added: {', '.join(added)}", flush=True)
    return str(python)


def pip(python: Path, *arguments: str) -> None:
    quiet = ("-q", "--disable-pip-version-check")
    subprocess.run([str(python), "-m", "pip", "install", *quiet, *arguments], check=True)


def versions(python: Path) -> Iterator[tuple[str, str]]:
    listed = [str(python), "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]
    out = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    for one in json.loads(out):
        yield one["name"], one["version"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
