// The timeline: it shows the picture of a state in an interval of time, with controls, figures, legend and table.

const SKELETON = `<div class="top"><form class="controls" aria-label="Display options"></form><dl class="facts"></dl></div>
<p class="printed"></p><p class="sentence" aria-hidden="true"></p><p class="spoken" role="status" aria-live="polite"></p>
<ul class="legend" aria-label="Stages"></ul>
<div class="stage" tabindex="0" role="group" aria-roledescription="timeline"><canvas aria-hidden="true"></canvas><div class="tip" hidden></div></div>
<div class="bar"><button type="button" data-do="all">Whole run</button><button type="button" data-do="in" aria-label="Zoom in">+</button><button type="button" data-do="out" aria-label="Zoom out">−</button><span class="hint"></span></div>
<details><summary>Show as a table</summary><div class="tables"></div></details>`;
const KEYS = "Press the arrow keys to move, plus and minus to zoom, 0 to show the whole run, N and P to follow a batch.";
const HINT = "Point at a batch or press N to follow it. Drag to move. Use Ctrl + wheel to zoom.";
const BINNED = "Zoomed out. Each column shows how its time is divided among the stages. Zoom in to see single batches.";

const element = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};

// `store` has `payload`, `extra` (packed bytes) and `state`. It is a model of anywidget or, in a static page, an
// object with the same methods.
export class View {
  constructor(el, store) {
    Object.assign(this, { store, view: { from: 0, to: 1, dark: false, batch: -1 }, traces: [], opened: new WeakMap(), packed: {}, unpacked: {}, frame: 0, domain: 1 });
    this.host = el.appendChild(element("div"));
    const shadow = this.host.attachShadow({ mode: "open" });
    this.root = element("div", { className: "tl", innerHTML: SKELETON });
    shadow.append(element("style", { textContent: CSS }), this.root);
    for (const name of ["form", "canvas", "details"]) this[name] = this.root.querySelector(name);
    for (const name of ["sentence", "spoken", "printed", "facts", "legend", "stage", "tip", "hint", "tables"])
      this[name] = this.root.querySelector(`.${name}`);
    this.root.timeline = this; // for slides, tests and benchmarks
    this.ready = this.load();
  }

