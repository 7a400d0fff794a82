// Input events, and the entry points for a notebook, a static page and a slide.

// Connect keyboard, pointer, theme and size to `view`. Returns a function that disconnects them.
export function listen(view) {
  const stopping = new AbortController(), on = (target, names, action, more = {}) =>
    names.split(" ").forEach((name) => target.addEventListener(name, action, { signal: stopping.signal, ...more }));
  on(view.root, "keydown", (event) => pressKey(view, event));
  // JupyterLab and reveal.js bind commands to the keys that move between radio buttons.
  on(view.root, "keydown", (event) => { if (event.target.matches("input,button,summary") && plain(event)) event.stopPropagation(); });
  on(view.stage, "wheel", (event) => zoomByWheel(view, event), { passive: false });
  on(view.root, "click", (event) => pressButton(view, event.target.dataset.do));
  on(view.form, "submit", (event) => event.preventDefault());
  on(view.details, "toggle", () => { if (view.details.open) fillTable(view.tables, view.traces); });
  connectPointer(view, on);
  const retheme = () => view.retheme();
  // The colors of a theme may change later than the attribute that names it.
  const late = () => { retheme(); setTimeout(retheme, 300); };
  on(window, "beforeprint afterprint", retheme);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) on(matchMedia(query), "change", retheme);
  const sizes = new ResizeObserver(() => view.resize()), themes = new MutationObserver(late);
  sizes.observe(view.stage);
  for (const page of [document.documentElement, document.body]) themes.observe(page, { attributes: true });
  return () => { stopping.abort(); sizes.disconnect(); themes.disconnect(); };
}

const plain = (event) => !event.ctrlKey && !event.metaKey && !event.altKey && !(event.shiftKey && event.key === "Enter");

function pressKey(view, event) {
  if (event.target.matches("input") && !/^[np]$/.test(event.key)) return; // these keys move between radio buttons
  const { from, to } = view.view;
  const action = {
    ArrowLeft: () => view.pan(-1 / 8), ArrowRight: () => view.pan(1 / 8),
    "+": () => view.zoom(0.8), "=": () => view.zoom(0.8), "-": () => view.zoom(1.25), 0: () => view.look(0, view.domain),
    Home: () => view.look(0, to - from), End: () => view.look(view.domain - (to - from), view.domain),
    n: () => view.follow(1), p: () => view.follow(-1),
    Escape: () => { view.view.batch = -1; view.schedule(); },
  }[event.key];
  if (!action || !plain(event)) return;
  action();
  event.preventDefault();
  event.stopPropagation();
}

function pressButton(view, name) {
  ({ all: () => view.look(0, view.domain), in: () => view.zoom(0.5), out: () => view.zoom(2) })[name]?.();
}

function zoomByWheel(view, event) {
  if (!event.ctrlKey && !event.metaKey) return; // let the page scroll
  event.preventDefault();
  event.stopPropagation();
  view.zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, pointOf(view, event).at.time);
}

// Return the pointer position in canvas pixels. A CSS transform may scale the slide.
function pointOf(view, event) {
  const box = view.canvas.getBoundingClientRect(), scaled = box.width / view.canvas.clientWidth || 1;
  const x = (event.clientX - box.left) / scaled, y = (event.clientY - box.top) / scaled;
  return { x, y, scaled, at: view.scene ? locate(view.scene, view.view, x, y) : { time: 0 } };
}

function connectPointer(view, on) {
  let drag = null;
  on(view.stage, "pointerdown", (event) => {
    if (event.button) return;
    drag = { x: event.clientX, from: view.view.from, to: view.view.to };
    view.stage.setPointerCapture(event.pointerId);
  });
  on(view.stage, "pointerup pointercancel", () => { drag = null; });
  on(view.stage, "pointerleave", () => { if (!drag) point(view, null); });
  on(view.stage, "pointermove", (event) => {
    if (!drag) return point(view, pointOf(view, event));
    const width = (view.scene.right - view.scene.left) * pointOf(view, event).scaled;
    const moved = ((event.clientX - drag.x) / width) * (drag.to - drag.from);
    view.look(drag.from - moved, drag.to - moved);
  });
}

// Describe the span under the pointer, and highlight its batch.
function point(view, where) {
  const { tip } = view, { trace, lane, row, time } = where?.at ?? {};
  const i = lane ? spanAt(lane, time, row) : -1, batch = i < 0 ? -1 : lane.batch[i];
  const idle = i < 0 && lane && lane === stepLanes(trace.lanes)[0] ? trace.gaps.find((gap) => gap[0] <= time && time < gap[1]) : null;
  tip.hidden = i < 0 && !idle;
  if (batch !== view.view.batch) { view.view.batch = batch; view.schedule(); }
  if (tip.hidden) return;
  tip.textContent = idle ? `${gpuLabel(trace.gpu, "idle")} for ${duration(idle[1] - idle[0])}\nstarting at ${duration(idle[0])}`
    : `${lane.name}: ${STAGES[lane.stage[i]]}${batch < 0 ? "" : `, batch ${batch}`}\n${duration(lane.end[i] - lane.start[i])}, starting at ${duration(lane.start[i])}`;
  tip.style.left = `${Math.max(0, Math.min(where.x + 14, view.canvas.clientWidth - tip.offsetWidth - 2))}px`;
  tip.style.top = `${where.y + 18}px`;
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

// Show a timeline in `el`. Returns a function that removes it.
export function mount(el, store) {
  const view = new View(el, store), disconnect = listen(view);
  const load = () => view.load(), show = () => view.show();
  const events = [["payload", load], ["extra", load], ["state", show]];
  for (const [name, action] of events) store.on(name, action);
  return () => {
    for (const [name, action] of events) store.off(name, action);
    disconnect();
    view.stop();
  };
}

// Entry point for a notebook, called by anywidget.
export default {
  render({ model, el }) {
    return mount(el, {
      get: (name) => model.get(name), set: (name, value) => model.set(name, value), save: () => model.save_changes(),
      on: (name, action) => model.on(`change:${name}`, action), off: (name, action) => model.off(`change:${name}`, action),
    });
  },
};

// Entry point for a static page: mount one timeline per <script type="application/json" class="course-timeline">.
export function mountAll(page = document) {
  for (const script of page.querySelectorAll("script.course-timeline:not([data-shown])")) {
    script.dataset.shown = "yes";
    const data = JSON.parse(script.textContent), listeners = {};
    for (const name of ["payload", "extra"]) data[name] &&= Uint8Array.from(atob(data[name]), (letter) => letter.charCodeAt(0));
    const store = {
      get: (name) => data[name], set(name, value) { data[name] = value; listeners[name]?.(); }, save() {},
      on(name, action) { listeners[name] = action; }, off(name) { delete listeners[name]; },
    };
    script.parentNode.replaceChildren(script); // removes the static picture
    mount(script.parentNode, store);
  }
}
