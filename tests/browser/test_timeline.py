"""The timeline in a real browser: picture, keys, mouse and screen reader output."""

import base64
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from keepfed.measure.picture import LOOKS, Control, Picture, Timeline, TimelineGrid, key, states
from keepfed.measure.picture.model import pack
from keepfed.measure.picture.timeline import module_source
from keepfed.measure.simulate import Pipeline, simulate
from keepfed.measure.trace import Trace

pytestmark = pytest.mark.browser

BASE = {"decode_ms": 20, "transform_ms": 15, "collate_ms": 10, "copy_ms": 12, "step_ms": 30}
RUNS = {
    "naive": {"num_workers": 0},
    "workers": {"num_workers": 4, "start_up_ms": 50.0},
    "overlap": {"num_workers": 4, "pinned": True, "overlap": True, "sync": False},
}
DARK = re.compile(r"\bdark\b")


def run(name: str, *, read_ms: int = 40, steps: int = 20) -> Trace:
    return simulate(Pipeline(**BASE, **RUNS[name], read_ms=read_ms, steps=steps))


@pytest.fixture(scope="module")
def grid() -> TimelineGrid:
    controls = [Control("run", "Run", list(RUNS)), Control("read", "Reading", [40, 80])]
    pictures = {
        key(controls, state): Picture([run(state["run"], read_ms=state["read"])], [state["run"]])
        for state in states(controls)
    }
    return TimelineGrid(controls, pictures)


@pytest.fixture
def page(guarded_page) -> Page:
    """Return a page for files; the test fails after an external request or an error."""
    guarded_page.page.set_default_timeout(20_000)
    yield guarded_page.page
    assert guarded_page.trouble() == []


@pytest.fixture
def show(page, tmp_path):
    def open_page(html: str) -> Locator:
        (tmp_path / "page.html").write_text(f"<!doctype html>{html}", "utf-8")
        page.goto((tmp_path / "page.html").as_uri())
        timeline = page.locator(".tl").first
        timeline.wait_for(state="attached")
        return timeline

    return open_page


def on_page(widget: TimelineGrid, *, style: str = "", before: str = "") -> str:
    return f"<body style='{style}'>{before}{widget.to_fragment()}"


def view(timeline: Locator) -> list[float]:
    """Return the first and the last visible ms, after all pending drawing."""
    timeline.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    return [float(end) for end in timeline.get_attribute("data-view").split(",")]


def test_timeline_zooms_out_from_some_steps_to_the_run(show) -> None:
    trace = run("naive")
    timeline = show(Timeline(trace, steps=3).to_html())
    end_ms = float(timeline.evaluate("root => root.timeline.domain"))
    assert view(timeline)[0] == 0
    assert view(timeline)[1] == pytest.approx(3 / 20 * end_ms, rel=0.1)
    timeline.get_by_role("button", name="Whole run").click()
    assert view(timeline) == pytest.approx([0, end_ms], abs=1e-3)


def test_switch_updates_picture_sentence_figures_and_table(show, grid):
    timeline = show(grid.to_html())
    expect(timeline.get_by_role("group", name="Run", exact=True)).to_be_visible()
    expect(timeline.get_by_role("group", name=re.compile("Naive: the GPU"))).to_be_visible()
    expect(timeline.get_by_role("list", name="Stages")).to_be_visible()
    expect(timeline.locator("canvas")).to_have_attribute("aria-hidden", "true")
    timeline.get_by_text("Show as a table").click()
    rows = timeline.locator("tbody tr")
    assert [row.split("\t")[0] for row in rows.all_inner_texts()] == ["main", "copy", "gpu"]
    expect(timeline.locator("caption")).to_contain_text(re.compile(r"in \d+ gaps"))
    for name, lanes in (("overlap", 7), ("workers", 7), ("naive", 3)):
        timeline.get_by_role("radio", name=name).check()
        trace = grid.pictures[f"run={name}|read=40"].traces[0]
        busy = trace.summary().utilization
        expect(timeline).to_have_attribute("data-state", f"run={name}|read=40")
        assert float(timeline.get_attribute("data-util")) == pytest.approx(busy, abs=2e-3)
        sentence = f"{name.title()}: the GPU computes {100 * busy:.0f} %"
        expect(timeline.get_by_role("status")).to_contain_text(sentence)
        expect(timeline.locator(".sentence")).to_contain_text(sentence)
        expect(timeline.locator(".facts dd").first).to_have_text(f"{100 * busy:.0f} %")
        expect(rows).to_have_count(lanes)


PIXELS = """(root, everywhere) => {
    const { scene, canvas } = root.timeline, zoom = canvas.width / scene.width;
    const row = (scene.panels[0].lanes.at(-1).y + 4) * zoom;  // of the GPU, the last lane
    const { data } = canvas.getContext("2d").getImageData(...(everywhere
        ? [0, 0, canvas.width, canvas.height]
        : [scene.left * zoom, row, (scene.right - scene.left) * zoom, 1]));
    const counts = {};
    for (let i = 0; i < data.length; i += 4) {
        const hex = "#" + [0, 1, 2].map(k => data[i + k].toString(16).padStart(2, "0")).join("");
        counts[hex] = (counts[hex] ?? 0) + 1;
    }
    return counts;
}"""


