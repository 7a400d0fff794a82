// Paint traces on a canvas, with one function per visual element.

const FONT = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif";

// Paint `view` = { from, to, dark, batch }, where batch -1 highlights no batch. Returns whether a lane was binned.
export function paint(c, scene, view) {
  const tools = toolsFor(c, scene, view);
  c.clearRect(0, 0, scene.width, scene.height);
  c.textBaseline = "middle";
  paintAxis(tools);
  let binned = false;
  for (const panel of scene.panels) {
    paintHeader(tools, panel);
    const gpu = stepLanes(panel.trace.lanes)[0];
    for (const place of panel.lanes) binned = paintLane(tools, panel, place, place.lane === gpu) || binned;
    paintEnd(tools, panel);
  }
  return binned;
}

function toolsFor(c, scene, view) {
  const { left, right } = scene, scale = (right - left) / (view.to - view.from);
  const X = (ms) => left + (ms - view.from) * scale;
  const ink = PAGES[view.dark ? "dark" : "light"];
  return { c, scene, view, scale, X, ink, fills: patterns(c, X(0), view.dark) };
}

// Return one repeating tile per stage. The tiles move with the time axis, so patterns stay fixed while panning.
const tiles = new Map();
function patterns(c, origin, dark) {
  const zoom = c.getTransform().a, fills = {};
  for (const [name, look] of Object.entries(LOOKS)) {
    const id = `${name}/${zoom}/${dark}`;
    if (!tiles.has(id)) tiles.set(id, tile(look, zoom, name === "idle" && dark ? PAGES.dark.idle : look.ink));
    fills[name] = c.createPattern(tiles.get(id), "repeat");
    fills[name].setTransform(new DOMMatrix([1 / zoom, 0, 0, 1 / zoom, origin % TILE, 0]));
  }
  return fills;
}

function tile(look, zoom, ink) {
  const canvas = document.createElement("canvas"), c = canvas.getContext("2d");
  canvas.width = canvas.height = TILE * zoom;
  c.scale(zoom, zoom);
  c.fillStyle = look.color;
  c.globalAlpha = look.opacity;
  c.fillRect(0, 0, TILE, TILE);
  c.globalAlpha = 1;
  c.strokeStyle = ink;
  c.lineWidth = look.dots ? 2.2 : 1.2;
  c.lineCap = look.dots ? "round" : "butt";
  c.stroke(new Path2D(look.tile));
  return canvas;
}

function paintAxis({ c, scene, view, X, ink }) {
  const { step, at } = ticks(view.from, view.to, (scene.right - scene.left) / (scene.narrow ? 70 : 110));
  c.font = `11px ${FONT}`;
  c.strokeStyle = ink.grid;
  c.fillStyle = ink.soft;
  c.lineWidth = 1;
  for (const ms of at) {
    const x = Math.round(X(ms)) + 0.5, text = tickText(ms, step);
    c.beginPath(); c.moveTo(x, AXIS - 4); c.lineTo(x, scene.height - 4); c.stroke();
    c.textAlign = x + 30 > scene.width ? "right" : ms ? "center" : "left";
    c.fillText(text, c.textAlign === "right" ? scene.width : x, 9);
  }
  c.textAlign = "left";
}

function paintHeader({ c, scene, ink }, { trace, y }) {
  const middle = y + HEADER / 2 - 1, room = scene.width - 12;
  c.fillStyle = ink.bg;
  c.fillRect(0, y + 2, scene.width, HEADER - 5);
  c.font = `600 13px ${FONT}`;
  c.fillStyle = ink.fg;
  const label = fit(c, trace.label, trace.note ? room / 2 : room);
  let used = 4 + c.measureText(label).width;
  c.fillText(label, 4, middle);
  c.font = `12px ${FONT}`;
  const busy = `${label ? " · " : ""}${gpuLabel(trace.gpu, "busy")} ${percent(trace.utilization)}`, width = c.measureText(busy).width;
  if (!scene.narrow || used + width + c.measureText(trace.note).width + 40 < room) {
    c.fillStyle = ink.soft;
    c.fillText(busy, used, middle);
    used += width;
  }
  if (!trace.note) return;
  const note = fit(c, trace.note, room - used - 24);
  paintPill(c, note, room - c.measureText(note).width - 10, middle, ink.soft, ink.bg);
}

