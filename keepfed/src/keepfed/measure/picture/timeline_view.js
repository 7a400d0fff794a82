// The timeline: it shows the picture of a state in an interval of time.
// `store` is { get(name), set(name, value), save(), on(name, f), off(name, f) } with `payload`, `extra`
// (packed bytes) and `state`. It is an anywidget model or, in a static page, a plain object.

const SKELETON = `<div class="top"><form class="controls" aria-label="Display options"></form><dl class="facts"></dl></div>
<p class="printed"></p><p class="sentence" aria-hidden="true"></p><p class="spoken" role="status" aria-live="polite"></p>
<ul class="legend" aria-label="Stages"></ul>
<div class="stage" tabindex="0" role="group" aria-roledescription="timeline"><canvas aria-hidden="true"></canvas><div class="tip" hidden></div></div>
<div class="bar"><button type="button" data-do="all">Whole run</button><button type="button" data-do="in" aria-label="Zoom in">+</button><button type="button" data-do="out" aria-label="Zoom out">−</button><span class="hint"></span></div>
<details><summary>Show as a table</summary><div class="tables"></div></details>`;
const KEYS = "Press the arrow keys to move, plus and minus to zoom, 0 to show the whole run, N and P to follow a batch.";
const HINT = "Point at a batch or press N to follow it. Drag to move. Use Ctrl + wheel to zoom.";
const BINNED = "Zoomed out. Each column shows how its time is divided among the stages. Zoom in to see single batches.";

export class View {
  constructor(el, store) {
    Object.assign(this, { store, view: { from: 0, to: 1, dark: false, batch: -1 }, traces: [], opened: new WeakMap(), packed: {}, unpacked: {}, frame: 0, domain: 1 });
    this.host = el.appendChild(element("div"));
    const shadow = this.host.attachShadow({ mode: "open" });
    this.root = element("div", { className: "tl", innerHTML: SKELETON });
    shadow.append(element("style", { textContent: CSS }), this.root);
    for (const name of ["form", "sentence", "spoken", "printed", "facts", "legend", "stage", "tip", "hint", "tables"])
      this[name] = this.root.querySelector(name === "form" ? name : `.${name}`);
    this.canvas = this.root.querySelector("canvas");
    this.details = this.root.querySelector("details");
    this.root.timeline = this; // for tests and benchmarks
    this.ready = this.load();
  }

  async load() {
    const turn = (this.turn = {});
    const [grid, extra] = await Promise.all([this.data("payload"), this.data("extra")]);
    if (turn !== this.turn || !grid) return; // a newer payload has already loaded
    const rebuilt = JSON.stringify(this.grid?.controls) !== JSON.stringify(grid.controls);
    Object.assign(this, { grid, extra });
    if (rebuilt) buildControls(this.form, grid.controls, (name, value) => this.choose(name, value));
    const names = STAGES.filter((_, i) => [grid, extra].some((data) => data?.traces.some((t) => t.lanes.some((l) => l.stage.includes(i)))));
    this.stages = [...names, "idle"];
    this.show();
  }

  // Return the unpacked content of `name` from a cache, or null if it is empty.
  data(name) {
    const bytes = this.store.get(name);
    if (bytes !== this.packed[name]) {
      this.packed[name] = bytes;
      this.unpacked[name] = bytes?.byteLength ? unpack(bytes) : null;
    }
    return this.unpacked[name];
  }

  choose(name, value) {
    this.store.set("state", { ...this.store.get("state"), [name]: value });
    this.store.save();
  }

  // Return the picture of a state, with traces that are not unpacked yet.
  find(state) {
    const name = keyOf(this.grid.controls, state);
    const data = this.extra?.pictures[name] ? this.extra : this.grid, picture = data.pictures[name];
    return { ...picture, traces: picture.traces.map((n) => data.traces[n]) };
  }

  open(raw) {
    if (!this.opened.has(raw)) this.opened.set(raw, openTrace(raw));
    return this.opened.get(raw);
  }

  // Show the picture of the current state.
  show() {
    if (!this.grid) return;
    const { controls } = this.grid, state = this.store.get("state"), picture = this.find(state);
    syncControls(this.form, state);
    this.root.dataset.state = keyOf(controls, state);
    const whole = this.view.from === 0 && this.view.to === this.domain;
    this.traces = picture.traces.map((raw, i) => ({ ...this.open(raw), label: picture.names[i] }));
    const alternatives = this.alternatives(controls[0], state);
    // The slowest alternative sets the axis, so faster runs end before the axis does.
    this.domain = Math.max(1e-3, ...alternatives.flatMap((alternative) => alternative.traces).map((raw) => raw.end * raw.tick));
    const alone = alternatives.filter((alternative) => alternative.traces.length === 1).flatMap((alternative) => alternative.traces[0].lanes);
    this.lanes = this.traces.length === 1 ? sortLanes(alone.map((lane) => lane.name)) : undefined;
    this.view.batch = -1;
    this.tip.hidden = true; // it described the previous picture
    fillLegend(this.legend, this.stages, this.traces.some((trace) => trace.gpu));
    fillSentence(this.sentence, picture.sentence);
    fillFacts(this.facts, picture.facts);
    this.printed.textContent = stateText(controls, state);
    this.root.dataset.util = this.traces.map((trace) => trace.utilization.toFixed(4)).join(",");
    this.root.dataset.spans = this.traces.reduce((sum, trace) => sum + trace.spans, 0);
    this.announce(picture.sentence, this.spoken.textContent ? 400 : 0);
    if (this.details.open) fillTable(this.tables, this.traces);
    whole ? this.look(0, (!this.shown && picture.until_ms) || this.domain) : this.look(this.view.from, this.view.to);
    this.shown = true;
    this.resize();
  }

