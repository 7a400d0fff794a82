// Start the deck: theme, steps through code, timelines that keys switch. Follows the timeline's module.

const asked = new URLSearchParams(location.search), root = document.documentElement;
const paper = asked.get("view") === "print";
const setTheme = (dark) => root.classList.toggle("dark", dark && !paper);
setTheme(asked.get("theme") === "dark");

// What a slide has no room for goes; letters are large enough for the last row.
const ZOOM = 1.95, ON_A_SLIDE = new CSSStyleSheet();
ON_A_SLIDE.replaceSync(`
  .tl { margin: 0; padding: 0; border: 0; background: transparent; }
  .facts, .controls legend, .bar, details { display: none; }
  .choice span { padding: 3px 10px; font-size: 16.5px; }
  .tl .sentence { margin-top: 4px; min-height: 2.6em; font-size: 16.5px !important; line-height: 1.3; }
  .sentence b { white-space: nowrap; }
  .legend { margin: 2px 0 !important; gap: 0 7px; font-size: 11.2px; }
  .legend li { gap: 4px; }
  .legend svg { zoom: 0.8; }
  .printed { margin: 0 !important; font-size: 16.5px !important; font-weight: 600; }
`);
mountAll();
const boxes = [...document.querySelectorAll(".timeline")];
const widget = (box) => box.querySelector("script + div").shadowRoot;
for (const box of boxes) {
  box.style.zoom = ZOOM;
  widget(box).adoptedStyleSheets = [ON_A_SLIDE];
}

// Lanes as high as the slide has room for, above its number or its source.
function fit(box) {
  if (!box.checkVisibility()) return; // another slide is shown, or a recording is folded
  const slide = box.closest(".slide"), { top, height } = slide.getBoundingClientRect();
  const { timeline } = widget(box).querySelector(".tl"), source = slide.querySelector(".source");
  const parts = box.closest("details") ? [timeline.root] : [...slide.children].filter((part) => part !== source);
  const bottom = (part) => part.getBoundingClientRect().bottom;
  const end = source ? source.getBoundingClientRect().top : top + height * (1 - 50 / 720);
  for (let lane = 26; lane >= 9; lane--) {
    box.style.setProperty("--lane-height", lane);
    timeline.resize();
    if (Math.max(...parts.map(bottom)) <= end) return;
  }
}

// A recording covers its slide: to be shown where a demo fails.
for (const folded of document.querySelectorAll(".demo details")) folded.addEventListener("toggle", () => boxes.forEach(fit));
function unfold() {
  const folded = deck.getCurrentSlide().querySelector(".demo details");
  if (folded) folded.open = !folded.open;
}

// The digits 1 to 9 choose a state of the timeline on the slide that is shown, without taking the
// keyboard from the deck. From a timeline that has it, page keys turn the slide, Escape gives it back.
function pressKey(event) {
  const box = [...(deck.getCurrentSlide()?.querySelectorAll(".timeline") ?? [])].findLast((one) => one.checkVisibility());
  if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
  const choice = /^[1-9]$/.test(event.key) && widget(box).querySelectorAll("input")[event.key - 1];
  const leave = box.contains(document.activeElement) && { Escape() {}, PageDown: () => deck.next(), PageUp: () => deck.prev() }[event.key];
  if (!choice && !leave) return;
  event.stopPropagation();
  event.preventDefault();
  if (choice) return choice.click();
  document.activeElement.blur();
  leave();
}
addEventListener("keydown", pressKey, true);
// A choice by the mouse leaves the keyboard to the deck.
addEventListener("pointerup", () => setTimeout(() => document.activeElement?.closest?.(".timeline") && document.activeElement.blur()));

// Lines of code stand out in turn: as many steps as of the fragments behind the code are visible.
function stepThrough(pre) {
  const steps = pre.dataset.steps.split("|").map(ranges);
  const now = steps[Math.min(pre.querySelectorAll(".step.visible").length, steps.length - 1)];
  pre.querySelectorAll(".line").forEach((line, i) => line.classList.toggle("dim", !paper && !now.has(i + 1)));
}

function ranges(text) {
  const lines = new Set();
  for (const part of text.split(",")) {
    const [first, last = first] = part.split("-").map(Number);
    for (let line = first; line <= last; line++) lines.add(line);
  }
  return lines;
}
const stepAll = () => document.querySelectorAll("pre[data-steps]").forEach(stepThrough);

const deck = new Reveal({
  width: 1280, height: 720, margin: 0, center: false, hash: true, slideNumber: "c/t", transition: "none",
  backgroundTransition: "none", pdfSeparateFragments: false, plugins: [RevealNotes],
});
window.Reveal = deck;
deck.addKeyBinding({ keyCode: 82, key: "R", description: "The recording of a demo" }, unfold);
deck.addKeyBinding({ keyCode: 68, key: "D", description: "Dark or light" }, () => setTheme(!root.classList.contains("dark")));
const laidOut = paper && new Promise((done) => deck.on("pdf-ready", done));
await deck.initialize();
await laidOut;
deck.on("fragmentshown", stepAll);
deck.on("fragmenthidden", stepAll);
deck.on("slidechanged", stepAll);
deck.on("slidechanged", () => boxes.forEach(fit));
stepAll();
await Promise.all(boxes.map((box) => widget(box).querySelector(".tl").timeline.ready));
boxes.forEach(fit);
root.dataset.ready = "yes";
