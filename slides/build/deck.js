// Start the deck: theme, code steps, and timelines with keys. Runs after the module of the timeline.

const asked = new URLSearchParams(location.search), root = document.documentElement;
const paper = asked.get("view") === "print";
const setTheme = (dark) => root.classList.toggle("dark", dark && !paper);
setTheme(asked.get("theme") === "dark");

// Hide details for which a slide has no space, and enlarge the letters to 24 pt. The smallest have 11 pixels.
const ZOOMS = [2.91, 2.4, 1.95], ON_A_SLIDE = new CSSStyleSheet();
ON_A_SLIDE.replaceSync(`
  .tl { margin: 0; padding: 0; border: 0; background: transparent; }
  .controls fieldset { margin: 0; }
  .facts, .controls legend, .legend, .bar, details { display: none; }
  .choice span { padding: 1px 6px; min-height: 0; font-size: 11px; }
  .tl .sentence { margin-top: 3px; min-height: 2.6em; font-size: 11px !important; line-height: 1.3; }
  .sentence b { white-space: nowrap; }
  .printed { margin: 0 !important; font-size: 11px !important; font-weight: 600; }
`);
// A question covers its slide until the next key press.
for (const guess of document.querySelectorAll(".slide > .guess:not(:last-child)")) paper ? guess.remove() : guess.classList.add("fragment", "custom");
mountAll();
const view = (box) => box.querySelector("script + div").shadowRoot.querySelector(".tl").timeline;
const allReady = () => Promise.all([...document.querySelectorAll(".timeline")].map((box) => view(box).ready));

// In print, each state of a timeline has a page with the number of its slide. The talk ends before its backup slides.
const sections = [...document.querySelectorAll(".slides > section")], main = sections.filter(({ dataset }) => !("backup" in dataset));
sections.forEach(({ dataset }, i) => { dataset.number = "backup" in dataset ? `backup ${i + 1}` : i + 1; });
if (paper) {
  await allReady();
  for (const box of document.querySelectorAll(".slide > .timeline")) {
    const section = box.closest("section"), [control] = view(box).grid.controls;
    section.after(...(control?.options ?? []).slice(1).map((option) => inState(section, { [control.name]: option })));
  }
  mountAll();
}

// Return a copy of a slide with a timeline that is not mounted yet.
function inState(section, state) {
  const copy = section.cloneNode(true), script = copy.querySelector(".slide > .timeline script");
  script.textContent = JSON.stringify({ ...JSON.parse(script.textContent), state });
  delete script.dataset.shown;
  copy.querySelector(".demo details")?.remove(); // its timeline is not printed
  return copy;
}

const boxes = [...document.querySelectorAll(".timeline")];
for (const box of boxes) {
  box.style.zoom = ZOOMS[0];
  if (box.closest("details")) box.style.setProperty("--used-lanes", 1);
  view(box).root.getRootNode().adoptedStyleSheets = [ON_A_SLIDE];
}

// Make lanes as high as the slide permits, above its number or its source, and a recording with many lanes smaller.
function fit(box) {
  if (!box.checkVisibility()) return; // the slide is hidden, or the recording is folded
  const slide = box.closest(".slide"), { top, height } = slide.getBoundingClientRect();
  const timeline = view(box), folded = box.closest("details"), source = slide.querySelector(folded ? ".recorded" : ".source");
  const parts = folded ? [timeline.root] : [...slide.children].filter((part) => part !== source);
  const bottom = (part) => part.getBoundingClientRect().bottom;
  const end = source ? source.getBoundingClientRect().top : top + height * (1 - 50 / 720);
  for (const zoom of folded ? ZOOMS : ZOOMS.slice(0, 1)) {
    box.style.zoom = zoom;
    box.style.setProperty("--zoom", zoom);
    for (let lane = 26; lane >= 9; lane -= 0.5) {
      box.style.setProperty("--lane-height", lane);
      timeline.resize();
      if (Math.max(...parts.map(bottom)) <= end) return;
    }
  }
}

// Show the wall of the class below the question of the current slide, if its address is known.
const stored = { get wall() { try { return localStorage.getItem("wall") ?? ""; } catch { return ""; } } };
function setWall(address) {
  try { localStorage.setItem("wall", address); } catch { /* a browser may forbid it for files */ }
  showWall();
}
function showWall() {
  document.querySelectorAll(".guess iframe").forEach((frame) => frame.remove());
  const guess = deck.getCurrentSlide()?.querySelector(".guess"), wall = URL.canParse(stored.wall) && new URL(stored.wall);
  if (!guess || !wall || follows || paper) return;
  const frame = document.createElement("iframe");
  frame.src = new URL(`/wall?${new URLSearchParams({ token: wall.searchParams.get("token"), key: guess.dataset.key })}`, wall);
  frame.title = "Wall";
  guess.append(frame);
}

// Show or hide the recording of a demo, which covers the slide, or the measured values of the wall.
function unfold() {
  const [wall, folded] = [".guess:not(.visible) iframe", ".demo details"].map((one) => deck.getCurrentSlide().querySelector(one));
  if (wall) wall.contentWindow.postMessage("uncover", "*");
  else if (folded) folded.open = !folded.open;
}

// Select a state of the current timeline with the digits 1 to 9.
function choose(digit) {
  const box = [...(deck.getCurrentSlide()?.querySelectorAll(".timeline") ?? [])].findLast((one) => one.checkVisibility());
  const choice = box && view(box).form.querySelectorAll("input")[digit - 1];
  choice?.click();
  return Boolean(choice);
}

