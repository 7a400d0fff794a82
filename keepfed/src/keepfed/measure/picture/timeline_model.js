// Unpack, measure, search and lay out traces, without the DOM. Times are milliseconds.
// timeline.py defines `STAGES`, `LOOKS`, `PAGES`, `CSS` and other constants before this module.

const COMPUTE = STAGES.indexOf("compute"), WAIT = STAGES.indexOf("wait");

// Unpack gzip-compressed JSON from `pack` in model.py.
export async function unpack(bytes) {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

// Return the name of a picture, such as "strategy=naive|load=80".
export const keyOf = (controls, state) => controls.map((c) => `${c.name}=${state[c.name]}`).join("|");

// Unpack the columns of `columns` in model.py to typed arrays with one entry per span, sorted by start.
export function openTrace(raw) {
  const lanes = raw.lanes.map((lane) => openLane(lane, raw.tick)), end = raw.end * raw.tick;
  // The GPU computes the steps, or all lanes with steps if there is no GPU.
  const computing = lanes.filter((lane) => lane.stage.includes(COMPUTE)), onGpu = computing.filter((lane) => lane.name === "gpu");
  const stepLanes = onGpu.length ? onGpu : computing, steps = unionOf(stepLanes, (stage) => stage === COMPUTE);
  const stepsEnd = steps.at(-1)?.[1] ?? end;
  const gaps = steps.map(([start], i) => [steps[i - 1]?.[1] ?? 0, start]).filter((gap) => gap[0] < gap[1]);
  const utilization = steps.length ? 1 - total(gaps) / stepsEnd : 0;
  return {
    note: raw.note, lanes, gaps, end, stepsEnd, stepLane: stepLanes[0],
    gpu: !computing.length || onGpu.length > 0, utilization,
    busy: raw.at_most ? `at most ${Math.ceil(100 * utilization - 1e-6)} %` : percent(utilization),
  };
}

function openLane(raw, tick) {
  const n = raw.gap.length;
  const lane = {
    name: raw.name, start: new Float64Array(n), end: new Float64Array(n), batch: new Int32Array(n),
    reach: new Float64Array(n), // latest end so far, because nested spans do not end in order
    stage: Uint8Array.from(raw.stage, Number), row: raw.row ?? new Uint8Array(n), depth: raw.depth ?? new Uint8Array(n),
    under: raw.under ?? new Int8Array(n).fill(-1),
  };
  let ticks = 0, batch = 0, reach = 0;
  for (let i = 0; i < n; i++) {
    lane.start[i] = (ticks += raw.gap[i]) * tick;
    lane.end[i] = (ticks += raw.length[i]) * tick;
    lane.batch[i] = batch += raw.batch[i];
    lane.reach[i] = reach = Math.max(reach, lane.end[i]);
  }
  lane.rows = 1 + lane.row.reduce((most, row) => Math.max(most, row), 0);
  lane.busy = total(unionOf([lane], (stage) => stage !== WAIT));
  return lane;
}

// Return the merged intervals of all spans with a wanted stage.
function unionOf(lanes, wanted) {
  const merged = [];
  for (const { start, end } of spansOf(lanes).filter(({ stage }) => wanted(stage)).sort((a, b) => a.start - b.start)) {
    const last = merged.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else merged.push([start, end]);
  }
  return merged;
}

// Return the spans of lanes as objects. Only for passes over all spans.
export const spansOf = (lanes) => lanes.flatMap((lane) => Array.from(lane.start, (start, i) =>
  ({ lane, start, end: lane.end[i], stage: lane.stage[i], batch: lane.batch[i] })));

const total = (intervals) => intervals.reduce((sum, [start, end]) => sum + end - start, 0);

// Return the index of the first entry of a sorted array that is at least `value`.
function lowerBound(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

// Return the half-open range of span indices that overlap the view.
export const visible = (lane, from, to) => [lowerBound(lane.reach, from), lowerBound(lane.start, to)];

// Return the index of the innermost span at a point, or -1.
export function spanAt(lane, time, row) {
  const [first, last] = visible(lane, time, time + 1e-9);
  for (let i = last - 1; i >= first; i--)
    if (lane.row[i] === row && lane.start[i] <= time && time < lane.end[i]) return i;
  return -1;
}

// Return the share of each stage in each pixel column: bins[(row * stages + stage) * columns + column].
// The time of a nested span is subtracted from the span around it.
export function busyShares(lane, from, to, columns) {
  const bins = new Float32Array(lane.rows * STAGES.length * columns);
  const scale = columns / (to - from), [first, last] = visible(lane, from, to);
  const add = (row, stage, a, b, sign) => {
    const base = (row * STAGES.length + stage) * columns;
    for (let column = Math.floor(a); column < b; column++)
      bins[base + column] += sign * (Math.min(b, column + 1) - Math.max(a, column));
  };
  for (let i = first; i < last; i++) {
    const a = Math.max(0, (lane.start[i] - from) * scale), b = Math.min(columns, (lane.end[i] - from) * scale);
    add(lane.row[i], lane.stage[i], a, b, 1);
    if (lane.under[i] >= 0) add(lane.row[i], lane.under[i], a, b, -1);
  }
  return bins;
}

// Return about `count` round times between `from` and `to`, each with its label, such as "1.5 s".
export function axis(from, to, count) {
  const raw = (to - from) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * (1 - 1e-9));
  const [unit, size] = step >= 100 ? ["s", 1e3] : step >= 0.1 ? ["ms", 1] : ["µs", 1e-3];
  const digits = Math.min(6, Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9))), times = [];
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to + step * 1e-9; n++) times.push(n * step);
  return times.map((ms) => [ms, ms ? `${(ms / size).toFixed(digits)} ${unit}` : "0"]);
}