def test_canvas_uses_palette_and_gpu_lane_shows_utilization(show):
    trace = run("naive", steps=3)
    timeline = show(Timeline(trace).to_html())
    view(timeline)
    pixels = timeline.evaluate(PIXELS, True)
    seen = {stage for stage, look in LOOKS.items() if pixels.get(look.color, 0) > 100}
    assert seen == set(LOOKS) - {"wait"}  # waiting is drawn pale
    for stage in seen - {"compute"}:
        assert pixels.get(LOOKS[stage].ink, 0) > 10, f"{stage} has lost its pattern"
    row = timeline.evaluate(PIXELS, False)
    share = row[LOOKS["compute"].color] / sum(row.values())
    assert share == pytest.approx(trace.summary().utilization, abs=0.03)


def test_keys_move_switches_and_a_burst_is_announced_once(show, grid):
    timeline = show(grid.to_html())
    keys = timeline.page.keyboard
    timeline.get_by_role("radio", name="naive").focus()
    keys.press("ArrowRight")
    expect(timeline).to_have_attribute("data-state", "run=workers|read=40")
    expect(timeline.get_by_role("radio", name="workers")).to_be_focused()
    keys.press("Tab")
    expect(timeline.get_by_role("status")).to_contain_text("Workers")
    timeline.evaluate(  # the test runs delayed calls itself, because a busy machine has no pauses
        """root => {
            const later = [];
            window.setTimeout = (call) => later.push(call);
            window.clearTimeout = (number) => delete later[number - 1];
            window.goOn = async () => { for (const call of later) await call?.(); };
            window.spoken = [];
            new MutationObserver(() => spoken.push(root.querySelector(".spoken").textContent))
                .observe(root.querySelector(".spoken"), { childList: true });
        }"""
    )
    for step in ("ArrowRight", "ArrowLeft", "ArrowRight"):
        keys.press(step)
    expect(timeline.get_by_role("radio", name="80")).to_be_focused()
    timeline.evaluate("() => goOn()")
    sentence = timeline.locator(".sentence").inner_text()
    expect(timeline.get_by_role("status")).to_have_text(sentence)
    assert timeline.evaluate("() => spoken") == [sentence]


def test_picture_keys_do_not_reach_the_page(show, grid):
    listen = "<script>addEventListener('keydown', e => heard.push(e.key)); heard = []</script>"
    timeline = show(on_page(grid, before=listen))
    keys = timeline.page.keyboard
    timeline.locator(".stage").focus()
    whole = view(timeline)

    def press(*names):
        for name in names:
            keys.press(name)
        return view(timeline)

    zoomed = press("+", "+")
    assert whole[0] < zoomed[0] < zoomed[1] < whole[1]
    moved = press("ArrowRight")
    assert moved[0] > zoomed[0]
    assert moved[1] - moved[0] == pytest.approx(zoomed[1] - zoomed[0], abs=1e-3)
    assert press("ArrowLeft") == pytest.approx(zoomed, abs=1e-3)
    assert press("Home")[0] == 0
    assert press("End")[1] == whole[1]
    assert press("0") == whole
    press("n", "n")
    story = re.compile(r"^Batch 1: .*read 40 ms \(main\)")
    expect(timeline.get_by_role("status")).to_contain_text(story)
    press("p")
    expect(timeline).to_have_attribute("data-batch", "0")
    press("Escape")
    expect(timeline).to_have_attribute("data-batch", "-1")
    # with the focus on a button, start at the visible batches
    timeline.get_by_role("button", name="Zoom in").focus()
    press("0", "+", "+", "+", "End", "n")
    followed = int(timeline.get_attribute("data-batch"))
    assert followed > 1
    press("n")
    expect(timeline).to_have_attribute("data-batch", str(followed + 1))
    assert timeline.evaluate("() => heard") == []
    timeline.locator(".stage").focus()
    keys.press("x")
    assert timeline.evaluate("() => heard") == ["x"]