  // Return the pictures of all options of the first control, which share axis and lanes.
  alternatives(control, state) {
    const states = control ? control.options.map((value) => ({ ...state, [control.name]: value })) : [state];
    return states.map((alternative) => this.find(alternative));
  }

  // Announce a sentence to screen readers. After several quick changes, only the last sentence is read.
  announce(text, delay = 400) {
    clearTimeout(this.announcing);
    this.stage.setAttribute("aria-label", `${text} ${KEYS}`);
    this.announcing = setTimeout(() => { this.spoken.textContent = text; }, delay);
  }

  resize() {
    const width = this.stage.clientWidth;
    if (!width || !this.traces.length) return; // the timeline is hidden in another tab or on another slide
    const sharp = Math.max(2, (window.devicePixelRatio || 1) * (this.host.currentCSSZoom ?? 1));
    const style = getComputedStyle(this.host);
    const lane = parseFloat(style.getPropertyValue("--lane-height")) || undefined; // set by slides
    const lanes = style.getPropertyValue("--used-lanes") ? undefined : this.lanes; // set by lecture demos
    this.scene = arrange(this.traces, width, lanes, lane);
    this.canvas.width = width * sharp;
    this.canvas.height = this.scene.height * sharp;
    this.canvas.style.height = `${this.scene.height}px`;
    this.canvas.style.setProperty("--drawn", `${width}px`);
    this.canvas.getContext("2d").setTransform(sharp, 0, 0, sharp, 0, 0);
    this.retheme();
  }

  retheme() {
    this.view.dark = !matchMedia("print").matches && isDark(this.host);
    this.root.classList.toggle("dark", this.view.dark);
    this.draw();
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.scene) return;
    const { view, scene, root } = this, binned = paint(this.canvas.getContext("2d"), scene, view);
    const hint = binned ? BINNED : HINT;
    if (this.hint.textContent !== hint) this.hint.textContent = hint;
    Object.assign(root.dataset, { view: `${view.from.toFixed(4)},${view.to.toFixed(4)}`, binned, batch: view.batch });
  }

  schedule() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  // Show the time from `from` to `to`, limited to the run.
  look(from, to) {
    const width = Math.min(Math.max(to - from, 0.005), this.domain);
    this.view.from = Math.min(Math.max(0, from), this.domain - width);
    this.view.to = width === this.domain ? this.domain : this.view.from + width;
    this.schedule();
  }

  zoom(factor, at = (this.view.from + this.view.to) / 2) {
    const { from, to } = this.view;
    this.look(at - (at - from) * factor, at + (to - at) * factor);
  }

  pan(share) {
    const { from, to } = this.view, step = (to - from) * share;
    this.look(from + step, to + step);
  }

  // Follow the next batch (`by` 1) or the previous one through all lanes, scroll to it and describe it.
  // Start with the first or the last batch that begins in the view.
  follow(by) {
    const spans = this.traces.flatMap((trace) => trace.lanes.flatMap((lane) =>
      [...lane.batch].map((number, i) => ({ number, start: lane.start[i], end: lane.end[i] }))));
    const last = spans.reduce((most, span) => Math.max(most, span.number), -1);
    if (last < 0) return;
    const { from, to, batch } = this.view, shown = spans.filter((span) => span.number >= 0 && span.start >= from && span.start < to);
    const first = (by > 0 ? Math.min : Math.max)(...(shown.length ? shown : [{ number: 0 }]).map((span) => span.number));
    this.view.batch = batch < 0 ? first : Math.min(Math.max(0, batch + by), last);
    const mine = spans.filter((span) => span.number === this.view.batch);
    const start = Math.min(...mine.map((span) => span.start)), end = Math.max(...mine.map((span) => span.end));
    const width = Math.max(to - from, end - start);
    if (start < from || end > to) this.look(start - width / 8, start + (width * 7) / 8);
    this.announce(this.traces.map((trace) => describeBatch(trace, this.view.batch)).join(" "));
    this.schedule();
  }

  stop() {
    this.turn = null;
    clearTimeout(this.announcing);
    cancelAnimationFrame(this.frame);
    this.host.remove();
  }
}
