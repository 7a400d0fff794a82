// HTML parts of the picture: controls, figures, legend and table.

const element = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};

// Build the controls from native radio buttons, which support keyboards and screen readers. Each switch
// calls change(name, value).
export function buildControls(form, controls, change) {
  form.replaceChildren(...controls.map((control) => radios(control, change)));
}

function radios(control, change) {
  const set = element("fieldset", {}, element("legend", { textContent: control.label }));
  for (const option of control.options) {
    const input = element("input", { type: "radio", name: control.name, value: String(option) });
    input.addEventListener("change", () => change(control.name, option));
    set.append(element("label", { className: "choice" }, input, element("span", { textContent: String(option) })));
  }
  return set;
}

// Set the controls to `state` without rebuilding them, so that the focus stays.
export function syncControls(form, state) {
  for (const input of form.querySelectorAll("input")) input.checked = input.value === String(state[input.name]);
}

export const stateText = (controls, state) =>
  controls.map((control) => `${control.label}: ${state[control.name]}`).join(" · ");

// Show the sentence, with percentages in bold.
export function fillSentence(paragraph, sentence) {
  const parts = sentence.split(/([<>]? ?\b\d[\d.,]* ?%)/);
  paragraph.replaceChildren(...parts.map((part, i) => (i % 2 ? element("b", { textContent: part }) : part)));
}

// Show the cards. A card with a percentage, such as "62 %", also gets a bar.
export function fillFacts(list, facts) {
  list.replaceChildren(...Object.entries(facts).map(([name, value]) => {
    const card = element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value }));
    const share = /^[<>]? ?(\d+) %$/.exec(value);
    if (share) {
      card.className = "share";
      card.style.setProperty("--share", `${share[1]}%`);
    }
    return card;
  }));
}

// Show a swatch for each stage in the picture, including idle time.
export function fillLegend(list, names, gpu) {
  const texts = { wait: "wait", idle: gpuLabel(gpu, "idle") };
  list.replaceChildren(...names.map((name) => {
    const item = element("li");
    item.innerHTML = swatch(name);
    item.append(texts[name] ?? name);
    return item;
  }));
}

function swatch(name) {
  const look = LOOKS[name], { dots } = look;
  const lines = `<path class="${name === "idle" ? "idle" : ""}" d="${look.tile}" stroke="${look.ink}" stroke-width="${dots ? 2.2 : 1.2}" stroke-linecap="${dots ? "round" : "butt"}"/>`;
  return `<svg width="26" height="14" aria-hidden="true"><pattern id="p-${name}" width="${TILE}" height="${TILE}" patternUnits="userSpaceOnUse">
    <rect width="${TILE}" height="${TILE}" fill="${look.color}" fill-opacity="${look.opacity}"/>${lines}</pattern>
    <rect style="--light:${look.edges[0]};--dark:${look.edges[1]}" x=".5" y=".5" width="25" height="13" rx="2" fill="url(#p-${name})"/></svg>`;
}

// Show the picture as a table with one row per lane, for screen readers.
export function fillTable(holder, traces) {
  holder.replaceChildren(...traces.map((trace) => {
    const head = ["Lane", "Spans", "Busy", "Share", "Stages"].map((text) => element("th", { scope: "col", textContent: text }));
    const rows = trace.lanes.map((lane) => element("tr", {},
      element("th", { scope: "row", textContent: lane.name }),
      ...[lane.start.length.toLocaleString("en"), duration(lane.busy), percent(lane.busy / (trace.end || 1)), stageText(lane, trace.end)]
        .map((text) => element("td", { textContent: text }))));
    const idle = trace.stepsEnd * (1 - trace.utilization);
    const caption = `${trace.label || "This run"}${trace.note ? ` (${trace.note})` : ""}: ${gpuLabel(trace.gpu, "busy")} ${percent(trace.utilization)}, idle ${duration(idle)} in ${plural(trace.gaps.length, "gap")}.`;
    return element("table", {}, element("caption", { textContent: caption }),
      element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  }));
}

function stageText(lane, end) {
  const sums = new Float64Array(STAGES.length);
  lane.start.forEach((start, i) => { sums[lane.stage[i]] += lane.end[i] - start; });
  return STAGES.flatMap((stage, i) => (sums[i] ? [`${stage} ${percent(sums[i] / end)}`] : [])).join(", ");
}
