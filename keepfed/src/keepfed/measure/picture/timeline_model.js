// Unpack, measure, search and lay out traces, without the DOM. Times are milliseconds.
// script.py defines `STAGES`, `LOOKS`, `PAGES` and `CSS` before this module.

// Unpack the columns of `columns` in model.py to typed arrays with one entry per span, sorted by start.
export function openTrace(raw) {
  const lanes = raw.lanes.map((lane) => openLane(lane, raw.tick));
  const steps = unionOf(stepLanes(lanes), (lane, i) => lane.stage[i] === COMPUTE);
  const end = raw.end * raw.tick;
  const stepsEnd = steps.at(-1)?.[1] ?? end;
  const gaps = gapsBetween(steps);
  return {
    note: raw.note, lanes, steps, gaps, end, stepsEnd,
    gpu: !steps.length || stepLanes(lanes)[0].name === "gpu", // otherwise the main process computes the steps
    spans: lanes.reduce((sum, lane) => sum + lane.start.length, 0),
    utilization: stepsEnd ? total(steps) / stepsEnd : 0,
  };
}

const COMPUTE = STAGES.indexOf("compute");
const WAIT = STAGES.indexOf("wait");

function openLane(raw, tick) {
  const n = raw.gap.length;
  const lane = {
    name: raw.name, start: new Float64Array(n), end: new Float64Array(n),
    reach: new Float64Array(n), // latest end so far, because nested spans do not end in order
    batch: new Int32Array(n), stage: Uint8Array.from(raw.stage, Number),
    row: raw.row ?? new Uint8Array(n), depth: raw.depth ?? new Uint8Array(n),
    under: raw.under ?? new Int8Array(n).fill(-1), rows: 1,
  };
  let ticks = 0, batch = 0, reach = 0;
  for (let i = 0; i < n; i++) {
    lane.start[i] = (ticks += raw.gap[i]) * tick;
    lane.end[i] = (ticks += raw.length[i]) * tick;
    lane.batch[i] = batch += raw.batch[i];
    lane.reach[i] = reach = Math.max(reach, lane.end[i]);
    lane.rows = Math.max(lane.rows, lane.row[i] + 1);
  }
  lane.busy = total(unionOf([lane], (_, i) => lane.stage[i] !== WAIT));
  return lane;
}

// Return the lanes with steps: the GPU lane, or all lanes with steps if there is no GPU.
export function stepLanes(lanes) {
  const gpu = lanes.filter((lane) => lane.name === "gpu" && lane.stage.includes(COMPUTE));
  return gpu.length ? gpu : lanes.filter((lane) => lane.stage.includes(COMPUTE));
}

function unionOf(lanes, wanted) {
  const pieces = [];
  for (const lane of lanes)
    for (let i = 0; i < lane.start.length; i++)
      if (wanted(lane, i)) pieces.push([lane.start[i], lane.end[i]]);
  if (lanes.length > 1) pieces.sort((a, b) => a[0] - b[0]);
  const merged = [];
  for (const piece of pieces) {
    const last = merged.at(-1);
    if (last && piece[0] <= last[1]) last[1] = Math.max(last[1], piece[1]);
    else merged.push([...piece]);
  }
  return merged;
}

const total = (intervals) => intervals.reduce((sum, [start, end]) => sum + end - start, 0);

function gapsBetween(steps) {
  const gaps = [];
  let last = 0;
  for (const [start, end] of steps) {
    if (start > last) gaps.push([last, start]);
    last = end;
  }
  return gaps;
}

// Return the index of the first entry of a sorted array that is at least `value`.
export function lowerBound(sorted, value) {
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
    const a = Math.max(0, (lane.start[i] - from) * scale);
    const b = Math.min(columns, (lane.end[i] - from) * scale);
    if (b <= a) continue;
    add(lane.row[i], lane.stage[i], a, b, 1);
    if (lane.under[i] >= 0) add(lane.row[i], lane.under[i], a, b, -1);
  }
  return bins;
}

// Return about `count` round times between `from` and `to` for the axis.
export function ticks(from, to, count) {
  const raw = (to - from) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * (1 - 1e-9));
  const found = [];
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to + step * 1e-9; n++) found.push(n * step);
  return { step, at: found };
}

// Return an axis label such as "1.5 s", with as many digits as the step needs.
export function tickText(ms, step) {
  const [unit, size] = step >= 100 ? ["s", 1e3] : step >= 0.1 ? ["ms", 1] : ["µs", 1e-3];
  const digits = Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9));
  return ms ? `${(ms / size).toFixed(Math.min(digits, 6))} ${unit}` : "0";
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

// Return "GPU busy", or "busy" if the trace has no GPU.
export const gpuLabel = (gpu, word) => (gpu ? `GPU ${word}` : word);

export const plural = (count, thing) => `${count.toLocaleString("en")} ${thing}${count === 1 ? "" : "s"}`;

// Describe the stages of one batch in words.
export function describeBatch(trace, batch) {
  const parts = [];
  for (const lane of trace.lanes)
    for (let i = 0; i < lane.start.length; i++)
      if (lane.batch[i] === batch)
        parts.push([lane.start[i], `${STAGES[lane.stage[i]]} ${duration(lane.end[i] - lane.start[i])} (${lane.name})`]);
  return `Batch ${batch}: ${parts.sort((a, b) => a[0] - b[0]).map((part) => part[1]).join(", ")}.`;
}

// Return the name of a picture, such as "strategy=naive|load=80".
export const keyOf = (controls, state) => controls.map((c) => `${c.name}=${state[c.name]}`).join("|");

// Unpack gzip-compressed JSON from `pack` in model.py.
export async function unpack(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

const AXIS = 22, HEADER = 26, LANE = 20, RIGHT = 8;

// Sort lane names in drawing order: storage, workers by index, other lanes, main, copy, gpu.
export function sortLanes(names) {
  const ranks = { storage: 0, worker: 1, main: 3, copy: 4, gpu: 5 };
  const rank = (name) => (ranks[name.split(" ")[0]] ?? 2) * 1e6 + (parseInt(name.split(" ")[1]) || 0);
  return [...new Set(names)].sort((a, b) => rank(a) - rank(b));
}

const unused = (name) => openLane({ name, gap: [], length: [], batch: [], stage: "" }, 1);

// Lay out traces below each other for a canvas of this width. If `names` is given, every named lane gets
// space even if it is empty, so that the lanes do not move when you switch runs. Lanes are `height` high.
export function arrange(traces, width, names, height = LANE) {
  const gap = height * 0.3;
  const narrow = width < 560, left = narrow ? 80 : 124;
  const scene = { width, narrow, left, right: width - RIGHT, panels: [], height: AXIS };
  for (const trace of traces) {
    const panel = { trace, y: scene.height, lanes: [] };
    scene.height += HEADER;
    const used = new Map(trace.lanes.map((lane) => [lane.name, lane]));
    for (const lane of (names ?? [...used.keys()]).map((name) => used.get(name) ?? unused(name))) {
      const rowHeight = lane.name === "gpu" ? (1.8 * height) / lane.rows
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
  for (const panel of scene.panels)
    for (const place of panel.lanes)
      if (y >= place.y && y < place.y + place.height && x >= scene.left)
        return { trace: panel.trace, lane: place.lane, row: Math.floor((y - place.y) / place.rowHeight), time };
  return { time };
}
