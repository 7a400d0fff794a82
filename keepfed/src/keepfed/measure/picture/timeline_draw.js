// Paint traces on a canvas, with one function per visual element.

const FAMILY = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif";
const SMALL = `11px ${FAMILY}`, NORMAL = `12px ${FAMILY}`, BOLD = `600 12px ${FAMILY}`, TITLE = `600 13px ${FAMILY}`;
const NUMBER = `600 11px ${FAMILY}`;

// Paint `view` = { from, to, dark, batch }, where batch -1 highlights no batch. Returns whether a lane was binned.
export function paint(c, scene, view) {
  const { left, right } = scene, scale = (right - left) / (view.to - view.from), X = (ms) => left + (ms - view.from) * scale;
  const tools = { c, scene, view, scale, X, ink: PAGES[view.dark ? "dark" : "light"], fills: patterns(c, X(0), view.dark) };
  c.clearRect(0, 0, scene.width, scene.height);
  c.textBaseline = "middle";
  paintAxis(tools);
  let binned = false;
  for (const panel of scene.panels) {
    paintHeader(tools, panel);
    for (const place of panel.lanes) binned = paintLane(tools, panel, place) || binned;
    paintEnd(tools, panel);
  }
  return binned;
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
  fill(c, look.color, 0, 0, TILE, TILE, look.opacity);
  c.lineCap = look.dots ? "round" : "butt";
  stroke(c, ink, new Path2D(look.tile), look.dots ? 2.2 : 1.2);
  return canvas;
}

function fill(c, color, x, y, width, height, opacity = 1) {
  c.globalAlpha = opacity;
  c.fillStyle = color;
  c.fillRect(x, y, width, height);
  c.globalAlpha = 1;
}

function stroke(c, color, path, width = 1) {
  c.strokeStyle = color;
  c.lineWidth = width;
  c.stroke(path);
}

function write(c, font, color, text, x, y, align = "left") {
  c.font = font;
  c.fillStyle = color;
  c.textAlign = align;
  c.fillText(text, x, y);
}

function widthOf(c, font, text) {
  c.font = font;
  return c.measureText(text).width;
}

// Return as much of a text as fits.
function fit(c, font, text, width) {
  if (widthOf(c, font, text) <= width) return text;
  let end = text.length;
  while (end > 1 && widthOf(c, font, `${text.slice(0, end)}…`) > width) end--;
  return `${text.slice(0, end)}…`;
}

function paintAxis({ c, scene, view, X, ink }) {
  for (const [ms, text] of axis(view.from, view.to, (scene.right - scene.left) / (scene.narrow ? 70 : 110))) {
    const x = Math.round(X(ms)) + 0.5, align = x + 30 > scene.width ? "right" : ms ? "center" : "left";
    stroke(c, ink.grid, new Path2D(`M${x} ${AXIS - 4}V${scene.height - 4}`));
    write(c, SMALL, ink.soft, text, align === "right" ? scene.width : x, 9, align);
  }
}

function paintHeader({ c, scene, ink }, { trace, y }) {
  const middle = y + HEADER / 2 - 1, room = scene.width - 12;
  fill(c, ink.bg, 0, y + 2, scene.width, HEADER - 5);
  const label = fit(c, TITLE, trace.label, trace.note ? room / 2 : room);
  write(c, TITLE, ink.fg, label, 4, middle);
  let used = 4 + widthOf(c, TITLE, label);
  const busy = `${label ? " · " : ""}${gpuLabel(trace.gpu, "busy")} ${trace.busy}`, width = widthOf(c, NORMAL, busy);
  if (!scene.narrow || used + width + widthOf(c, NORMAL, trace.note) + 40 < room) {
    write(c, NORMAL, ink.soft, busy, used, middle);
    used += width;
  }
  if (!trace.note) return;
  const note = fit(c, NORMAL, trace.note, room - used - 24);
  paintPill(c, NORMAL, note, room - widthOf(c, NORMAL, note) - 10, middle, ink.soft, ink.bg);
}

function paintPill(c, font, text, x, middle, color, paper) {
  const pill = new Path2D();
  pill.roundRect(x + 0.5, middle - 9, widthOf(c, font, text) + 12, 18, 9);
  c.fillStyle = paper;
  c.fill(pill);
  stroke(c, color, pill);
  write(c, font, color, text, x + 6.5, middle + 0.5);
}

function paintLane(tools, { trace }, place) {
  const { c, scene, view, ink, X } = tools, { lane, y, height } = place, computes = lane === trace.stepLane;
  paintName(tools, place, computes ? trace.utilization : lane.busy / (trace.end || 1), computes);
  c.save();
  c.beginPath(); c.roundRect(scene.left, y, scene.right - scene.left, height, 3); c.clip();
  const from = Math.max(scene.left, X(0)), to = Math.min(scene.right, X(trace.end));
  fill(c, ink.track, from, y, to - from, height);
  const [first, last] = visible(lane, view.from, view.to), columns = scene.right - scene.left;
  const binned = ((last - first) / lane.rows) * 2 > columns;
  const gaps = binned ? [[0, trace.stepsEnd]] : trace.gaps.filter(([start, end]) => end > view.from && start < view.to);
  if (computes) for (const [start, end] of gaps) paintGap(tools, place, start, end, !binned);
  if (binned) paintBins(tools, place, columns);
  else for (let i = first; i < last; i++) paintSpan(tools, place, i);
  c.restore();
  return binned;
}