function paintPill(c, text, x, middle, color, paper) {
  const width = c.measureText(text).width + 12;
  c.beginPath(); c.roundRect(x + 0.5, middle - 9, width, 18, 9);
  c.fillStyle = paper; c.fill();
  c.strokeStyle = color; c.lineWidth = 1; c.stroke();
  c.fillStyle = color; c.fillText(text, x + 6.5, middle + 0.5);
}

function fit(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && c.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}

function paintLane(tools, { trace }, place, isGpu) {
  const { c, scene, view, ink, X } = tools, { lane, y, height } = place;
  paintName(tools, place, isGpu ? trace.utilization : lane.busy / (trace.end || 1), isGpu);
  c.save();
  c.beginPath(); c.roundRect(scene.left, y, scene.right - scene.left, height, 3); c.clip();
  c.fillStyle = ink.track;
  const from = Math.max(scene.left, X(0)), to = Math.min(scene.right, X(trace.end));
  c.fillRect(from, y, to - from, height);
  const [first, last] = visible(lane, view.from, view.to), columns = scene.right - scene.left;
  const binned = ((last - first) / lane.rows) * 2 > columns;
  if (isGpu) binned ? paintGap(tools, place, 0, trace.stepsEnd, false) : paintGaps(tools, place, trace.gaps);
  if (binned) paintBins(tools, place, columns);
  else for (let i = first; i < last; i++) paintSpan(tools, place, i);
  c.restore();
  return binned;
}

function paintName({ c, scene, ink }, { lane, y, height }, share, isGpu) {
  const name = scene.narrow ? lane.name.replace("worker", "w") : lane.name;
  c.font = `${isGpu ? "600 " : ""}12px ${FONT}`;
  c.fillStyle = lane.start.length ? ink.fg : ink.soft;
  c.fillText(fit(c, name, scene.left - 46), 4, y + height / 2);
  c.font = `11px ${FONT}`;
  c.fillStyle = ink.soft;
  c.textAlign = "right";
  c.fillText(lane.start.length ? percent(share) : "–", scene.left - 7, y + height / 2);
  c.textAlign = "left";
}

function paintSpan({ c, scene, view, scale, X, fills }, { lane, y, rowHeight }, i) {
  const stage = STAGES[lane.stage[i]], look = LOOKS[stage], depth = lane.depth[i];
  const x = Math.max(scene.left - 2, X(lane.start[i])), end = Math.min(scene.right + 2, X(lane.end[i]));
  const width = Math.max(end - x, 1), inset = Math.min(depth * 3, rowHeight / 3);
  const top = y + lane.row[i] * rowHeight + inset, height = rowHeight - 2 * inset - (lane.rows > 1 ? 1 : 0);
  const faded = view.batch >= 0 && lane.batch[i] !== view.batch;
  // Draw a span narrower than one pixel as a paler span of one pixel, so that it stays visible.
  c.globalAlpha = (faded ? 0.2 : 1) * Math.max(0.35, Math.min(1, end - x));
  c.fillStyle = width < 9 ? look.color : fills[stage];
  if (width < 9) c.globalAlpha *= look.opacity;
  c.fillRect(x, top, width, height);
  if (width >= 3) {
    const line = width < 9 ? 0.5 : 1;
    c.globalAlpha = faded ? 0.2 : 1;
    c.strokeStyle = look.edges[view.dark ? 1 : 0];
    c.lineWidth = line;
    c.strokeRect(x + line / 2, top + line / 2, width - line, height - line);
  }
  const numbered = lane.batch[i] >= 0 && stage !== "wait" && height >= 14 && !faded;
  if (numbered && (lane.end[i] - lane.start[i]) * scale > 11 + 8 * String(lane.batch[i]).length) paintNumber(c, lane.batch[i], look, x, top + height / 2);
  c.globalAlpha = 1;
}