export function duration(ms) {
  if (ms >= 1e3) return `${(ms / 1e3).toFixed(2)} s`;
  if (ms >= 1) return `${ms.toFixed(ms >= 10 ? 0 : 1)} ms`;
  return ms ? `${(ms * 1e3).toFixed(0)} µs` : "0 s";
}

export function percent(share) {
  if (share > 0 && share < 0.005) return "< 1 %";
  if (share >= 0.995 && share < 1) return "> 99 %";
  return `${(100 * share).toFixed(0)} %`;
}

export const plural = (count, thing) => `${count.toLocaleString("en")} ${thing}${count === 1 ? "" : "s"}`;

// Return "GPU busy", or "busy" if the trace has no GPU.
export const gpuLabel = (gpu, word) => (gpu ? `GPU ${word}` : word);

// Describe the stages of one batch in words.
export function describeBatch(trace, batch) {
  const spans = spansOf(trace.lanes).filter((span) => span.batch === batch).sort((a, b) => a.start - b.start);
  const stages = spans.map(({ lane, start, end, stage }) => `${STAGES[stage]} ${duration(end - start)} (${lane.name})`);
  return `Batch ${batch}: ${stages.join(", ")}.`;
}

// Sort lane names in drawing order: storage, workers by index, other lanes, main, other ranks, copy, gpu.
export function sortLanes(names) {
  const ranks = { storage: 0, worker: 1, main: 3, other: 4, copy: 5, gpu: 6 };
  const rank = (name) => (ranks[name.split(" ")[0]] ?? 2) * 1e6 + (parseInt(name.split(" ")[1]) || 0);
  return [...new Set(names)].sort((a, b) => rank(a) - rank(b));
}

const AXIS = 22, HEADER = 26, LANE = 20, RIGHT = 8;

// Lay out traces below each other for a canvas of this width. If `names` is given, every named lane gets
// space even if it is empty, so that the lanes do not move when you switch runs. Lanes are `height` high.
export function arrange(traces, width, names, height = LANE) {
  const narrow = width < 560, gap = height * 0.3;
  const scene = { width, narrow, left: narrow ? 80 : 124, right: width - RIGHT, panels: [], height: AXIS };
  for (const trace of traces) {
    const panel = { trace, y: scene.height, lanes: [] };
    scene.height += HEADER;
    for (const name of names ?? trace.lanes.map((lane) => lane.name)) {
      const lane = trace.lanes.find((used) => used.name === name) ?? openLane({ name, gap: [], stage: "" }, 1);
      const rowHeight = name === "gpu" ? (1.8 * height) / lane.rows
        : lane.rows === 1 ? height : Math.max(7, Math.min(14, 56 / lane.rows));
      panel.lanes.push({ lane, y: scene.height, height: rowHeight * lane.rows, rowHeight });
      scene.height += rowHeight * lane.rows + gap;
    }
    scene.panels.push(panel);
    panel.bottom = scene.height - gap;
    scene.height += 8;
  }
  return scene;
}

// Return the trace, lane, row and time at a point of the canvas.
export function locate(scene, view, x, y) {
  const time = view.from + ((x - scene.left) / (scene.right - scene.left)) * (view.to - view.from);
  const at = scene.panels.flatMap(({ trace, lanes }) => lanes.map((place) => ({ trace, ...place })))
    .find((place) => x >= scene.left && place.y <= y && y < place.y + place.height);
  return { time, ...at, row: at && Math.floor((y - at.y) / at.rowHeight) };
}