// A focused timeline does not handle digits and page keys. Escape removes the focus.
function pressKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const leave = document.activeElement?.closest(".timeline") && { Escape() {}, PageDown: () => deck.next(), PageUp: () => deck.prev() }[event.key];
  if (leave) {
    document.activeElement.blur();
    leave();
  } else if (!/^[1-9]$/.test(event.key) || !choose(event.key)) return;
  event.stopPropagation();
  event.preventDefault();
}
addEventListener("keydown", pressKey, true);
// After a mouse click, return the keyboard focus to the deck.
addEventListener("pointerup", () => setTimeout(() => document.activeElement?.closest?.(".timeline") && document.activeElement.blur()));

// The notes window shows this deck twice. Synchronize states and recordings of all three copies.
const follows = asked.has("receiver"), others = new Set(follows ? [parent.opener] : []);
const folds = [...document.querySelectorAll(".demo details")];
function sendState() {
  const chosen = boxes.map((box) => view(box).store.get("state")), open = folds.map((fold) => fold.open);
  for (const other of others) other?.postMessage({ chosen, open }, "*");
}
function receiveState({ data, source }) {
  if (!data?.chosen) return;
  if (follows || others.has(source)) {
    data.chosen.forEach((state, i) => view(boxes[i]).store.set("state", state));
    data.open.forEach((open, i) => { folds[i].open = open; });
  }
  if (follows) return;
  others.add(source); // a new window still shows the initial state
  sendState();
}

// Show in the notes window how late the talk will end, and which slides to skip. `?minutes=40` sets its length.
const talk = Number(asked.get("minutes") ?? document.querySelector(".reveal").dataset.minutes);
const plan = sections.map(({ dataset }) => ({ minutes: "backup" in dataset ? 0 : Number(dataset.minutes), optional: "skip" in dataset }));
let shown = -1, entered = 0; // the current slide, and the minutes at its start
function showLateness({ data, source }) {
  if (typeof data !== "string" || !data.includes('"heartbeat"')) return; // the notes window sends one each second
  const timer = source.document.querySelector(".timer"), line = source.document.querySelector(".late") ?? source.document.createElement("p");
  const minutes = timer.textContent.replace(/\s/g, "").split(":").reduce((sum, part) => 60 * sum + Number(part), 0) / 60;
  if (shown !== deck.getIndices().h || minutes < entered) [shown, entered] = [deck.getIndices().h, minutes];
  const later = plan.map((slide, i) => ({ ...slide, number: i + 1 })).slice(shown + 1), sum = (slides) => slides.reduce((all, one) => all + one.minutes, 0);
  const late = shown >= main.length ? 0 : Math.max(minutes, entered + plan[shown].minutes) + sum(later) - talk, skipped = [];
  for (const slide of later) if (slide.optional && sum(skipped) + 0.5 <= late) skipped.push(slide);
  const skip = skipped.length ? `, skip ${skipped.map((slide) => slide.number).join(", ")}` : "";
  line.className = "late";
  line.textContent = shown >= main.length ? "backup" : Math.abs(late) < 0.5 ? "on time" : `${late > 0 ? "+" : "−"}${Math.abs(late).toFixed(0)} min${skip}`;
  line.style.cssText = `clear: both; margin: 0; font-size: 1.6em; font-weight: bold; color: ${late < 0.5 ? "inherit" : getComputedStyle(root).getPropertyValue("--mark")}`;
  timer.parentElement.append(line);
}

// Highlight the code lines of the current step. Visible fragments count the steps.
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
  width: 1280, height: 720, margin: 0, center: false, hash: true, transition: "none", backgroundTransition: "none",
  slideNumber: (slide) => main.includes(slide) ? [slide.dataset.number, "/", main.length] : [slide?.dataset.number ?? ""],
  progress: main.length === sections.length, // the bar would count the backup slides
  pdfSeparateFragments: false, pdfMaxPagesPerSlide: 1, plugins: [RevealNotes],
});
window.Reveal = deck;
for (let digit = 1; digit <= 9; digit++) deck.addKeyBinding(48 + digit, () => choose(digit)); // from the notes window
deck.addKeyBinding({ keyCode: 82, key: "R", description: "Show the recording of a demo, or uncover the wall" }, unfold);
deck.addKeyBinding({ keyCode: 87, key: "W", description: "Address of the wall" }, () => setWall(prompt("The teacher's address of the wall, or nothing", stored.wall) ?? stored.wall));
deck.addKeyBinding({ keyCode: 68, key: "D", description: "Dark or light theme" }, () => setTheme(!root.classList.contains("dark")));
const laidOut = paper && new Promise((done) => deck.on("pdf-ready", done));
await deck.initialize();
await laidOut;
for (const number of document.querySelectorAll(".slide-number-pdf")) number.textContent = number.parentElement.querySelector("section").dataset.number;
for (const change of ["fragmentshown", "fragmenthidden", "slidechanged"]) {
  deck.on(change, stepAll);
  deck.on(change, () => boxes.forEach(fit));
}
deck.on("slidechanged", showWall);
if (asked.has("wall")) setWall(asked.get("wall"));
showWall();
stepAll();
await allReady();
boxes.forEach(fit);
for (const fold of folds) fold.addEventListener("toggle", () => { boxes.forEach(fit); sendState(); });
for (const box of boxes) view(box).form.addEventListener("change", () => { fit(box); sendState(); });
addEventListener("message", receiveState);
addEventListener("message", showLateness);
sendState();
root.dataset.ready = "yes";