def test_mouse_zooms_drags_and_finds_batches_on_scaled_slide(show):
    style = "width:900px;min-height:3000px;transform:scale(.5);transform-origin:20px 30px"
    timeline = show(on_page(Timeline(run("naive", steps=4)), style=style))
    page, whole = timeline.page, view(timeline)
    x, y = timeline.evaluate(
        """root => {
            const { scene } = root.timeline, { trace, lanes } = scene.panels[0];
            const { y, height, lane } = lanes.at(-1), middle = (lane.start[2] + lane.end[2]) / 2;
            return [scene.left + middle / trace.end * (scene.right - scene.left), y + height / 2];
        }"""
    )
    box = timeline.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + x * 0.5, box["y"] + y * 0.5)
    expect(timeline.locator(".tip")).to_contain_text("gpu: compute, batch 2")
    expect(timeline).to_have_attribute("data-batch", "2")
    timeline.evaluate("root => root.timeline.show()")  # a new picture clears the old sentence
    expect(timeline.locator(".tip")).to_be_hidden()
    page.mouse.move(1, 1)
    timeline.locator("canvas").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    expect(timeline).not_to_have_attribute("data-view", f"{whole[0]:.4f},{whole[1]:.4f}")
    before = view(timeline)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 30, steps=4)
    page.mouse.up()
    after = view(timeline)
    assert after[0] > before[0]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0], abs=1e-3)
    timeline.locator("canvas").hover()
    page.mouse.wheel(0, 200)
    page.wait_for_function("() => scrollY > 0")
    assert view(timeline) == after


def test_view_and_axis_stay_when_run_is_switched(show):
    runs = {name: run(name) for name in RUNS}
    timeline = show(Timeline(runs).to_html())
    longest = max(trace.end_ns for trace in runs.values()) / 1e6
    gpu = "root => root.timeline.scene.panels[0].lanes.at(-1).y"
    places = []
    for name in RUNS:
        timeline.get_by_role("radio", name=name, exact=True).check()
        assert view(timeline) == pytest.approx([0, longest], rel=1e-3)
        places.append((timeline.evaluate(gpu), timeline.locator("canvas").bounding_box()))
    assert places[0] == places[1] == places[2]
    timeline.get_by_role("button", name="Zoom in").click()
    zoomed = view(timeline)
    assert zoomed[1] - zoomed[0] < longest
    timeline.get_by_role("radio", name="all together").check()
    assert view(timeline) == zoomed
    assert len(timeline.get_attribute("data-util").split(",")) == len(RUNS)


@pytest.mark.parametrize(("background", "dark"), [("#111111", True), ("#f5f0e0", False)])
def test_background_selects_theme_and_print_is_light(show, grid, background, dark):
    timeline = show(on_page(grid, style=f"background:{background}"))
    view(timeline)
    assert bool(DARK.search(timeline.get_attribute("class"))) == dark
    timeline.page.evaluate("document.body.style.background = '#222'")
    expect(timeline).to_have_class(DARK)
    timeline.page.emulate_media(media="print")
    expect(timeline).not_to_have_class(DARK)
    expect(timeline.get_by_role("radio").first).to_be_hidden()
    expect(timeline.locator(".printed")).to_have_text("Run: naive · Reading: 40")


def test_hidden_timeline_is_drawn_when_its_slide_appears(show, grid):
    hidden = f"<section hidden>{grid.to_fragment()}</section>"
    timeline = show(f"{Timeline(run('overlap')).to_fragment()}{hidden}")
    view(timeline)
    second = timeline.page.locator(".tl").nth(1)
    assert second.get_attribute("data-view") is None
    timeline.page.evaluate("document.querySelector('section').hidden = false")
    expect(second).to_have_attribute("data-view", re.compile(","))
    second.get_by_role("radio", name="workers").check()
    expect(second).to_have_attribute("data-state", re.compile("workers"))


LIVE = """
const listeners = {}, values = { extra: new DataView(new ArrayBuffer(0)) };
window.model = {
    sent: [], get: name => values[name], save_changes() { this.sent.push({ ...values.state }); },
    set(name, value) { values[name] = value; listeners["change:" + name]?.forEach(f => f()); },
    on: (name, f) => (listeners[name] ??= []).push(f),
    off: (name, f) => { listeners[name] = listeners[name].filter(g => g !== f); },
};
const bytes = text => new DataView(Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer);
"""


def test_widget_state_syncs_both_ways_and_accepts_pictures(show, page, grid):
    measured = {key(grid.controls, grid.state): Picture([run("overlap")], ["measured"])}
    added = base64.b64encode(pack(grid.controls, measured, 10_000)).decode()
    start = f"""{module_source().replace("export default {", "const widget = {")}{LIVE}
    values.state = {{ run: "naive", read: 40 }};
    values.payload = bytes("{base64.b64encode(grid.payload).decode()}");
    window.add = () => model.set("extra", bytes("{added}"));
    window.gone = widget.render({{ model, el: document.body }});"""
    timeline = show(f"<body><script type=module>{start}</script>")
    timeline.get_by_role("radio", name="workers").check()
    assert page.evaluate("() => model.sent") == [{"run": "workers", "read": 40}]
    page.evaluate("() => model.set('state', { run: 'naive', read: 40 })")
    expect(timeline.get_by_role("radio", name="naive")).to_be_checked()
    expect(timeline.locator(".sentence")).to_contain_text("Naive: ")
    page.evaluate("() => add()")
    expect(timeline.locator(".sentence")).to_contain_text("Measured: ")
    page.evaluate("() => gone()")
    expect(page.locator(".tl")).to_have_count(0)
