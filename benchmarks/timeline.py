"""Measure how fast the timeline draws 10,000 spans in Chromium, and the size of a page."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Page, sync_playwright

from keepfed.measure.picture import Control, Picture, Timeline, TimelineGrid, key, states
from keepfed.measure.simulate import Pipeline, simulate
from keepfed.measure.trace import Trace

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
STEPS = 1_667  # with six spans each
FRAMES = 120
REPEATS = 5
# Measure one call, and the interval between frames when it is called once per frame.
MEASURE = """
const three = (times) => {
    const sorted = [...times].sort((a, b) => a - b), n = sorted.length;
    return [sorted[n >> 1], sorted[Math.floor(n * 0.95)], sorted[n - 1]];
};
const frames = async (count, action) => {
    const calls = [], intervals = [];
    let last = await new Promise(requestAnimationFrame);
    for (let n = 0; n < count; n++) {
        const start = performance.now();
        action(n, count);
        calls.push(performance.now() - start);
        const now = await new Promise(requestAnimationFrame);
        intervals.push(now - last);
        last = now;
    }
    return [three(calls), three(intervals)];
};
"""
START = """
const start = performance.now();
mountAll();
const host = document.querySelector("script.course-timeline").nextSibling;
window.view = host.shadowRoot.querySelector(".tl").timeline;
await view.ready;
await new Promise(requestAnimationFrame);
window.firstPicture = performance.now() - start;
"""
MOVES = {
    "pan, half of the run visible": "view.look(0, view.domain / 2); view.pan(n / count)",
    "zoom, whole run to 1 %": "view.look(0, view.domain * 100 ** (-n / count))",
    "toggle between two such runs": "view.choose('show', ['one', 'other'][n % 2])",
}


def main() -> None:
    """Measure in Chromium and print a table."""
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    if executable is None:
        print("The timeline was not measured, because Chromium is missing. Install it.")
        return
    runs = {"one": _run(seed=0), "other": _run(seed=1)}
    widget, grid = Timeline(runs), _grid()
    print(f"Timeline of {len(runs['one'].spans):,} spans in Chromium, no GPU, 1,000 pixels wide")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        page = browser.new_page(viewport={"width": 1_000, "height": 800})
        first = median(_first_picture_ms(page, Path(folder), widget) for _ in range(REPEATS))
        print(f"  first picture {first:6.0f} ms (limit 200): unpack, lay out, draw, next frame")
        print(f"{'JS per frame, ms':>53}{'between frames, ms':>27}")
        print(" " * 32 + f"{'median':>9}{'95 %':>9}{'max':>9}" * 2)
        for name, move in MOVES.items():
            _print_row(name, page.evaluate(_script(move)))
        browser.close()
    size = len(grid.to_html())
    print(f"  page with 216 states of 40 batches: {size / 1e3:.0f} kB (limit 200), ", end="")
    print(f"{len(grid.payload) / 1e3:.0f} kB of traces, before base64")


def _run(*, seed: int) -> Trace:
    return simulate(
        Pipeline(
            read_ms=20,
            decode_ms=8,
            transform_ms=2,
            collate_ms=3,
            copy_ms=2,
            step_ms=8,
            num_workers=4,
            steps=STEPS,
            jitter=0.4,
            seed=seed,
        )
    )


def _grid() -> TimelineGrid:
    controls = [
        Control("workers", "Workers", [0, 1, 2, 4, 6, 8]),
        Control("load", "Load time (ms)", [20, 40, 80, 160, 240, 320]),
        Control("step", "Step time (ms)", [10, 20, 50, 100, 150, 200]),
    ]
    pictures = {}
    for state in states(controls):
        workers, load, step = (int(state[name]) for name in ("workers", "load", "step"))
        run = Pipeline(
            read_ms=0.6 * load,
            decode_ms=0.4 * load,
            copy_ms=5,
            step_ms=step,
            num_workers=workers,
            jitter=0.3,
        )
        pictures[key(controls, state)] = Picture([simulate(run)])
    return TimelineGrid(controls, pictures)


def _first_picture_ms(page: Page, folder: Path, widget: TimelineGrid) -> float:
    """Return the time from the start of the module to the first frame with the picture."""
    html = widget.to_html().replace("\nmountAll();", START)
    (folder / "page.html").write_text(html, "utf-8")
    page.goto((folder / "page.html").as_uri())
    page.wait_for_function("() => window.firstPicture")
    return float(page.evaluate("() => firstPicture"))


def _script(move: str) -> str:
    action = f"(n, count) => {{ {move}; view.draw(); }}"
    return f"async () => {{ {MEASURE} return frames({FRAMES}, {action}); }}"


def _print_row(name: str, measured: list[list[float]]) -> None:
    columns: list[Any] = [value for three in measured for value in three]
    print(f"  {name:<30}" + "".join(f"{value:9.1f}" for value in columns))


if __name__ == "__main__":
    main()