  async load() {
    const turn = (this.turn = {});
    const [grid, extra] = await Promise.all([this.data("payload"), this.data("extra")]);
    if (turn !== this.turn || !grid) return; // a newer payload has already loaded
    const rebuilt = JSON.stringify(this.grid?.controls) !== JSON.stringify(grid.controls);
    Object.assign(this, { grid, extra });
    if (rebuilt) this.form.replaceChildren(...grid.controls.map((control) => this.radios(control)));
    const lanes = [grid, extra].flatMap((data) => data?.traces ?? []).flatMap((trace) => trace.lanes);
    this.stages = [...STAGES.filter((_, i) => lanes.some((lane) => lane.stage.includes(i))), "idle"];
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

  // Return a switch of native radio buttons, which support keyboards and screen readers.
  radios({ name, label, options }) {
    return element("fieldset", {}, element("legend", { textContent: label }), ...options.map((option) => {
      const input = element("input", { type: "radio", name, value: String(option) });
      input.addEventListener("change", () => {
        this.store.set("state", { ...this.store.get("state"), [name]: option });
        this.store.save_changes();
      });
      return element("label", { className: "choice" }, input, element("span", { textContent: String(option) }));
    }));
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
    // Set the controls without rebuilding them, so that the focus stays.
    for (const input of this.form.querySelectorAll("input")) input.checked = input.value === String(state[input.name]);
    const whole = this.view.from === 0 && this.view.to === this.domain;
    this.traces = picture.traces.map((raw, i) => ({ ...this.open(raw), label: picture.names[i] }));
    // The slowest option of the first control sets the axis, so faster runs end before the axis does.
    const [first] = controls, states = first?.options.map((option) => ({ ...state, [first.name]: option })) ?? [state];
    const alternatives = states.map((other) => this.find(other).traces);
    this.domain = Math.max(1e-3, ...alternatives.flat().map((raw) => raw.end * raw.tick));
    const alone = alternatives.filter((traces) => traces.length === 1).flatMap(([trace]) => trace.lanes);
    this.lanes = this.traces.length === 1 ? sortLanes(alone.map((lane) => lane.name)) : undefined;
    this.view.batch = -1;
    this.tip.hidden = true; // it described the previous picture
    fillLegend(this.legend, this.stages, this.traces.some((trace) => trace.gpu));
    fillFacts(this.facts, picture.facts);
    // Percentages are bold.
    this.sentence.replaceChildren(...picture.sentence.split(/([<>]? ?\b\d[\d.,]* ?%)/)
      .map((part, i) => (i % 2 ? element("b", { textContent: part }) : part)));
    this.printed.textContent = controls.map((control) => `${control.label}: ${state[control.name]}`).join(" · ");
    Object.assign(this.root.dataset, { state: keyOf(controls, state), util: this.traces.map((trace) => trace.utilization.toFixed(4)) });
    this.announce(picture.sentence, this.spoken.textContent ? 400 : 0);
    if (this.details.open) fillTable(this.tables, this.traces);
    whole ? this.look(0, (!this.shown && picture.until_ms) || this.domain) : this.look(this.view.from, this.view.to);
    this.shown = true;
    this.resize();
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
    const spans = spansOf(this.traces.flatMap((trace) => trace.lanes)).filter((span) => span.batch >= 0);
    if (!spans.length) return;
    const { from, to, batch } = this.view, shown = spans.filter((span) => from <= span.start && span.start < to);
    const [batches, inside] = [spans, shown].map((some) => [...new Set(some.map((span) => span.batch))].sort((a, b) => a - b));
    const next = Math.min(Math.max(0, batches.indexOf(batch) + by), batches.length - 1);
    this.view.batch = batch >= 0 ? batches[next] : inside.at(by > 0 ? 0 : -1) ?? batches[0];
    const mine = spans.filter((span) => span.batch === this.view.batch);
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

// Show the cards. A card with a percentage, such as "62 %", also gets a bar.
function fillFacts(list, facts) {
  list.replaceChildren(...Object.entries(facts).map(([name, value]) => {
    const card = element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value }));
    const share = /^[<>]? ?(\d+) %$/.exec(value);
    card.classList.toggle("share", Boolean(share));
    if (share) card.style.setProperty("--share", `${share[1]}%`);
    return card;
  }));
}

// Show a swatch for each stage in the picture, including idle time.
function fillLegend(list, names, gpu) {
  const texts = { wait: WAITING, idle: gpuLabel(gpu, "idle") };
  list.replaceChildren(...names.map((name) => {
    const item = element("li"), { pattern, edges: [light, dark] } = LOOKS[name];
    item.innerHTML = `<svg width="26" height="14" aria-hidden="true">${pattern}
      <rect style="--light:${light};--dark:${dark}" x=".5" y=".5" width="25" height="13" rx="2" fill="url(#p-${name})"/></svg>`;
    item.append(texts[name] ?? name);
    return item;
  }));
}

// Show the picture as a table with one row per lane, for screen readers.
function fillTable(holder, traces) {
  const cell = (tag, text, scope = "") => element(tag, { textContent: text, ...(scope && { scope }) });
  holder.replaceChildren(...traces.map(({ label, note, busy, gpu, utilization, gaps, lanes, end, stepsEnd }) => {
    const rows = lanes.map((lane) => element("tr", {}, cell("th", lane.name, "row"), cell("td", lane.start.length.toLocaleString("en")),
      cell("td", duration(lane.busy)), cell("td", percent(lane.busy / (end || 1))), cell("td", stageText(lane, end))));
    const idle = `idle ${duration(stepsEnd * (1 - utilization))} in ${plural(gaps.length, "gap")}`;
    const caption = `${label || "This run"}${note ? ` (${note})` : ""}: ${gpuLabel(gpu, "busy")} ${busy}, ${idle}.`;
    const head = ["Lane", "Spans", "Busy", "Share", "Stages"].map((text) => cell("th", text, "col"));
    return element("table", {}, cell("caption", caption), element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  }));
}

function stageText(lane, end) {
  const sums = STAGES.map(() => 0);
  for (const { start, end: until, stage } of spansOf([lane])) sums[stage] += until - start;
  return STAGES.flatMap((stage, i) => (sums[i] ? [`${stage} ${percent(sums[i] / end)}`] : [])).join(", ");
}