function paintNumber(c, batch, look, x, middle) {
  c.font = `600 11px ${FONT}`;
  c.lineWidth = 3;
  c.lineJoin = "round";
  c.strokeStyle = look.color;
  c.strokeText(batch, x + 5, middle + 0.5);
  c.fillStyle = look.text;
  c.fillText(batch, x + 5, middle + 0.5);
}

function paintGaps(tools, place, gaps) {
  for (const [start, end] of gaps) if (end > tools.view.from && start < tools.view.to) paintGap(tools, place, start, end);
}

// Paint idle time of the GPU hatched in red, with its length if there is enough space.
function paintGap({ c, scene, X, ink, fills }, { y, height }, start, end, labeled = true) {
  const x = Math.max(scene.left - 2, X(start)), right = Math.min(scene.right + 2, X(end)), width = right - x;
  if (width <= 0) return;
  if (width < 3) {
    c.globalAlpha = Math.max(0.35, Math.min(1, width));
    c.fillStyle = LOOKS.idle.color;
    c.fillRect(x, y, Math.max(1, width), height);
    c.globalAlpha = 1;
    return;
  }
  c.fillStyle = fills.idle;
  c.fillRect(x, y, width, height);
  c.strokeStyle = ink.idle;
  c.lineWidth = 1;
  c.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  if (!labeled) return;
  c.font = `11px ${FONT}`;
  const length = duration(end - start), words = start ? ["idle"] : ["idle before the first step", "idle"];
  const text = words.map((word) => `${word} ${length}`).find((t) => c.measureText(t).width + 26 < width);
  if (text) paintPill(c, text, x + width / 2 - c.measureText(text).width / 2 - 6, y + height / 2, ink.idle, ink.bg);
}

// Paint a zoomed-out lane. Each pixel column is a stacked bar with the share of each stage.
function paintBins({ c, scene, view }, { lane, y, rowHeight }, columns) {
  const bins = busyShares(lane, view.from, view.to, columns), filled = new Float32Array(columns);
  for (let row = 0; row < lane.rows; row++) {
    filled.fill(0);
    for (let stage = 0; stage < STAGES.length; stage++) {
      const base = (row * STAGES.length + stage) * columns, look = LOOKS[STAGES[stage]];
      c.fillStyle = look.color;
      c.globalAlpha = look.opacity;
      for (let column = 0; column < columns; column++) {
        const share = bins[base + column];
        if (share < 0.002) continue;
        filled[column] += share;
        c.fillRect(scene.left + column, y + (row + 1 - Math.min(1, filled[column])) * rowHeight, 1, share * rowHeight);
      }
    }
  }
  c.globalAlpha = 1;
}

// Mark the end of a run that is shorter than the axis, because the rest is the time it saves.
function paintEnd({ c, scene, X, ink }, { trace, y, bottom }) {
  const x = X(trace.end);
  if (x < scene.left || x > scene.right - 3) return;
  c.strokeStyle = ink.soft;
  c.lineWidth = 1;
  c.setLineDash([3, 3]);
  c.beginPath(); c.moveTo(Math.round(x) + 0.5, y + HEADER); c.lineTo(Math.round(x) + 0.5, bottom); c.stroke();
  c.setLineDash([]);
  c.font = `11px ${FONT}`;
  c.fillStyle = ink.soft;
  const text = `done after ${duration(trace.end)}`, { width } = c.measureText(text);
  if (x + width + 10 >= scene.width) return;
  c.clearRect(x + 4, bottom - 25, width + 4, 14);  // hides the grid line behind the text
  c.fillText(text, x + 6, bottom - 18);
}