function paintName({ c, scene, ink }, { lane, y, height }, share, computes) {
  const name = scene.narrow ? lane.name.replace("worker", "w") : lane.name, font = computes ? BOLD : NORMAL;
  const used = lane.start.length, middle = y + height / 2;
  write(c, font, used ? ink.fg : ink.soft, fit(c, font, name, scene.left - 46), 4, middle);
  write(c, SMALL, ink.soft, used ? percent(share) : "–", scene.left - 7, middle, "right");
}

function paintSpan({ c, scene, view, scale, X, fills }, { lane, y, rowHeight }, i) {
  const stage = STAGES[lane.stage[i]], look = LOOKS[stage], batch = lane.batch[i];
  const x = Math.max(scene.left - 2, X(lane.start[i])), end = Math.min(scene.right + 2, X(lane.end[i]));
  const width = Math.max(end - x, 1), inset = Math.min(lane.depth[i] * 3, rowHeight / 3);
  const top = y + lane.row[i] * rowHeight + inset, height = rowHeight - 2 * inset - (lane.rows > 1 ? 1 : 0);
  const faded = view.batch >= 0 && batch !== view.batch, narrow = width < 9, shown = faded ? 0.2 : 1;
  // Draw a span narrower than one pixel as a paler span of one pixel, so that it stays visible.
  const opacity = shown * Math.max(0.35, Math.min(1, end - x)) * (narrow ? look.opacity : 1);
  fill(c, narrow ? look.color : fills[stage], x, top, width, height, opacity);
  if (width >= 3) {
    const line = narrow ? 0.5 : 1;
    c.globalAlpha = shown;
    c.strokeStyle = look.edges[view.dark ? 1 : 0];
    c.lineWidth = line;
    c.strokeRect(x + line / 2, top + line / 2, width - line, height - line);
    c.globalAlpha = 1;
  }
  const numbered = batch >= 0 && stage !== "wait" && height >= 14 && !faded;
  if (!numbered || (lane.end[i] - lane.start[i]) * scale <= 11 + 8 * String(batch).length) return;
  c.font = NUMBER;
  c.textAlign = "left";
  c.lineWidth = 3;
  c.lineJoin = "round";
  c.strokeStyle = look.color;
  c.strokeText(batch, x + 5, top + height / 2 + 0.5);
  write(c, NUMBER, look.text, batch, x + 5, top + height / 2 + 0.5);
}

// Paint idle time of the GPU hatched in red, with its length if there is enough space.
function paintGap({ c, scene, X, ink, fills }, { y, height }, start, end, labeled) {
  const x = Math.max(scene.left - 2, X(start)), width = Math.min(scene.right + 2, X(end)) - x;
  if (width < 3) {
    if (width > 0) fill(c, LOOKS.idle.color, x, y, Math.max(1, width), height, Math.max(0.35, Math.min(1, width)));
    return;
  }
  fill(c, fills.idle, x, y, width, height);
  c.strokeStyle = ink.idle;
  c.lineWidth = 1;
  c.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  const words = start ? ["idle"] : ["idle before the first step", "idle"];
  const text = words.map((word) => `${word} ${duration(end - start)}`).find((t) => widthOf(c, SMALL, t) + 26 < width);
  if (labeled && text) paintPill(c, SMALL, text, x + width / 2 - widthOf(c, SMALL, text) / 2 - 6, y + height / 2, ink.idle, ink.bg);
}

// Paint a zoomed-out lane. Each pixel column is a stacked bar with the share of each stage.
function paintBins({ c, scene, view }, { lane, y, rowHeight }, columns) {
  const bins = busyShares(lane, view.from, view.to, columns), filled = new Float32Array(lane.rows * columns);
  bins.forEach((share, place) => {
    if (share < 0.002) return;
    const column = place % columns, row = Math.floor(place / columns / STAGES.length);
    const look = LOOKS[STAGES[Math.floor(place / columns) % STAGES.length]];
    const height = Math.min(1, (filled[row * columns + column] += share)) * rowHeight;
    fill(c, look.color, scene.left + column, y + (row + 1) * rowHeight - height, 1, share * rowHeight, look.opacity);
  });
}

// Mark the end of a run that is shorter than the axis, because the rest is the time it saves.
function paintEnd({ c, scene, X, ink }, { trace, y, bottom }) {
  const x = X(trace.end), text = `done after ${duration(trace.end)}`, width = widthOf(c, SMALL, text);
  if (x < scene.left || x > scene.right - 3) return;
  c.setLineDash([3, 3]);
  stroke(c, ink.soft, new Path2D(`M${Math.round(x) + 0.5} ${y + HEADER}V${bottom}`));
  c.setLineDash([]);
  if (x + width + 10 >= scene.width) return;
  c.clearRect(x + 4, bottom - 25, width + 4, 14); // hides the grid line behind the text
  write(c, SMALL, ink.soft, text, x + 6, bottom - 18);
}
