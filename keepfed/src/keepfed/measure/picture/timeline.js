// Input events, and the entry points for a notebook, a static page and a slide.

// Show a timeline in `el`. Returns a function that removes it.
export function mount(el, store) {
  const view = new View(el, store), stopping = new AbortController(), { signal } = stopping;
  const on = (target, names, action, more) => names.split(" ").forEach((name) => target.addEventListener(name, action, { signal, ...more }));
  on(view.root, "keydown", (event) => pressKey(view, event));
  on(view.stage, "wheel", (event) => zoomByWheel(view, event), { passive: false });
  on(view.root, "click", (event) => pressButton(view, event.target.dataset.do));
  on(view.form, "submit", (event) => event.preventDefault());
  on(view.details, "toggle", () => { if (view.details.open) fillTable(view.tables, view.traces); });
  connectPointer(view, on);
  const retheme = () => view.retheme();
  on(window, "beforeprint afterprint", retheme);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) on(matchMedia(query), "change", retheme);
  // The colors of a theme may change later than the attribute that names it.
  const themes = new MutationObserver(() => { retheme(); setTimeout(retheme, 300); });
  for (const page of [document.documentElement, document.body]) themes.observe(page, { attributes: true });
  const sizes = new ResizeObserver(() => view.resize());
  sizes.observe(view.stage);
  const load = () => view.load(), changes = { "change:payload": load, "change:extra": load, "change:state": () => view.show() };
  for (const name in changes) store.on(name, changes[name]);
  return () => {
    for (const name in changes) store.off(name, changes[name]);
    stopping.abort();
    sizes.disconnect();
    themes.disconnect();
    view.stop();
  };
}

function pressKey(view, event) {
  const { target, key } = event, { from, to } = view.view;
  if (event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && key === "Enter")) return;
  const action = {
    ArrowLeft: () => view.pan(-1 / 8), ArrowRight: () => view.pan(1 / 8),
    "+": () => view.zoom(0.8), "=": () => view.zoom(0.8), "-": () => view.zoom(1.25), 0: () => view.look(0, view.domain),
    Home: () => view.look(0, to - from), End: () => view.look(view.domain - (to - from), view.domain),
    n: () => view.follow(1), p: () => view.follow(-1),
    Escape: () => { view.view.batch = -1; view.schedule(); },
  }[key];
  const ours = action && (!target.matches("input") || /^[np]$/.test(key)); // the other keys move between radio buttons
  if (ours) {
    action();
    event.preventDefault();
  }
  // JupyterLab and reveal.js bind commands to the keys that move between radio buttons.
  if (ours || target.matches("input,button,summary")) event.stopPropagation();
}

function pressButton(view, name) {
  ({ all: () => view.look(0, view.domain), in: () => view.zoom(0.5), out: () => view.zoom(2) })[name]?.();
}

function zoomByWheel(view, event) {
  if (!event.ctrlKey && !event.metaKey) return; // let the page scroll
  event.preventDefault();
  event.stopPropagation();
  view.zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, pointOf(view, event).time);
}

// Return the pointer position in canvas pixels, and what is there. A CSS transform may scale the slide.
function pointOf({ canvas, scene, view }, event) {
  const box = canvas.getBoundingClientRect(), scaled = box.width / canvas.clientWidth || 1;
  const x = (event.clientX - box.left) / scaled, y = (event.clientY - box.top) / scaled;
  return { x, y, scaled, ...(scene ? locate(scene, view, x, y) : { time: 0 }) };
}

function connectPointer(view, on) {
  let drag = null;
  on(view.stage, "pointerdown", (event) => {
    if (event.button) return;
    drag = { x: event.clientX, ...view.view };
    view.stage.setPointerCapture(event.pointerId);
  });
  on(view.stage, "pointerup pointercancel", () => { drag = null; });
  on(view.stage, "pointerleave", () => { if (!drag) point(view, {}); });
  on(view.stage, "pointermove", (event) => {
    const where = pointOf(view, event);
    if (!drag) return point(view, where);
    const width = (view.scene.right - view.scene.left) * where.scaled;
    const moved = ((event.clientX - drag.x) / width) * (drag.to - drag.from);
    view.look(drag.from - moved, drag.to - moved);
  });
}

// Describe the span under the pointer, and highlight its batch.
function point(view, { x, y, trace, lane, row, time }) {
  const { tip } = view, i = lane ? spanAt(lane, time, row) : -1, batch = i < 0 ? -1 : lane.batch[i];
  const idle = i < 0 && lane && lane === trace.stepLane ? trace.gaps.find((gap) => gap[0] <= time && time < gap[1]) : null;
  tip.hidden = i < 0 && !idle;
  if (batch !== view.view.batch) { view.view.batch = batch; view.schedule(); }
  if (tip.hidden) return;
  const [start, end] = idle ?? [lane.start[i], lane.end[i]], length = duration(end - start), from = duration(start);
  tip.textContent = idle ? `${gpuLabel(trace.gpu, "idle")} for ${length}\nstarting at ${from}`
    : `${lane.name}: ${STAGES[lane.stage[i]]}${batch < 0 ? "" : `, batch ${batch}`}\n${length}, starting at ${from}`;
  tip.style.left = `${Math.max(0, Math.min(x + 14, view.canvas.clientWidth - tip.offsetWidth - 2))}px`;
  tip.style.top = `${y + 18}px`;
}

// Return whether the page is dark. The computed background behind the host works in JupyterLab,
// Sphinx, reveal.js and VS Code.
function isDark(host) {
  for (let at = host; at; at = at.parentElement ?? at.getRootNode().host) {
    const [red, green, blue, alpha = 1] = getComputedStyle(at).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    if (alpha > 0.5) return 0.299 * red + 0.587 * green + 0.114 * blue < 128;
  }
  return false;
}

// Entry point for a notebook, called by anywidget.
export default { render: ({ model, el }) => mount(el, model) };

// Entry point for a static page: mount one timeline per <script type="application/json" class="course-timeline">.
export function mountAll(page = document) {
  for (const script of page.querySelectorAll("script.course-timeline:not([data-shown])")) {
    script.dataset.shown = "yes";
    const data = JSON.parse(script.textContent), actions = {};
    data.payload = Uint8Array.from(atob(data.payload), (letter) => letter.charCodeAt(0));
    script.parentNode.replaceChildren(script); // removes the static picture
    mount(script.parentNode, {
      get: (name) => data[name], set(name, value) { data[name] = value; actions[`change:${name}`]?.(); }, save_changes() {},
      on(name, action) { actions[name] = action; }, off(name) { delete actions[name]; },
    });
  }
}
